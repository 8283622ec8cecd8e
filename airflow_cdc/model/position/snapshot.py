"""Snapshot: a connector's read of a whole table, which shows for every row whether it still exists.

It is evidence only when *proven*: its last read came, and in every lane of the topic the archive continues behind it without a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.lives import lane_of, life_of_lane, partition_of_lane
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION


class SnapshotChoice(str, Enum):
    """A person's decision about the rows that a snapshot did not find."""

    REPLACE = "replace"
    """Remove them, once the snapshot is proven."""
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
    """Whether it is the flow's beginning; then no row can be missing from it."""
    is_complete: bool = False
    """Whether it is known to have ended: its last read has been seen, or, where the connector marks none, changes follow its reads."""
    is_initial: bool = False
    """Whether it is an initial snapshot, taken because the connector knew nothing of the table; never one that a signal requested, which
    may be filtered."""
    cut: Position | None = None
    """Rows and events before this position are void where no offset places them; None while the snapshot has removed no row."""
    last_offsets: Mapping[str, int] = field(default_factory=dict)
    """By lane: offset of its last read."""
    begins: Mapping[str, int] = field(default_factory=dict)
    """By lane: the first offset that is not before the snapshot: its first read, or, in a lane without reads, the first event behind it."""
    passed: frozenset[str] = frozenset()
    """Lanes in which the archive continues behind it without a gap."""
    doubt: str | None = None
    """Why it can never be proven: one of its reads was rejected, or lost against a row of another lane."""
    unconfirmed: int | None = None
    """Rows that it did not find and that were kept, when its last read was merged; None before that."""
    tables: tuple[str, ...] = ()
    """Names of the source's tables that it read, where several share the topic; empty: the only table."""
    reads: int = 0
    """Applied reads; several of one key in one microbatch count once."""
    decision: SnapshotChoice | None = None
    """A person's decision about it, which overrides the flow's policy."""
    marks_tables: bool = False
    """Whether its reads mark where a table begins, as Debezium's do from 2.0 on: they mark where it ends too, so nothing else shows it."""
    followed: Mapping[str, int] = field(default_factory=dict)
    """By lane with reads: offset of the first streamed event seen behind them; kept until it is complete."""

    @property
    def may_end(self) -> bool:
        """Whether changes behind its reads may still show that it ended."""
        return not (self.is_first or self.is_complete or self.marks_tables) and bool(self.last_offsets)

    @property
    def is_undecided(self) -> bool:
        """Whether rows may be missing from it, it has removed none, and nobody has decided about it."""
        return not self.is_first and self.cut is None and self.decision is None

    @property
    def life(self) -> int:
        """The newest life of the topic that holds reads of it."""
        return max((life_of_lane(int(lane)) for lane in self.last_offsets if lane != UNKNOWN_PARTITION), default=0)

    def is_proven(self, lanes: frozenset[str]) -> bool:
        """Return whether it is proven in every lane of the topic seen in its life.

        :param lanes: all lanes that the flow has seen. For a partition without reads that only an earlier life had, a lane of this life is
            awaited.
        """
        return self.is_complete and self.doubt is None and not self.lacks(lanes)

    def lacks(self, lanes: frozenset[str]) -> frozenset[str]:
        """Return the lanes of its life in which the archive is not known to continue behind it without a gap.

        :param lanes: as for :meth:`is_proven`.
        """
        return frozenset(map(self._awaited, lanes)) - self.passed

    def _awaited(self, lane: str) -> str:
        # A partition that was added to a topic made anew counts its lives from 0: where it holds reads, it is of this life.
        if lane == UNKNOWN_PARTITION or lane in self.last_offsets or self.is_raised(lane):
            return lane
        return str(lane_of(partition_of_lane(int(lane)), self.life))

    def is_raised(self, lane: str) -> bool:
        """Return whether a lane's very first offset is behind the snapshot: its partition was added later, and has no read of it.

        A partition that is new in a later life of the topic counts the same, because no offset of it came before.
        """
        return lane in self.passed and lane not in self.last_offsets and self.begins.get(lane) == 0

    def decided(self, choice: SnapshotChoice, passed: frozenset[str]) -> Snapshot:
        """Return the snapshot with a person's decision.

        :param passed: lanes that are known by now to continue behind it.
        """
        return replace(self, decision=choice, passed=self.passed | passed)
