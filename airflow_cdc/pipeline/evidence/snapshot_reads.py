"""The reads of full snapshots in a microbatch, and what it holds beside them: in the terms of the search, and as Spark finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OFFSET, OP, PARTITION, POSITION, REJECT, SNAPSHOT, TRANSACTION
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.decode.place_of_row import partition_of, position_of
from airflow_cdc.pipeline.decode.stands_before import beside
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import READS, read_columns


@dataclass(frozen=True)
class LaneReads:
    """The reads of one snapshot in one lane."""

    begin: int | None
    end: int | None
    """Lowest and highest offset of the reads."""
    count: int
    ends_marked: bool
    """Whether the read with the highest offset is marked as its table's last."""
    has_last: bool
    is_initial: bool
    has_first: bool = False
    """Whether a read is marked as its table's first."""


@dataclass(frozen=True)
class LaneBeside:
    """What one lane of a microbatch holds beside the reads of a snapshot."""

    highest: Position | None = None
    """Highest streamed position."""
    streamed_before: Position | None = None
    """Highest streamed position archived before the reads."""
    behind: int | None = None
    """Offset of its first streamed event after the snapshot."""
    has_unplaced_behind: bool = False
    """Whether an event without an offset of its own comes after the snapshot."""
    names_gtids: bool = False
    """Whether streamed events name their transaction."""


class SnapshotReads(Protocol):
    """The events of a microbatch, as the search for snapshots needs them."""

    def by_lane(self) -> dict[Position, dict[str, LaneReads]]:
        """Return the reads of full snapshots by position and lane."""

    def beside(
        self, positions: Sequence[Position], found: Mapping[Position, Mapping[str, LaneReads]]
    ) -> dict[Position, dict[str, LaneBeside]]:
        """Return what the microbatch holds beside the reads of each snapshot, by lane."""


class SnapshotDoubts(Protocol):
    """What may have lost a read of a snapshot."""

    def of(self, position: Position, *, stays: str, has_other_lanes: bool) -> str | None:
        """Return why a snapshot proves nothing; see :class:`airflow_cdc.pipeline.evidence.doubt_snapshot.Doubts`."""


@dataclass(frozen=True)
class ReadsInSpark:
    """:class:`SnapshotReads` of frames; each answer is a job over them."""

    events: DataFrame
    """All events of the microbatch, including rejects."""
    latest: DataFrame
    """Row changes with :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.READS`."""

    def by_lane(self) -> dict[Position, dict[str, LaneReads]]:
        """Return the reads of full snapshots by position and lane."""
        rows = self.latest.filter(f"{READS}.newest IS NOT NULL").select(f"{READS}.newest.*", f"{READS}.oldest")
        found = _by_lane(rows, F.min("oldest").alias("oldest"))
        if len({row["position"] for row in found}) > 1 or any(tuple(row["oldest"]) != (row["position"], row[PARTITION]) for row in found):
            # A key's row change carries only the newest of its reads.
            whole = self.events.filter(f"{OP} = 'r' AND {REJECT} IS NULL AND {SNAPSHOT} <> 'incremental'")
            found = _by_lane(whole.select(*read_columns()))
        by_position: dict[Position, dict[str, LaneReads]] = {}
        for row in found:
            reads = LaneReads(
                row["begin"],
                row["end"],
                int(row["reads"]),
                ends_marked=bool(row["ends_marked"]),
                has_last=bool(row["has_last"]),
                is_initial=bool(row["is_initial"]),
                has_first=bool(row["has_first"]),
            )
            by_position.setdefault(position_of(row["position"]), {})[partition_of(row)] = reads
        return by_position

    def beside(
        self, positions: Sequence[Position], found: Mapping[Position, Mapping[str, LaneReads]]
    ) -> dict[Position, dict[str, LaneBeside]]:
        """Return what the microbatch holds beside the reads of each snapshot, by lane; one job over the events."""
        streamed = self.events.filter(f"{OP} <> 'r' AND {REJECT} IS NULL")
        sums = [F.max(F.col(TRANSACTION).isNotNull()).alias("names_gtids"), F.max(POSITION).alias("highest")]
        for number, position in enumerate(positions):
            begins = {lane: reads.begin for lane, reads in found.get(position, {}).items() if reads.begin is not None}
            is_before = beside(begins, "<")
            behind = f"{POSITION}.commit > {position.commit}BD"
            sums += [
                F.max(F.expr(f"CASE WHEN {is_before} THEN {POSITION} END")).alias(f"before_{number}"),
                F.min(F.expr(f"CASE WHEN {behind} THEN {OFFSET} END")).alias(f"behind_{number}"),
                F.max(F.expr(f"{behind} AND {OFFSET} IS NULL")).alias(f"unplaced_{number}"),
            ]
        rows = streamed.groupBy(PARTITION).agg(*sums).collect()
        return {position: {partition_of(row): _beside_of(row, number) for row in rows} for number, position in enumerate(positions)}


@dataclass(frozen=True)
class ReadsFound:
    """:class:`SnapshotReads` that were found with the row changes; what is beside a snapshot of an earlier microbatch is left to Spark."""

    found: SnapshotReads
    in_spark: SnapshotReads

    def by_lane(self) -> dict[Position, dict[str, LaneReads]]:
        """Return the reads of full snapshots by position and lane."""
        return self.found.by_lane()

    def beside(
        self, positions: Sequence[Position], found: Mapping[Position, Mapping[str, LaneReads]]
    ) -> dict[Position, dict[str, LaneBeside]]:
        """Return what the microbatch holds beside the reads of each snapshot, by lane."""
        of_here = all(position in found for position in positions)
        return (self.found if of_here else self.in_spark).beside(positions, found)


def _by_lane(reads: DataFrame, *more: Column) -> list[Row]:
    sums = [
        F.min("offset").alias("begin"),
        F.max("offset").alias("end"),
        F.count(F.lit(1)).alias("reads"),
        F.max_by("last", F.struct(F.coalesce("offset", F.lit(0)), "last")).alias("ends_marked"),
        F.max("last").alias("has_last"),
        F.max("initial").alias("is_initial"),
        F.max("first").alias("has_first"),
    ]
    return reads.groupBy("position", PARTITION).agg(*sums, *more).collect()


def _beside_of(row: Row, number: int) -> LaneBeside:
    highest, before = row["highest"], row[f"before_{number}"]
    return LaneBeside(
        highest=None if highest is None else position_of(highest),
        streamed_before=None if before is None else position_of(before),
        behind=row[f"behind_{number}"],
        has_unplaced_behind=bool(row[f"unplaced_{number}"]),
        names_gtids=bool(row["names_gtids"]),
    )
