"""The topic's life of a file with offsets below the applied ones that were never archived before.

In one life of a partition, offsets, positions and the connector's processing times rise together. A file of lower offsets is late if its
positions and times are lower too. If they are not, it belongs to a later life: the topic was recreated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.state.checkpoint import FlowCheckpoint


@dataclass(frozen=True)
class LogSpan:
    """The range of the source's log that a file's records cover."""

    lowest: int
    """Lowest commit position, as in the file: without the epoch."""
    highest: int
    since_ms: int | None = None
    """When the connector processed the first of them (``ts_ms`` of the envelope, milliseconds since 1970); None unless all records carry
    it."""
    through_ms: int | None = None
    """As above, for the last."""
    has_reads_only: bool = False
    """Whether the positions are those of snapshot reads, which may lie above events that the archive holds after them."""

    def shift_beside(self, following: LogSpan) -> int | None:
        """Return 0 if the connector processed the file's records before those of a file with higher offsets, 1 if after them; None if their
        times do not show it.
        """
        if None in (self.since_ms, self.through_ms, following.since_ms, following.through_ms):
            return None
        if self.through_ms <= following.since_ms:  # type: ignore[operator]
            return 0
        return 1 if self.since_ms >= following.through_ms else None  # type: ignore[operator]


@dataclass(frozen=True)
class KnownLog:
    """How far a flow has followed the source's log."""

    reach: Mapping[int, int]
    """By lane: the highest commit position of its streamed events, epoch included."""
    highest: int
    """The highest of all; for a flow that has seen only a snapshot, the snapshot's."""
    epochs: Epochs

    @classmethod
    def of(cls, checkpoint: FlowCheckpoint) -> KnownLog | None:
        """Return what a flow's checkpoint records; None where it has no position."""
        streamed = checkpoint.reach.streamed_through.items()
        reach = {int(lane): position.commit for lane, position in streamed if lane.lstrip("-").isdigit()}
        read = [checkpoint.snapshot.position.commit] if checkpoint.snapshot else []
        known = [position.commit for _, position in streamed] or read
        return cls(reach, max(known), checkpoint.epochs) if known else None

    def shift(self, file: LogSpan, lane: int, offset: int) -> int | None:
        """Return by how many lives a file is later (1) or earlier (-1) than its partition's newest; None where nothing proves it.

        :param lane: the partition's newest.
        :param offset: the file's first.
        """
        return self._shift_between_epochs(file, lane, offset) if self.epochs.newest else self._shift_in_one_epoch(file, lane)

    def _shift_in_one_epoch(self, file: LogSpan, lane: int) -> int:
        if file.lowest > self.highest:
            return 1
        before = self.reach.get(lane - LANES)
        return -1 if before is not None and file.highest <= before else 0

    def _shift_between_epochs(self, file: LogSpan, lane: int, offset: int) -> int | None:
        """Positions alone prove nothing here: those of a finished epoch may be above those of the newest."""
        newest, since = self.epochs.newest, self.epochs.since_ms.get(self.epochs.newest)
        if since is None or file.since_ms is None or file.through_ms is None:
            return None
        begins = self.epochs.begins.get(str(lane), ())
        if file.since_ms > since:
            # The whole file was processed in the newest epoch. Within one life, its offsets then start at or behind the epoch's first.
            of_offset = max((epoch for first, epoch in begins if first <= offset), default=0)
            if file.lowest + newest * EPOCH > self.highest:
                return 1
            return None if of_offset < newest else 0
        born = next((epoch for first, epoch in begins if first == 0), 0)
        # The lane is younger than the file.
        return -1 if born and file.through_ms <= self.epochs.since_ms.get(born, since) and lane - LANES in self.reach else 0
