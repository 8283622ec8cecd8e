"""Find a full snapshot among a microbatch's reads: a second one removes what vanished since, if it is complete (archives, fact 13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, OFFSET, OP, PARTITION, POSITION, REJECT, SNAPSHOT
from airflow_cdc.model.lake import FlowCheckpoint
from airflow_cdc.model.position import Position
from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.pipeline.count_events import UNKNOWN_PARTITION, Surveyed, before

_NOT_OF_A_WHOLE_TABLE = "incremental"


def find_snapshot(events: DataFrame, surveyed: Surveyed, checkpoint: FlowCheckpoint) -> Snapshot | None:
    """Return the newest full snapshot that the microbatch holds reads of, with its cut when the microbatch completes it.

    Costs a job where the survey saw reads, a second one where a snapshot is complete that is not the flow's first.
    """
    if not surveyed.reads:
        return None
    reads = events.filter(f"{KIND} = 'r' AND {REJECT} IS NULL AND {SNAPSHOT} <> '{_NOT_OF_A_WHOLE_TABLE}'")
    last = F.max(F.expr(f"{SNAPSHOT} LIKE 'last%'"))
    found = (
        reads.groupBy(f"{POSITION}", PARTITION)
        .agg(last.alias("last"), F.min(OFFSET).alias("from"), F.max(OFFSET).alias("through"))
        .collect()
    )
    positions = {_position(row) for row in found}
    known = checkpoint.snapshot
    if not positions or (known and known.position > max(positions)):
        return known
    newest = max(positions)
    mine = [row for row in found if _position(row) == newest]
    before_this = known if known and known.position == newest else None
    offsets = {**(before_this.last_offsets or {} if before_this else {}), **_by_partition(mine, "through")}
    is_first = before_this.is_first if before_this else len(positions) == 1 and not known and not checkpoint.reach.partitions
    if is_first and not before_this:
        is_first = not _streamed(events, _by_partition(mine, "from"), "<").head(1)
    snapshot = Snapshot(newest, is_first, any(row["last"] for row in mine) or bool(before_this and before_this.is_complete), None, offsets)
    if before_this and before_this.is_complete:
        return replace(snapshot, cut=before_this.cut)
    if is_first or not snapshot.is_complete:
        return snapshot
    return replace(snapshot, cut=_cut(events, newest, offsets))


def _cut(events: DataFrame, position: Position, last_offsets: Mapping[str, int]) -> Position:
    """Return the snapshot's position, or that of the first event archived after it: its own may lie above it (archives, fact 4)."""
    first = _streamed(events, last_offsets, ">").agg(F.min(POSITION).alias("position")).first()
    if first is None or first["position"] is None:
        return position
    return min(position, _position(first))


def _streamed(events: DataFrame, offsets: Mapping[str, int], comparison: str) -> DataFrame:
    """Return the streamed events whose offset stands ``<`` or ``>`` their partition's."""
    beside = _beside(offsets, comparison)
    return events.filter(f"{OP} <> 'r' AND {REJECT} IS NULL AND {beside}").select(POSITION)


def _beside(offsets: Mapping[str, int], comparison: str) -> str:
    terms = [f"({PARTITION} <=> {_number(partition)} AND {OFFSET} {comparison} {int(offset)})" for partition, offset in offsets.items()]
    return f"coalesce({' OR '.join(terms)}, false)" if terms else "false"


def vanished_before(snapshot: Snapshot | None) -> str:
    """Return the SQL that is true for a change that a complete snapshot makes void; false where there is none."""
    if snapshot is None or snapshot.cut is None:
        return "false"
    return f"({before(snapshot.cut)} AND NOT {_beside(snapshot.last_offsets or {}, '>')})"


def _number(partition: str) -> str:
    return "NULL" if partition == UNKNOWN_PARTITION else str(int(partition))


def _by_partition(rows: list[Row], name: str) -> dict[str, int]:
    return {UNKNOWN_PARTITION if row[PARTITION] is None else str(row[PARTITION]): row[name] for row in rows if row[name] is not None}


def _position(row: Row) -> Position:
    parts = row[POSITION] if POSITION in row.asDict() else row["position"]
    return Position(int(parts["commit"]), int(parts["change"]), int(parts["serial"]))
