"""Find a full snapshot among a microbatch's reads: a second one removes what vanished since, if it is complete (archives, fact 13)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OFFSET, OP, PARTITION, POSITION, REJECT
from airflow_cdc.model.lake import FlowCheckpoint
from airflow_cdc.model.position import Position
from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.pipeline.count_events import UNKNOWN_PARTITION, Surveyed, before, position_of
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import READS


def find_snapshot(latest: DataFrame, events: DataFrame, surveyed: Surveyed, checkpoint: FlowCheckpoint) -> Snapshot | None:
    """Return the newest full snapshot that the microbatch holds reads of, with its cut when the microbatch completes it.

    Costs a job over the row changes where the survey saw reads, and one over the events where they may stand beside streamed ones
    in another way than after a first snapshot.

    :param latest: row changes with :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.READS`.
    """
    known = checkpoint.snapshot
    found = _reads(latest) if surveyed.reads else []
    if not found or (known and known.position > max(position_of(row["position"]) for row in found)):
        return known
    newest = max(position_of(row["position"]) for row in found)
    mine = [row for row in found if position_of(row["position"]) == newest]
    before_this = known if known and known.position == newest else None
    offsets = {**(before_this.last_offsets or {} if before_this else {}), **_by_partition(mine, "through")}
    if before_this:
        is_first = before_this.is_first
    else:
        alone = all(position_of(row["oldest"]) == newest for row in found)
        is_first = alone and not known and not checkpoint.reach.partitions
        if is_first and surveyed.reads < surveyed.rows:
            is_first = not _streamed(events, _by_partition(mine, "from"), "<").head(1)
    snapshot = Snapshot(newest, is_first, any(row["last"] for row in mine) or bool(before_this and before_this.is_complete), None, offsets)
    if before_this and before_this.is_complete:
        return replace(snapshot, cut=before_this.cut)
    if is_first or not snapshot.is_complete:
        return snapshot
    return replace(snapshot, cut=_cut(events, newest, offsets))


def _reads(latest: DataFrame) -> list[Row]:
    reads = latest.filter(f"{READS}.newest IS NOT NULL").select(PARTITION, f"{READS}.newest.*", f"{READS}.oldest")
    return (
        reads.groupBy("position", PARTITION)
        .agg(F.max("last").alias("last"), F.min("offset").alias("from"), F.max("offset").alias("through"), F.min("oldest").alias("oldest"))
        .collect()
    )


def _cut(events: DataFrame, position: Position, last_offsets: Mapping[str, int]) -> Position:
    """Return the snapshot's position, or that of the first event archived after it: its own may lie above it (archives, fact 4)."""
    first = _streamed(events, last_offsets, ">").agg(F.min(POSITION).alias("position")).first()
    if first is None or first["position"] is None:
        return position
    return min(position, position_of(first["position"]))


def _streamed(events: DataFrame, offsets: Mapping[str, int], comparison: str) -> DataFrame:
    """Return the streamed events whose offset stands ``<`` or ``>`` their partition's."""
    stands = beside(offsets, comparison)
    return events.filter(f"{OP} <> 'r' AND {REJECT} IS NULL AND {stands}").select(POSITION)


def beside(offsets: Mapping[str, int], comparison: str) -> str:
    """Return the SQL that is true for an event whose offset stands ``<`` or ``>`` its partition's; false in a partition that has none."""
    terms = [
        f"({PARTITION} <=> {partition_number(partition)} AND {OFFSET} {comparison} {int(offset)})" for partition, offset in offsets.items()
    ]
    return f"coalesce({' OR '.join(terms)}, false)" if terms else "false"


def vanished_before(snapshot: Snapshot | None) -> str:
    """Return the SQL that is true for a change that a complete snapshot makes void; false where there is none."""
    if snapshot is None or snapshot.cut is None:
        return "false"
    return f"({before(snapshot.cut)} AND NOT {beside(snapshot.last_offsets or {}, '>')})"


def partition_number(partition: str) -> str:
    """Return a Kafka partition as SQL."""
    return "NULL" if partition == UNKNOWN_PARTITION else str(int(partition))


def _by_partition(rows: list[Row], name: str) -> dict[str, int]:
    return {UNKNOWN_PARTITION if row[PARTITION] is None else str(row[PARTITION]): row[name] for row in rows if row[name] is not None}
