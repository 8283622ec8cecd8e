"""Look: a run's listing of the archive, incremental or complete."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc.model.archive.archive_shape import ArchiveShape
from airflow_cdc.model.archive.archived_files import ArchivedFile, list_archive
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.look.new_files import NewFiles, find_new_files, with_replaced
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger


@dataclass
class Look:
    """A run's listing of the archive."""

    fs: FileSystem
    root: str
    state: ArchiveState
    expected: ArchiveShape
    """The archive's declared contents; new files are checked against it."""
    lists_all: bool
    """Whether the run needs to know which surveyed files still exist."""
    ignored: tuple[str, ...] = ()
    there: tuple[ArchivedFile, ...] = ()
    """All data files, if the run lists them."""

    def new_files(self, ledger: Ledger) -> NewFiles:
        """Return the files that no survey holds.

        :raises ArchiveNotFoundError: if the archive's root does not exist.
        :raises ConfigurationError: if the archive holds other files than expected.
        """
        if self.lists_all:
            listing = list_archive(self.fs, self.root)
            self.there = listing.files
            unsurveyed = NewFiles(tuple(self.state.unsurveyed(listing.files, ledger)), listing.ignored, self.state.looked())
            found = with_replaced(self.fs, self.root, self.state, unsurveyed)
        else:
            found = find_new_files(self.fs, self.root, self.state, ledger)
        self.ignored = found.ignored
        self.expected.check(self.state.archive, found.files)
        return found
