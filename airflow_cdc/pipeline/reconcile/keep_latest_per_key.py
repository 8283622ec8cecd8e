"""Reconcile: a key's events become its last one, with counts of what stood behind it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from airflow_cdc.model.columns import COMMITTED_AT, OP, OP_IF_ABSENT, ORDINAL, PARTITION, POSITION, TRANSACTION, UNAVAILABLE
from airflow_cdc.pipeline import sql

EVENTS = "__cdc_events"
REDELIVERED = "__cdc_redelivered"
CONFLICTS = "__cdc_conflicts"
HAZARD = "__cdc_hazard"
"""1 where the last event alone does not tell what lives under the key: fold its row versions."""

RECONCILED_COLUMNS = (POSITION, OP, OP_IF_ABSENT, COMMITTED_AT, PARTITION, UNAVAILABLE)
_IMAGE = "__cdc_image"
_TAKEN_OVER_IN = "__cdc_taken_over_in"


def keep_latest_per_key(events: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return one row a key: its event with the greatest position, the archive's order breaking ties.

    >>> #  key  position  op          key  position  op  events
    >>> #   1      10      c    ->     1      12      d     2
    >>> #   1      12      d           2      11      c     1
    >>> #   2      11      c

    :param events: good row events (``r c u d``) with ``columns`` and our own columns.
    :return: ``columns``, :data:`RECONCILED_COLUMNS`, and per key the number of events, of redelivered copies (same position as
        another event of the key), whether an event was archived later, though positioned earlier (1 or 0), and :data:`HAZARD`.
    """
    key_columns = [F.col(sql.name(key)) for key in keys]
    by_key = Window.partitionBy(*key_columns).orderBy(POSITION, ORDINAL)
    before = F.lag(F.struct(POSITION, ORDINAL, PARTITION)).over(by_key)
    redelivered = events.withColumn(REDELIVERED, F.coalesce((before[POSITION] == F.col(POSITION)).cast("int"), F.lit(0)))
    # A copy's own offset says nothing about order: only first deliveries are compared.
    both_first = (F.col(REDELIVERED) == 0) & (F.lag(REDELIVERED).over(by_key) == 0)
    archived_earlier = before[PARTITION].eqNullSafe(F.col(PARTITION)) & (before[ORDINAL]["offset"] > F.col(ORDINAL)["offset"])
    flagged = _flag_hazards(redelivered.withColumn(CONFLICTS, (both_first & archived_earlier).cast("int")), by_key)
    others = [name for name in columns if name not in keys]
    image = F.struct(
        *[F.col(sql.name(name)) for name in others],
        *[F.col(OP if name == OP_IF_ABSENT else name).alias(name) for name in RECONCILED_COLUMNS],
    )
    folded = flagged.groupBy(*key_columns).agg(
        F.max_by(image, F.struct(POSITION, ORDINAL)).alias(_IMAGE),
        F.count("*").alias(EVENTS),
        F.sum(REDELIVERED).alias(REDELIVERED),
        F.coalesce(F.max(CONFLICTS), F.lit(0)).alias(CONFLICTS),
        F.coalesce(F.max(HAZARD), F.lit(0)).alias(HAZARD),
    )
    # A value that the last event does not tell is that of an earlier one.
    hazard = F.greatest(F.col(HAZARD), F.col(_IMAGE)[UNAVAILABLE].isNotNull().cast("int"))
    picked = [F.col(sql.name(name)) if name in keys else F.col(_IMAGE)[name].alias(name) for name in columns]
    ours = [F.col(_IMAGE)[name].alias(name) for name in RECONCILED_COLUMNS]
    return folded.select(*picked, *ours, EVENTS, REDELIVERED, CONFLICTS, hazard.alias(HAZARD))


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
