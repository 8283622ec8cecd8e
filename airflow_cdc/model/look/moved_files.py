"""Which life of the topic a file is of whose offsets lie below what was applied, though none of them was archived before.

In one life of a partition offsets and positions rise together, and so do the times at which the connector processed the records. A file of
lower offsets is late where its positions and times are lower too, and of a later life where they are not: the topic was created again.
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
    """The stretch of the source's log in which a file's records lie."""

    lowest: int
    """Commit position, as the file has it: without the epoch."""
    highest: int
    since_ms: int | None = None
    """When the connector processed the first of them (``ts_ms`` of the envelope, milliseconds since 1970); None unless all records say."""
    through_ms: int | None = None
    """The same of the last."""


@dataclass(frozen=True)
class KnownLog:
    """How far a flow has followed the source's log."""

    reach: Mapping[int, int]
    """By lane: the highest commit position of its streamed events, epoch included."""
    highest: int
    """The highest of all; of a flow that has seen a snapshot only, the snapshot's."""
    epochs: Epochs

    @classmethod
    def of(cls, checkpoint: FlowCheckpoint) -> KnownLog | None:
        """Return what a flow's checkpoint knows, None where it knows no position."""
        streamed = checkpoint.reach.streamed_through.items()
        reach = {int(lane): position.commit for lane, position in streamed if lane.lstrip("-").isdigit()}
        read = [checkpoint.snapshot.position.commit] if checkpoint.snapshot else []
        known = [position.commit for _, position in streamed] or read
        return cls(reach, max(known), checkpoint.epochs) if known else None

    def shift(self, file: LogSpan, lane: int, offset: int) -> int | None:
        """Return how many lives later (1) or earlier (-1) than the newest of its partition a file is; None where nothing proves it.

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
        """Positions alone prove nothing here: those of an epoch that is over may lie above those of the newest."""
        newest, since = self.epochs.newest, self.epochs.since_ms.get(self.epochs.newest)
        if since is None or file.since_ms is None or file.through_ms is None:
            return None
        begins = self.epochs.begins.get(str(lane), ())
        if file.since_ms > since:
            # All of it was processed in the newest epoch. In one life that is at offsets from the epoch's first on.
            of_offset = max((epoch for first, epoch in begins if first <= offset), default=0)
            if file.lowest + newest * EPOCH > self.highest:
                return 1
            return None if of_offset < newest else 0
        born = next((epoch for first, epoch in begins if first == 0), 0)
        # The lane is younger than the file.
        return -1 if born and file.through_ms <= self.epochs.since_ms.get(born, since) and lane - LANES in self.reach else 0
