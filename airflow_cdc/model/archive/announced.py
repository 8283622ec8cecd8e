"""Announced: which waiting files a watcher has announced, and when, as small as a watermark must be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.files import name_digest
from airflow_cdc.model.plain_json import BigInt, JsonObject

MOST_TOLD_APART = 2000
"""Announced files that are remembered one by one: what no run of the merge has looked into is not that much."""


@dataclass(frozen=True)
class Announced(JsonObject, required=("count", "digest", "names")):
    """The announced files that no survey holds yet; what a survey holds is the lake's to remember."""

    count: int = 0
    digest: BigInt = 0
    """Sum of the paths' digests modulo 2^64."""
    names: tuple[str, ...] = ()
    """Digests of the paths; of very many the last ones."""
    at: float | None = 0.0
    """When the last event was sent, in seconds since 1970; None: nothing waited since. 0: what was announced before is unknown."""

    @classmethod
    def of(cls, files: Iterable[ArchivedFile], *, at: float | None) -> Announced:
        """Return that all of some files are announced."""
        digests = [name_digest(file.path) for file in files]
        return cls(len(digests), sum(digests) % 2**64, tuple(f"{digest:016x}" for digest in digests[-MOST_TOLD_APART:]), at)

    def left_out(self, files: Sequence[ArchivedFile]) -> tuple[ArchivedFile, ...]:
        """Return the files that were not announced; where there are very many, some that were may be among them."""
        if Announced.of(files, at=self.at) == self:
            return ()
        names = set(self.names)
        return tuple(file for file in files if f"{name_digest(file.path):016x}" not in names)

    def is_due(self, now: float, repeat_after: float | None) -> bool:
        """Return whether what still waits is to be announced again.

        :param now: seconds since 1970.
        :param repeat_after: seconds after the last event; None: never.
        """
        return repeat_after is not None and self.at is not None and now - self.at >= repeat_after

    def quiet(self) -> Announced:
        """Return the same where nothing waits any more: there is nothing to repeat before the next event."""
        return replace(self, at=None)
