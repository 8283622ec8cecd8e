"""Drop stale row changes: late events never regress a row, nor bring one back.

A late event may still carry values that the row's last event left out; these are filled from it. Conversely, a value that a microbatch's
last event leaves out may come from an older event of the microbatch, while the target has a value from between the two.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import BEGAN, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.operation import FILL, KEEP
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.reconcile.rule import makes_stale
from airflow_cdc.pipeline.reconcile.value_positions import may_fill, value_position
from airflow_cdc.pipeline.spark import sql

_STALE = "__cdc_stale"
_FILLS = "__cdc_fills"


def drop_stale(
    row_changes: DataFrame, rows: DataFrame, markers: DataFrame | None, keys: Sequence[str], *, deleted: DataFrame | None = None
) -> tuple[DataFrame, DataFrame]:
    """Return the row changes that are not stale or still fill in values, and the keys of the stale ones.

    :param rows: the target's rows: the keys, ``__cdc_position``, ``__cdc_op``, ``__cdc_offset`` and ``__cdc_told_at``.
    :param markers: the delete markers: the keys, position, operation and offset; None if there are none.
    :param deleted: the flagged deletes, like ``rows``; None if the table keeps none.
    """
    ours = [F.col(sql.name(key)) for key in keys]
    known = known_of(rows, markers, deleted, keys)
    changed = row_changes.select(*ours, POSITION, OP, PARTITION, OFFSET, VALUE_POSITIONS, UNAVAILABLE)
    may_carry = f"s.{OP} NOT IN ('d', '{KEEP}') OR (s.{OP} = 'd' AND k.{OP} = 'd')"
    fills = F.expr(f"coalesce(({may_carry}) AND exists(k.{VALUE_POSITIONS}, entry -> {may_fill('s', 'entry')}), false)")
    beaten = (
        changed.alias("s")
        .join(known.alias("k"), F.expr(sql.same_key("s", "k", keys)))
        .filter(makes_stale("k", "s"))
        .groupBy(*[F.col(f"s.{sql.name(key)}") for key in keys])
        # After a delete there is no row to fill, unless the table keeps it.
        .agg(F.min(fills).alias(_FILLS))
        .withColumn(_STALE, F.lit(True))  # noqa: FBT003
    )
    judged = row_changes.join(beaten, list(keys), "left")
    stale = beaten.filter(~F.col(_FILLS)).select(*ours)
    fresh = judged.filter(F.col(_STALE).isNull() | F.col(_FILLS))
    late = F.col(_STALE).isNotNull()
    return fresh.withColumns(
        {OP: F.when(late, FILL).otherwise(F.col(OP)), OP_IF_ABSENT: F.when(late, KEEP).otherwise(F.col(OP_IF_ABSENT))}
    ).drop(_STALE, _FILLS), stale


def known_of(rows: DataFrame, markers: DataFrame | None, deleted: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """Return what is known of the keys: position, operation, offset, older values, and for markers the begin of their transaction.

    A key may have several rows.
    """
    ours = [F.col(sql.name(key)) for key in keys]
    known = rows.select(*ours, POSITION, OP, PARTITION, OFFSET, VALUE_POSITIONS, F.lit(None).cast(POSITION_TYPE).alias(BEGAN))
    if deleted is not None and markers is not None:
        # A row that came and went in one transaction is flagged, and says nothing about the row that held the key before: its marker does.
        passed = F.expr(f"{sql.same_key('m', 'd', keys)} AND m.{POSITION} = d.{POSITION} AND m.{OP} = '{KEEP}'")
        deleted = deleted.alias("d").join(markers.alias("m"), passed, "left_anti")
        # Any other flagged row has the marker's facts, and also which of its values an older event may still fill.
        is_in_row = F.expr(f"{sql.same_key('m', 'd', keys)} AND m.{POSITION} <= d.{POSITION} AND m.{OP} = 'd'")
        markers = markers.alias("m").join(deleted.alias("d"), is_in_row, "left_anti")
    if deleted is not None:
        known = known.unionByName(deleted.select(*ours, POSITION, OP, PARTITION, OFFSET, VALUE_POSITIONS), allowMissingColumns=True)
    if markers is None:
        return known
    return known.unionByName(markers.select(*ours, POSITION, OP, PARTITION, OFFSET, BEGAN), allowMissingColumns=True)


def leave_to_rows(row_changes: DataFrame, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the row changes without the values for which the target's row has a later value.

    :param rows: the target's rows: the keys, ``__cdc_position`` and ``__cdc_told_at``.
    """
    nothing_left_out = F.lit(None).cast("array<string>").alias(UNAVAILABLE)
    known = rows.select(*[F.col(sql.name(key)) for key in keys], POSITION, VALUE_POSITIONS, nothing_left_out)
    joined = row_changes.alias("s").join(known.alias("k"), F.expr(sql.same_key("s", "k", keys)), "left")
    later = f"entry.known AND coalesce({value_position('k', 'entry.column')} > entry.position, false)"
    kept = {
        VALUE_POSITIONS: F.expr(f"nullif(filter(s.{VALUE_POSITIONS}, entry -> NOT ({later})), CAST(array() AS {VALUE_POSITIONS_TYPE}))"),
        UNAVAILABLE: F.expr(
            f"nullif(array_union(coalesce(s.{UNAVAILABLE}, array()),"
            f" coalesce(transform(filter(s.{VALUE_POSITIONS}, entry -> {later}), entry -> entry.column), array())), array())"
        ),
    }
    return joined.select(*[kept.get(name, F.col(f"s.{sql.name(name)}")).alias(name) for name in row_changes.columns])
