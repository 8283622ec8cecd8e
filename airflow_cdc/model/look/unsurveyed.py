"""What an archive holds that no run has looked at, for who only looks: nothing is written, and no large archive is listed whole."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.looked import Looked
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.look.new_files import find_new_files
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger

MOST_LISTED = 200_000
"""Surveyed files of an archive above which it is not listed whole."""


@dataclass(frozen=True)
class Landed:
    """Files that no run has looked at."""

    files: int = 0
    bytes: int = 0
    """Bytes in the archive, compressed or not."""
    since: float | None = None
    """When the first of them was archived, in seconds since 1970; None where the store does not say so, or there are none."""

    def __add__(self, other: Landed) -> Landed:
        return Landed(self.files + other.files, self.bytes + other.bytes, min(filter(None, (self.since, other.since)), default=None))


@dataclass(frozen=True)
class Unsurveyed:
    """What one listing found."""

    by_topic: Mapping[str, Landed] = field(default_factory=dict)
    """By topic, of files whose path names it."""
    others: Landed = field(default_factory=Landed)
    """Of files that may hold any topic."""
    at: float = 0.0
    """When it was listed, in seconds since 1970; 0: never yet."""
    failure: str = ""
    """Why it could not be listed; empty where it could."""


NOT_LISTED = Unsurveyed()


def list_unsurveyed(
    fs: FileSystem, root: str, state: ArchiveState, ledger: Ledger, known: Looked | None = None
) -> tuple[Unsurveyed, Looked]:
    """Return what no run has looked at, and what makes the next listing cheap.

    :param root: the archive's root as the file system names it.
    :param known: what the last listing returned.
    :raises ArchiveNotFoundError: when the archive's root does not exist.
    :raises TooManyFilesError: where only a listing of the whole archive would show it, and that is large.
    """
    now = time.time()
    recorded = state.looked()
    looked = known if known is not None and known.whole_at >= recorded.whole_at else recorded
    surveyed = sum(folder.count for folder in ledger.folders.values())
    found = find_new_files(fs, root, state, ledger, is_poke=True, now=now, looked=looked, is_small=surveyed <= MOST_LISTED)
    control = set(ledger.control_topics())
    by_topic: dict[str, Landed] = {}
    others = Landed()
    for file in found.files:
        if not file.is_topic_named:
            others += _landed(file)
        elif file.topic not in control:
            by_topic[file.topic] = by_topic.get(file.topic, Landed()) + _landed(file)
    # A folder with a new file must be listed again: its own time stays as it is.
    changed = {file.path.rpartition("/")[0] for file in found.files}
    return Unsurveyed(by_topic, others, now), found.looked.without(changed, Looked())


def _landed(file: ArchivedFile) -> Landed:
    return Landed(1, file.size, file.archived_at)
