"""Announced: the pending files that a watcher has announced, and when, in compact form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.files import name_digest
from airflow_cdc.model.plain_json import BigInt, JsonObject

MOST_NAMED = 2000
"""Most announced files that are remembered one by one; unsurveyed files are rarely more."""


@dataclass(frozen=True)
class Announced(JsonObject, required=("count", "digest", "names")):
    """The announced files that no survey holds yet; the lake records the surveyed ones."""

    count: int = 0
    digest: BigInt = 0
    """Sum of the paths' digests modulo 2^64."""
    names: tuple[str, ...] = ()
    """Digests of the paths; of very many the last ones."""
    at: float | None = 0.0
    """When the last event was sent, in seconds since 1970; None: nothing has waited since. 0: earlier announcements are unknown."""

    @classmethod
    def of(cls, files: Iterable[ArchivedFile], *, at: float | None) -> Announced:
        """Return the record of these files as announced."""
        digests = [name_digest(file.path) for file in files]
        return cls(len(digests), sum(digests) % 2**64, tuple(f"{digest:016x}" for digest in digests[-MOST_NAMED:]), at)

    def left_out(self, files: Sequence[ArchivedFile]) -> tuple[ArchivedFile, ...]:
        """Return the files that were not announced; of very many, some announced ones may be included."""
        if Announced.of(files, at=self.at) == self:
            return ()
        names = set(self.names)
        return tuple(file for file in files if f"{name_digest(file.path):016x}" not in names)

    def is_due(self, now: float, repeat_after: float | None) -> bool:
        """Return whether to announce the files that still wait again.

        :param now: seconds since 1970.
        :param repeat_after: seconds after the last event; None: never.
        """
        return repeat_after is not None and self.at is not None and now - self.at >= repeat_after

    def quiet(self) -> Announced:
        """Return the record once nothing waits: nothing is repeated before the next event."""
        return replace(self, at=None)
