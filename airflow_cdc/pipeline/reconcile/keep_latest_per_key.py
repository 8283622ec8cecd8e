"""Reconcile: a key's events become its last one, with counts of what stood behind it."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import COMMITTED_AT, OP, ORDINAL, PARTITION, POSITION
from airflow_cdc.pipeline import sql

EVENTS = "__cdc_events"
REDELIVERED = "__cdc_redelivered"
CONFLICTS = "__cdc_conflicts"

RECONCILED_COLUMNS = (POSITION, OP, COMMITTED_AT, PARTITION)
_IMAGE = "__cdc_image"


def keep_latest_per_key(events: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return one row a key: its event with the greatest position, the archive's order breaking ties.

    >>> #  key  position  op          key  position  op  events
    >>> #   1      10      c    ->     1      12      d     2
    >>> #   1      12      d           2      11      c     1
    >>> #   2      11      c

    :param events: good row events (``r c u d``) with ``columns`` and our own columns.
    :return: ``columns``, :data:`RECONCILED_COLUMNS`, and per key the number of events, of redelivered copies (same position as
        another event of the key) and whether an event was archived later, though positioned earlier (1 or 0).
    """
    key_columns = [F.col(sql.name(key)) for key in keys]
    by_key = Window.partitionBy(*key_columns).orderBy(POSITION, ORDINAL)
    before = F.lag(F.struct(POSITION, ORDINAL, PARTITION)).over(by_key)
    redelivered = events.withColumn(REDELIVERED, F.coalesce((before[POSITION] == F.col(POSITION)).cast("int"), F.lit(0)))
    # A copy's own offset says nothing about order: only first deliveries are compared.
    both_first = (F.col(REDELIVERED) == 0) & (F.lag(REDELIVERED).over(by_key) == 0)
    archived_earlier = before[PARTITION].eqNullSafe(F.col(PARTITION)) & (before[ORDINAL]["offset"] > F.col(ORDINAL)["offset"])
    flagged = redelivered.withColumn(CONFLICTS, (both_first & archived_earlier).cast("int"))
    others = [name for name in columns if name not in keys]
    image = F.struct(*[F.col(sql.name(name)) for name in (*others, *RECONCILED_COLUMNS)])
    folded = flagged.groupBy(*key_columns).agg(
        F.max_by(image, F.struct(POSITION, ORDINAL)).alias(_IMAGE),
        F.count("*").alias(EVENTS),
        F.sum(REDELIVERED).alias(REDELIVERED),
        F.coalesce(F.max(CONFLICTS), F.lit(0)).alias(CONFLICTS),
    )
    picked = [F.col(sql.name(name)) if name in keys else F.col(_IMAGE)[name].alias(name) for name in columns]
    ours = [F.col(_IMAGE)[name].alias(name) for name in RECONCILED_COLUMNS]
    return folded.select(*picked, *ours, EVENTS, REDELIVERED, CONFLICTS)
