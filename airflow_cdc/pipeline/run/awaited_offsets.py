"""Offsets that a flow waits for, because they decide whether the source's log went back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from airflow_cdc.model.archive.completeness import FileOffsets, OffsetGap
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import Microbatch

PATIENCE_SECONDS = 86_400
"""How much younger than a gap the newest file may be while the gap may still close. Sinks write a partition's files in order, but for
retries and uploads by hand."""


@dataclass
class AwaitedOffsets:
    """What one run of a flow found out about the offsets that it waits for."""

    pending: Sequence[FileOffsets]
    """Offsets of the files that may be planned, by lane."""
    find_times: Callable[[], Mapping[str, int | None]]
    """Returns by path of all surveyed files of the topic when it was archived, in seconds since 1970; None where that is not known."""
    together: frozenset[str] = frozenset()
    """Paths of the files to plan as one microbatch, because one decides about another; empty: as usual."""
    gaps: tuple[OffsetGap, ...] = ()
    """What nothing that is pending closes: the flow waits."""

    def may_come(self, gaps: Sequence[OffsetGap], microbatch: Microbatch) -> bool:
        """Return whether missing offsets are pending in other files than a microbatch's, or may still be archived."""
        return bool(self._closing(gaps, microbatch)) or any(map(self._is_fresh, gaps))

    def wait(self, gaps: Sequence[OffsetGap], microbatch: Microbatch) -> None:
        """Plan the files that hold the missing offsets together with those of a microbatch; where there are none, wait for them."""
        closing = self._closing(gaps, microbatch)
        self.together = frozenset(file.path for file in microbatch.files) | closing if closing else frozenset()
        self.gaps = () if closing else tuple(gaps)

    def left_out(self, paths: Iterable[str]) -> frozenset[str]:
        """Return those of the pending files that are left out of the next microbatch."""
        return frozenset(path for path in paths if path not in self.together) if self.together else frozenset()

    @cached_property
    def _times(self) -> Mapping[str, int | None]:
        return self.find_times()

    def _closing(self, gaps: Sequence[OffsetGap], microbatch: Microbatch) -> frozenset[str]:
        # One that was to be planned together, and was not, waits for something else: it would be asked for without end.
        known = {file.path for file in microbatch.files} | self.together
        others = (item for item in self.pending if item.file not in known)
        return frozenset(item.file for item in others if any(_overlaps(item, gap) for gap in gaps))

    def _is_fresh(self, gap: OffsetGap) -> bool:
        behind, newest = self._times.get(gap.before), max(filter(None, self._times.values()), default=None)
        return behind is not None and newest is not None and newest - behind < PATIENCE_SECONDS


def _overlaps(item: FileOffsets, gap: OffsetGap) -> bool:
    return item.partition == gap.partition and any(first <= gap.last and last >= gap.first for first, last in item.covered)


def archived_times(archive: ArchiveState, ledger: Ledger, topic: str) -> dict[str, int | None]:
    """Return when each surveyed file of a topic was archived (:attr:`AwaitedOffsets.find_times`)."""
    surveys = archive.surveys(ledger.topics.get(topic, 1), ledger.surveyed_through)
    return {file.path: file.archived_at for survey in surveys for file in survey.files_of(topic)}
