"""Change log: the good events of a microbatch as rows, each once; key and position identify redelivered copies."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, OFFSET, OP, ORDINAL, POSITION, REJECT, VALUE_POSITIONS
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import CONFLICTS, EVENTS, REACH, REDELIVERED, flag_copies
from airflow_cdc.pipeline.reconcile.order_events import IS_COPY, ORDER, comparable, order_events, with_copies
from airflow_cdc.pipeline.spark import sql

_TRUNCATE = Operation.TRUNCATE.value


def good_events(events: DataFrame, *, truncates: bool) -> DataFrame:
    """Return the good row events, and on request truncates (operation ``t``, NULL key columns).

    :param events: from :meth:`~airflow_cdc.pipeline.decode.decode_events.Decoder.events`.
    """
    kinds = f"{OP} IS NOT NULL" + (f" OR {KIND} = '{_TRUNCATE}'" if truncates else "")
    return events.filter(f"{REJECT} IS NULL AND ({kinds})").withColumn(OP, F.coalesce(OP, KIND))


def flag_events(events: DataFrame, keys: Sequence[str], *, columns: Sequence[str], reads_among_changes: bool) -> DataFrame:
    """Return good events with the columns that :func:`~airflow_cdc.pipeline.microbatch.count_events.count_staged` counts in row changes.

    :param columns: the source's columns: two events of a key and position are copies if they have equal values.
    :return: with :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER`; ``__cdc_redelivered``: 1 for a copy of another event of the
        microbatch; ``__cdc_conflicts``: 1 for the first event of its key that was archived before the event that it follows.
    """
    # A microbatch with only truncates has no key columns.
    key_columns = [F.col(sql.name(key)) for key in keys if key in events.columns]
    by_key = Window.partitionBy(*key_columns).orderBy(ORDER)
    flagged = flag_copies(order_events(events, keys, reads_among_changes=reads_among_changes), by_key)
    # A redelivered read sorts after what was streamed in between: not adjacent to the first, yet a copy.
    own_keys, content = ([name for name in names if name in events.columns] for names in (keys, columns))
    flagged = with_copies(flagged, own_keys, [OP, *content], by=ORDINAL)
    earlier = F.coalesce(F.max(CONFLICTS).over(by_key.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    place = F.expr(f"CASE WHEN {OP} <> 'r' OR {ORDINAL}.offset IS NULL THEN {POSITION} END")
    reach = F.struct(
        place.alias("first"),
        place.alias("last"),
        F.col(OFFSET).alias("first_offset"),
        F.col(OFFSET).alias("last_offset"),
        (F.col(OP) == "d").alias("deletes"),
        F.col(OP).isin("c", "u").alias("writes"),
        F.lit(False).alias("depends"),  # noqa: FBT003
        F.lit(False).alias("expects"),  # noqa: FBT003
    )
    once = flagged.withColumn(CONFLICTS, F.when(earlier == 0, F.col(CONFLICTS)).otherwise(0))
    return once.withColumns(
        {REDELIVERED: F.col(IS_COPY).cast("int"), EVENTS: F.lit(1), REACH: reach, VALUE_POSITIONS: F.lit(None).cast(VALUE_POSITIONS_TYPE)}
    ).drop(IS_COPY)


def without_known(
    events: DataFrame, known: DataFrame, *, keys: Sequence[str], columns: Sequence[str], table: str | None = None
) -> DataFrame:
    """Return the events that a change log does not hold yet, by key, position and content.

    :param known: the log's rows: the keys and position. If they have an ordinal, a read that was archived before its known copy is new:
        the archive's order places it elsewhere.
    :param table: the column that shows a truncate's table: one statement truncates several at one position.
    """
    held = {name.lower() for name in known.columns}
    content = [name for name in columns if name in events.columns and name.lower() in held and name not in keys]
    # A truncate has no key; NULL keys equal each other.
    ours = [key for key in keys if key in events.columns and key in known.columns]
    same = [f"s.{POSITION} = k.{POSITION} AND s.{OP} = k.{OP}", *(f"s.{sql.name(key)} <=> k.{sql.name(key)}" for key in ours)]
    same += [f"{comparable(events, name, 's')} <=> {comparable(known, name, 'k')}" for name in content]
    if table in events.columns and table in known.columns:
        same.append(f"(s.{OP} <> '{_TRUNCATE}' OR s.{sql.name(str(table))} <=> k.{sql.name(str(table))})")
    if ORDINAL in known.columns:
        same.append(f"(s.{OP} <> 'r' OR k.{ORDINAL} <= s.{ORDINAL})")
    return events.alias("s").join(known.alias("k"), F.expr(" AND ".join(same)), "left_anti")
