"""Snapshot: a connector's read of a whole table, which says of every row that was there before whether it still is.

It says so only where it is *proven*: its last read came, and in every lane of the topic the archive goes on behind it without a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.lives import LANES, life_of_lane
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION


class SnapshotChoice(str, Enum):
    """What a person decided about the rows that a snapshot did not find."""

    REPLACE = "replace"
    """Remove them, once it is proven to be whole."""
    KEEP = "keep"
    """Keep them, whatever the flow's policy is."""


@dataclass(frozen=True)
class SnapshotDecision(JsonObject):
    """A choice for one snapshot of a flow."""

    position: Position
    choice: SnapshotChoice


@dataclass(frozen=True)
class Snapshot(JsonObject, required=("cut", "passed", "tables")):
    """A full snapshot that a flow has seen reads of."""

    position: Position
    """All its reads share it."""
    is_first: bool
    """Whether nothing of the flow stands before it; then nothing can have vanished in it."""
    is_complete: bool = False
    """Whether its last read was seen."""
    is_initial: bool = False
    """Whether a connector took it because it knew nothing of the table: never one that a signal asked for, which may read a part only."""
    cut: Position | None = None
    """Rows and events before it are void where no offset places them; None while no row was removed by it."""
    last_offsets: Mapping[str, int] = field(default_factory=dict)
    """By lane: offset of its last read."""
    begins: Mapping[str, int] = field(default_factory=dict)
    """By lane: the first offset that does not stand before it: its first read, or, of a lane without reads, the first event behind it."""
    passed: frozenset[str] = frozenset()
    """Lanes in which the archive goes on behind it without a gap."""
    doubt: str | None = None
    """Why it proves nothing, whatever comes: a read of it was rejected, or lost against a row of another lane."""
    unconfirmed: int | None = None
    """Rows that it did not find and that were kept, when its last read was merged; None before."""
    tables: tuple[str, ...] = ()
    """Names of the source's tables that it read, where several share the topic; empty: the only one."""
    reads: int = 0
    """Reads of it that were applied; of a key with several in one microbatch one counts."""
    decision: SnapshotChoice | None = None
    """What a person decided about it; it goes over the flow's policy."""

    @property
    def is_undecided(self) -> bool:
        """Whether it may have missed rows, has removed none, and nobody has decided about it."""
        return not self.is_first and self.cut is None and self.decision is None

    @property
    def life(self) -> int:
        """The newest life of the topic that holds reads of it."""
        return max((life_of_lane(int(lane)) for lane in self.last_offsets if lane != UNKNOWN_PARTITION), default=0)

    def is_proven(self, lanes: frozenset[str]) -> bool:
        """Return whether it is whole in every lane of the topic that has been seen in its life.

        :param lanes: all lanes that the flow has seen; of a partition that only an earlier life had, one of this life is waited for.
        """
        return self.is_complete and self.doubt is None and not self.lacks(lanes)

    def lacks(self, lanes: frozenset[str]) -> frozenset[str]:
        """Return the lanes of its life in which the archive is not known to go on behind it without a gap.

        :param lanes: as of :meth:`is_proven`.
        """
        asked = (lane for lane in lanes if not self.is_raised(lane))
        partitions = {lane if lane == UNKNOWN_PARTITION else str(int(lane) % LANES + self.life * LANES) for lane in asked}
        return frozenset(partitions - self.passed)

    def is_raised(self, lane: str) -> bool:
        """Return whether a lane's very first offset stands behind the snapshot: its partition was added later, and has no read of it.

        A partition that is new in a later life of the topic has its first lane then, for no offset of it came before.
        """
        return lane in self.passed and lane not in self.last_offsets and self.begins.get(lane) == 0

    def decided(self, choice: SnapshotChoice, passed: frozenset[str]) -> Snapshot:
        """Return the snapshot with what a person decided about it.

        :param passed: lanes that are known to go on behind it by now.
        """
        return replace(self, decision=choice, passed=self.passed | passed)
