"""Change log: the good events of a microbatch as rows, each once; key and position identify redelivered copies."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, OFFSET, OP, ORDINAL, PARTITION, POSITION, REJECT, VALUE_POSITIONS
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import CONFLICTS, EVENTS, HAZARD, REACH, REACH_MEMBERS, REDELIVERED, flag_copies
from airflow_cdc.pipeline.reconcile.order_events import IS_COPY, ORDER, comparable, order_events, shared_place, with_copies
from airflow_cdc.pipeline.spark import sql

_IS_MIXED = "__cdc_is_mixed"
_TRUNCATE = Operation.TRUNCATE.value


def good_events(events: DataFrame, *, truncates: bool) -> DataFrame:
    """Return the good row events, and on request truncates (operation ``t``, NULL key columns).

    :param events: from :meth:`~airflow_cdc.pipeline.decode.decode_events.Decoder.events`.
    """
    kinds = f"{OP} IS NOT NULL" + (f" OR {KIND} = '{_TRUNCATE}'" if truncates else "")
    return events.filter(f"{REJECT} IS NULL AND ({kinds})").withColumn(OP, F.coalesce(OP, KIND))


def flag_events(
    events: DataFrame, keys: Sequence[str], *, columns: Sequence[str], reads_among_changes: bool, change_restarts: bool
) -> DataFrame:
    """Return good events with the columns that :func:`~airflow_cdc.pipeline.microbatch.count_events.count_staged` counts in row changes.

    :param columns: the source's columns: two events of a key and position are copies if they have equal values.
    :param change_restarts: as for :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    :return: with :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER`; ``__cdc_redelivered``: 1 for a copy of another event of the
        microbatch; ``__cdc_conflicts``: 1 for the first event of its key that was archived before the event that it follows;
        ``__cdc_hazard``: 2 for an event that shares its position with another one of its key, and is no copy.
    """
    # A microbatch with only truncates has no key columns.
    own_keys, content = ([name for name in names if name in events.columns] for names in (keys, columns))
    by_key = Window.partitionBy(*[F.col(sql.name(key)) for key in own_keys]).orderBy(ORDER)
    ordered = order_events(events, own_keys, reads_among_changes=reads_among_changes, change_restarts=change_restarts)
    flagged = flag_copies(ordered, by_key)
    # A redelivered read sorts after what was streamed in between: not adjacent to the first, yet a copy.
    flagged = with_copies(flagged, own_keys, [OP, *content], by=ORDINAL, change_restarts=change_restarts)
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
        F.lit(None).cast(REACH_MEMBERS["passed"]).alias("passed"),
    )
    once = flagged.withColumn(CONFLICTS, F.when(earlier == 0, F.col(CONFLICTS)).otherwise(0))
    ours = {
        HAZARD: F.when((F.col(REDELIVERED) == 1) & ~F.col(IS_COPY), 2).otherwise(0),
        EVENTS: F.lit(1),
        REACH: reach,
        VALUE_POSITIONS: F.lit(None).cast(VALUE_POSITIONS_TYPE),
    }
    return once.withColumns(ours).withColumn(REDELIVERED, F.col(IS_COPY).cast("int")).drop(IS_COPY)


def without_known(
    events: DataFrame,
    known: DataFrame,
    *,
    keys: Sequence[str],
    columns: Sequence[str],
    table: str | None = None,
    change_restarts: bool,
) -> DataFrame:
    """Return the events that a change log does not hold yet.

    A known event is one with the same key, position and content. If others of its key and position have another content, these are several
    events of one transaction: then it is known only with the same offset, too, or if offsets are absent.

    :param known: the log's rows: the keys, position, partition and offset. If they have an ordinal, a read that was archived before its
        known copy is new: the archive's order places it elsewhere.
    :param table: the column that shows a truncate's table: one statement truncates several at one position.
    :param change_restarts: as for :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    """
    held = {name.lower() for name in known.columns}
    content = [name for name in columns if name in events.columns and name.lower() in held and name not in keys]
    # A truncate has no key; NULL keys equal each other.
    ours = [sql.name(key) for key in keys if key in events.columns and key in known.columns]
    place = " AND ".join([f"s.{POSITION} = k.{POSITION}", *(f"s.{key} <=> k.{key}" for key in ours)])
    alike = [f"s.{OP} = k.{OP}", *(f"{comparable(events, name, 's')} <=> {comparable(known, name, 'k')}" for name in content)]
    if table in events.columns and table in known.columns:
        alike.append(f"(s.{OP} <> '{_TRUNCATE}' OR s.{sql.name(str(table))} <=> k.{sql.name(str(table))})")
    same = " AND ".join(alike)
    # Between events that share a place, the archive's order tells which is which.
    shared = shared_place(change_restarts=change_restarts)
    near = " AND ".join([f"s.{shared} = k.{shared}", *(f"s.{key} <=> k.{key}" for key in ours)])
    # Truncates of several tables differ in nothing but the table.
    beside = events.filter(f"{OP} <> '{_TRUNCATE}'").alias("s")
    tied = [beside.join(other.alias("k"), F.expr(f"{near} AND NOT ({place} AND {same})"), "left_semi") for other in (known, events)]
    mixed = reduce(DataFrame.unionByName, tied).select(POSITION, *ours).distinct().withColumn(_IS_MIXED, F.lit(True))  # noqa: FBT003
    at = " AND ".join([f"s.{POSITION} = m.{POSITION}", *(f"s.{key} <=> m.{key}" for key in ours)])
    judged = events.alias("s").join(F.broadcast(mixed).alias("m"), F.expr(at), "left").select("s.*", f"m.{_IS_MIXED}")
    same_record = f"coalesce(s.{PARTITION} = k.{PARTITION} AND s.{OFFSET} = k.{OFFSET}, true)"
    is_known = f"{place} AND {same} AND (s.{_IS_MIXED} IS NULL OR {same_record})"
    if ORDINAL in known.columns:
        is_known += f" AND (s.{OP} <> 'r' OR k.{ORDINAL} <= s.{ORDINAL})"
    return judged.alias("s").join(known.alias("k"), F.expr(is_known), "left_anti").drop(_IS_MIXED)
