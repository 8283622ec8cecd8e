"""Reconcile: a key's events become its last one, with counts of what stood behind it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    ABSENT,
    COMMITTED_AT,
    MOVED,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    SNAPSHOT,
    TOLD_AT,
    TRANSACTION,
    UNAVAILABLE,
)
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.decode.decode_events import MOVED_TYPE, POSITION_TYPE, TOLD_AT_TYPE
from airflow_cdc.pipeline.order import ORDER

EVENTS = "__cdc_events"
REDELIVERED = "__cdc_redelivered"
CONFLICTS = "__cdc_conflicts"
REACH = "__cdc_reach"
"""struct<first position, last position, first_offset, last_offset, began position, deletes boolean, writes boolean, depends boolean> of a
key's events; first and last only of those that their position places; ``began``: where the key's last transaction did, NULL where nothing
depends; ``depends``: whether what is left under the key depends on the target holding it."""
READS = "__cdc_reads"
"""struct<newest struct<position, last boolean, offset>, oldest position> of the key's reads by full snapshots; NULLs where it has none."""
LINE_HASH = "__cdc_line_hash"
"""Of an event: the hash of its line's text."""
LINES = "__cdc_lines"
"""array<bigint>: the :data:`LINE_HASH` of every event of a key that may have a :data:`HAZARD`; empty for all others."""
HAZARD = "__cdc_hazard"
"""1 where the last event alone does not tell what lives under the key: fold its row versions."""

RECONCILED_COLUMNS = (POSITION, OP, OP_IF_ABSENT, COMMITTED_AT, PARTITION, OFFSET, UNAVAILABLE, ABSENT, TOLD_AT, MOVED)
_IMAGE = "__cdc_image"
_TAKEN_OVER_IN = "__cdc_taken_over_in"


def keep_latest_per_key(events: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return one row a key: its last event.

    >>> #  key  position  op          key  position  op  events
    >>> #   1      10      c    ->     1      12      d     2
    >>> #   1      12      d           2      11      c     1
    >>> #   2      11      c

    :param events: good row events (``r c u d``) with ``columns``, our own columns and :data:`~airflow_cdc.pipeline.order.ORDER`.
    :return: ``columns``, :data:`RECONCILED_COLUMNS`, and per key the number of events, of redelivered copies (same position as
        another event of the key), whether an event was archived later, though positioned earlier (1 or 0), :data:`REACH`,
        :data:`READS`, :data:`HAZARD`, and where the events say their :data:`LINE_HASH`, :data:`LINES`.
    """
    key_columns = [F.col(sql.name(key)) for key in keys]
    by_key = Window.partitionBy(*key_columns).orderBy(ORDER)
    flagged = _flag_hazards(flag_copies(events, by_key), by_key)
    lines = []
    if LINE_HASH in events.columns:
        may_be_hazard = F.max(F.greatest(HAZARD, F.col(UNAVAILABLE).isNotNull().cast("int"))).over(Window.partitionBy(*key_columns)) > 0
        flagged = flagged.withColumn(LINES, F.when(may_be_hazard, F.col(LINE_HASH)))
        lines = [F.collect_list(LINES).alias(LINES)]
    others = [name for name in columns if name not in keys]
    image = F.struct(
        *[F.col(sql.name(name)) for name in others],
        *[_of_single_event(name).alias(name) for name in RECONCILED_COLUMNS],
    )
    placed = F.when(F.col(ORDER)["read"] == 0, F.col(POSITION))
    is_last = F.col(SNAPSHOT).startswith("last").alias("last")
    of_whole_table = (F.col(OP) == "r") & (F.col(SNAPSHOT) != "incremental")
    read = F.when(of_whole_table, F.struct(F.col(POSITION).alias("position"), is_last, F.col(OFFSET).alias("offset")))
    folded = flagged.groupBy(*key_columns).agg(
        F.max_by(image, F.col(ORDER)).alias(_IMAGE),
        F.count("*").alias(EVENTS),
        F.sum(REDELIVERED).alias(REDELIVERED),
        F.coalesce(F.max(CONFLICTS), F.lit(0)).alias(CONFLICTS),
        F.coalesce(F.max(HAZARD), F.lit(0)).alias(HAZARD),
        F.struct(
            F.min(placed).alias("first"),
            F.max(placed).alias("last"),
            F.min(OFFSET).alias("first_offset"),
            F.max(OFFSET).alias("last_offset"),
            F.lit(None).cast(POSITION_TYPE).alias("began"),
            F.max(F.col(OP) == "d").alias("deletes"),
            F.max(F.col(OP).isin("c", "u")).alias("writes"),
            F.lit(False).alias("depends"),  # noqa: FBT003
        ).alias(REACH),
        F.struct(F.max(read).alias("newest"), F.min(read["position"]).alias("oldest")).alias(READS),
        *lines,
    )
    # A value that the last event does not tell is that of an earlier one, or of the row that it moved here.
    elsewhere = F.col(_IMAGE)[UNAVAILABLE].isNotNull() & ((F.col(EVENTS) > F.col(REDELIVERED) + 1) | (F.col(_IMAGE)[OP] == "c"))
    hazard = F.greatest(F.col(HAZARD), elsewhere.cast("int"))
    picked = [F.col(sql.name(name)) if name in keys else F.col(_IMAGE)[name].alias(name) for name in columns]
    ours = [F.col(_IMAGE)[name].alias(name) for name in RECONCILED_COLUMNS]
    return folded.select(*picked, *ours, EVENTS, REDELIVERED, CONFLICTS, REACH, READS, hazard.alias(HAZARD), *([LINES] if lines else []))


def flag_copies(events: DataFrame, by_key: WindowSpec) -> DataFrame:
    """Return the events with two flags, 1 or 0: redelivered copies (same position as the event before), and those archived before an
    event that they follow, though they are no copies.

    :param by_key: the events of each key in their order.
    """
    before = F.lag(F.struct(POSITION, ORDER, PARTITION)).over(by_key)
    redelivered = events.withColumn(REDELIVERED, F.coalesce((before[POSITION] == F.col(POSITION)).cast("int"), F.lit(0)))
    # A copy's own offset says nothing about order: only first deliveries are compared.
    both_first = (F.col(REDELIVERED) == 0) & (F.lag(REDELIVERED).over(by_key) == 0)
    archived_earlier = before[PARTITION].eqNullSafe(F.col(PARTITION)) & (
        before[ORDER]["ordinal"]["offset"] > F.col(ORDER)["ordinal"]["offset"]
    )
    return redelivered.withColumn(CONFLICTS, (both_first & archived_earlier).cast("int"))


def _of_single_event(name: str) -> Column:
    if name in (TOLD_AT, MOVED):
        return F.lit(None).cast(TOLD_AT_TYPE if name == TOLD_AT else MOVED_TYPE)
    return F.col(OP if name == OP_IF_ABSENT else name)


def _flag_hazards(events: DataFrame, by_key: WindowSpec) -> DataFrame:
    """Flag a delete that may be about another row version than the last one.

    So it is behind a create of the same transaction that did not follow a delete: the key was taken over, perhaps, from a row
    that lived (archives, fact 2).
    """
    takes_over = (F.col(OP) == "c") & (F.col(REDELIVERED) == 0) & ~F.lag(OP).over(by_key).eqNullSafe(F.lit("d"))
    marked = events.withColumn(_TAKEN_OVER_IN, F.when(takes_over, F.col(TRANSACTION)))
    earlier = by_key.rowsBetween(Window.unboundedPreceding, -1)
    taken_over_in = F.last(_TAKEN_OVER_IN, ignorenulls=True).over(earlier)
    removes_another = (F.col(OP) == "d") & (taken_over_in == F.col(TRANSACTION))
    return marked.withColumn(HAZARD, removes_another.cast("int"))
