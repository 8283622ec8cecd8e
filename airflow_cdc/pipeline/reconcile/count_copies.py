"""Count copies: how often a table without a key holds each row, from all known events of equal rows.

An event adds its after image's row and takes its before image's: a running sum in the order of the log, whatever the order of arrival.
Where the sum falls below zero, an event took an unknown row. That row is missing, and no later row compensates for it. Pure.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import ADDED, CONTENT, IDENTITY, OFFSET, OP, PARTITION, POSITION, SENT_AT, TAKEN
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.reconcile.find_base import Base, Bases

COPIES = "__cdc_copies"
"""bigint: number of equal rows."""
MISSING = "__cdc_missing"
"""bigint: number of rows that events took although no known event added them."""
_SIGN = "__cdc_sign"
_VOID = "__cdc_void"
_DELIVERY = "__cdc_delivery"
_EVENT = "__cdc_event"
_LEVEL = "__cdc_level"
_RESTART_MILLISECONDS = 2_000
"""A crashed connector takes longer to send again; the rows of one log record are sent in less."""
_SENT = "__cdc_sent"
_FOUND = "__cdc_found"
# Deliveries are separated by time, and the fullest counts. Identical copies count once.
_ROWS_AT_ONE_POSITION = f"""aggregate(
    array_sort({_SENT}),
    CAST(named_struct('at', NULL, 'rows', 0, 'most', 0) AS STRUCT<at: BIGINT, rows: INT, most: INT>),
    (seen, sent) -> transform(
        array(if(sent.{SENT_AT} - seen.at < {_RESTART_MILLISECONDS}, seen.rows + 1, 1)),
        rows -> named_struct('at', sent.{SENT_AT}, 'rows', rows, 'most', greatest(rows, seen.most)))[0],
    seen -> seen.most)"""


def contents_of(events: DataFrame) -> DataFrame:
    """Return the distinct contents that events add or take."""
    return events.select(F.explode(F.array(ADDED, TAKEN)).alias(CONTENT)).filter(f"{CONTENT} IS NOT NULL").distinct()


def count_copies(log: DataFrame, bases: Bases, touched: DataFrame | None) -> DataFrame:
    """Return :data:`COPIES` and :data:`MISSING` by content; a content whose events are all void is left out.

    >>> #  op  before  after        content  copies
    >>> #   r            A     ->      A        1
    >>> #   c            A             B        1
    >>> #   u     A      B

    A snapshot that may not remove rows still adds those that it read: their events may be lost. So of each content there are as many
    copies as counted from the base or from such a snapshot, whichever gives more.

    :param log: all known events.
    :param touched: the contents to count; None: all.
    """
    counted = _count(log, bases.base, touched)
    if not bases.later:
        return counted
    shown = [_count(log, later, touched).withColumn(MISSING, F.lit(0).cast("bigint")) for later in bases.later]
    every = reduce(DataFrame.unionByName, [counted, *shown])
    return every.groupBy(CONTENT).agg(F.max(COPIES).alias(COPIES), F.max(MISSING).alias(MISSING))


def _count(log: DataFrame, base: Base, touched: DataFrame | None) -> DataFrame:
    halves = F.expr(f"explode(array(named_struct('content', {ADDED}, 'sign', 1), named_struct('content', {TAKEN}, 'sign', -1)))")
    contents = log.filter(f"{OP} <> 't'").select(POSITION, OP, IDENTITY, PARTITION, OFFSET, SENT_AT, halves.alias("half"))
    contents = contents.select("*", F.col("half.content").alias(CONTENT), F.col("half.sign").alias(_SIGN)).filter(f"{CONTENT} IS NOT NULL")
    contents = contents if touched is None else contents.join(F.broadcast(touched), CONTENT, "left_semi")
    # A copy of an event from before a snapshot may be archived behind the snapshot.
    event = F.when(F.col(SENT_AT).isNull(), F.col(IDENTITY)).alias(_EVENT)
    streamed = (
        contents.filter(f"{OP} <> 'r'")
        .groupBy(CONTENT, _SIGN, POSITION, event)
        .agg(F.max(F.expr(base.void)).alias(_VOID), F.collect_set(F.struct(SENT_AT, IDENTITY)).alias(_SENT))
    )
    rows = F.expr(f"CAST(if({_EVENT} IS NULL, {_ROWS_AT_ONE_POSITION}, 1) * {_SIGN} AS BIGINT)")
    counted = streamed.filter(f"NOT {_VOID}").select(CONTENT, POSITION, rows.alias(COPIES))
    if base.snapshot and base.reads_count:
        counted = counted.unionByName(_read_copies(contents, base))
    # An update with equal images takes the row before it adds it.
    in_order = Window.partitionBy(CONTENT).orderBy(F.col(POSITION).asc_nulls_first(), F.col(COPIES))
    level = F.sum(COPIES).over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    summed = counted.withColumn(_LEVEL, level).groupBy(CONTENT).agg(F.sum(COPIES).alias(COPIES), F.min(_LEVEL).alias(_LEVEL))
    missing = F.greatest(-F.col(_LEVEL), F.lit(0))
    return summed.select(CONTENT, (F.col(COPIES) + missing).alias(COPIES), missing.alias(MISSING))


def unconfirmed_copies(log: DataFrame, held: DataFrame, snapshot: Base) -> DataFrame:
    """Return one number: the rows that would go if they were counted from a snapshot behind the base; NULL if there are no rows.

    :param log: all known events.
    :param held: the copies of all contents (:func:`count_copies`), which are at least those counted from the snapshot.
    """
    found = _count(log, snapshot, None).select(CONTENT, F.col(COPIES).alias(_FOUND))
    return held.join(found, CONTENT, "left").agg(F.sum(F.col(COPIES) - F.coalesce(_FOUND, F.lit(0))))


def _read_copies(contents: DataFrame, base: Base) -> DataFrame:
    """Return the copies that the snapshot read. If it was sent more than once, the fullest delivery counts."""
    reads = contents.filter(f"{OP} = 'r' AND {POSITION} = {position_literal(base.snapshot)}") if base.snapshot else contents.filter("false")
    once = reads.select(CONTENT, PARTITION, OFFSET, F.expr(base.delivery).alias(_DELIVERY)).distinct()
    # Reads sort before everything streamed.
    none = F.lit(None).cast(contents.schema[POSITION].dataType).alias(POSITION)
    by_delivery = once.groupBy(CONTENT, PARTITION, _DELIVERY).agg(F.count("*").alias(COPIES))
    return by_delivery.groupBy(CONTENT, PARTITION).agg(F.max(COPIES).alias(COPIES)).select(CONTENT, none, COPIES)
