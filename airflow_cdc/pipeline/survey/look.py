"""Look: what a run sees of the archive, and when it must see all of it."""

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
    """What a run sees of the archive."""

    fs: FileSystem
    root: str
    state: ArchiveState
    expected: ArchiveShape
    """What the archive is said to hold; checked of what is new."""
    lists_all: bool
    """Whether the run asks which of the surveyed files are still there."""
    ignored: tuple[str, ...] = ()
    there: tuple[ArchivedFile, ...] = ()
    """All data files, where the run asks for them."""

    def new_files(self, ledger: Ledger) -> NewFiles:
        """Return the files that no survey holds.

        :raises ArchiveNotFoundError: when the archive's root does not exist.
        :raises ConfigurationError: when the archive holds other files than expected.
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
