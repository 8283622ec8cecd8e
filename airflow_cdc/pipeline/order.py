"""Order: one total order for the events of a key.

Streamed events stand at their position. A snapshot read's position cannot be trusted against theirs: PostgreSQL writes into it where
the log stood when the snapshot was taken, which under load lies above streamed events that the read does not hold (issue 4, item 6).
The archive can: a connector emits a key's events in one partition, so a read is newer than what the partition holds before it and older
than what comes after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OFFSET, OP, ORDINAL, PARTITION, POSITION
from airflow_cdc.pipeline import sql

ORDER = "__cdc_order"
"""struct<position, read int, ordinal>: compares as a key's events follow each other; ``read``: 1 where the archive's order places it."""

_PLACED = f"{OP} = 'r' AND {ORDINAL}.offset IS NOT NULL"


def order_events(events: DataFrame, keys: Sequence[str], *, reads_among_changes: bool) -> DataFrame:
    """Return the events with :data:`ORDER`.

    >>> #  offset  op  position        order
    >>> #       1   u        10   ->   (10, 0)
    >>> #       2   r        99        (10, 1)     behind the greatest position that the archive holds before it
    >>> #       3   u        20        (20, 0)

    :param reads_among_changes: whether snapshot reads and streamed events may meet; costs a sort of each key's events.
    """
    position, placed = F.col(POSITION), F.expr(_PLACED)
    if reads_among_changes:
        archived_before = (
            Window.partitionBy(*[F.col(sql.name(key)) for key in keys], F.col(PARTITION))
            .orderBy(ORDINAL)
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        streamed = F.max(F.expr(f"CASE WHEN {OP} <> 'r' THEN {POSITION} END")).over(archived_before)
        # NULL, where nothing streamed stands before the read, compares below every position.
        position = F.when(placed, streamed).otherwise(position)
    return events.withColumn(ORDER, F.struct(position.alias("position"), placed.cast("int").alias("read"), F.col(ORDINAL).alias("ordinal")))


def is_known_newer(known: str, change: str) -> Column:
    """Return whether what is known of a key (its row, its delete marker) is at or after a row change of it: the order across microbatches.

    :param known: alias of a frame with ``__cdc_position``, ``__cdc_op`` and ``__cdc_offset``.
    :param change: alias of a frame with the same.
    """
    offsets = f"{known}.{OFFSET} IS NOT NULL AND {change}.{OFFSET} IS NOT NULL"
    return F.expr(
        f"CASE WHEN 'r' IN ({known}.{OP}, {change}.{OP}) AND {offsets} THEN {known}.{OFFSET} >= {change}.{OFFSET}"
        f" ELSE {known}.{POSITION} >= {change}.{POSITION} END"
    )
