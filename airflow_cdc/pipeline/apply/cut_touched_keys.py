"""Cut touched keys: rebuild the versions of each key that a microbatch touches from all of the key's events.

Late events need no rule of their own: they take their place in the order, and the intervals around them follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    COMMITTED_AT,
    CUT,
    END_POSITION,
    IS_CURRENT,
    MICROBATCH,
    OFFSET,
    OP,
    ORDINAL,
    PARTITION,
    POSITION,
    TABLE,
    TRANSACTION,
)
from airflow_cdc.model.operation import VOID, Operation
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.reconcile.cut_versions import BORN, OPEN, deaths_of, fold_keys, join_unchanged_reads, versions_of
from airflow_cdc.pipeline.reconcile.order_events import IS_COPY, ORDER, order_events, order_of, with_copies
from airflow_cdc.pipeline.reconcile.settle_ties import TIE, with_ties
from airflow_cdc.pipeline.reconcile.trace_moved_rows import numbered
from airflow_cdc.pipeline.reconcile.trace_versions import (
    fill_left_out_values,
    find_moves,
    find_previous_keys,
    keys_reached,
    without_previous_keys,
)
from airflow_cdc.pipeline.record.event_log import NO_PARTITION
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.document_columns import with_document_columns
from airflow_cdc.pipeline.target.merge_versions import ACTION, ASKS, differing_versions
from airflow_cdc.pipeline.target.target_table import TargetTable

_KEY = "__cdc_key_"
"""Prefix of our names for the key columns."""
_IS_LAST = "__cdc_is_last_of_position"


@dataclass(frozen=True)
class VersionChanges:
    """Changes to the target's versions."""

    rows: DataFrame
    """Versions with the action ``i``, ``u`` or ``d``."""
    unresolved: int
    """Number of versions among them with NULL in place of a value that no event provides."""


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A microbatch's additions to the event log."""

    rows: DataFrame
    tables: PhysicalTables
    """The source's tables whose rows the target holds."""
    may_tie: bool = False
    """Whether some of them may share their position with another event of their key."""
    everything: bool = False
    """Whether all keys are touched, as by a truncate."""
    change_restarts: bool
    """As :attr:`airflow_cdc.model.connectors.connector.PositionRule.change_restarts`."""
    ended: Snapshot | None = None
    """A finished snapshot that removes nothing: the versions that it did not find are counted."""


def cut_touched_keys(run: MicrobatchRun, target: TargetTable, log: DataFrame, *, logged: Logged) -> VersionChanges:
    """Return how the versions in the target differ from those derived from all known events.

    :param log: all known events, including the microbatch's.
    :raises OrderUnknownError: if nothing shows the order of some events.
    """
    fresh, everything = logged.rows, logged.everything
    of_document = run.flow.document_columns
    keys, others = numbered(_KEY, target.keys), [name for name in target.columns if name not in (*target.keys, *of_document)]
    log = _with_keys(target.with_all_columns(log), target.keys, keys)
    rows = _with_keys(fresh, target.keys, keys) if set(target.keys) <= set(fresh.columns) else log.filter("false")
    transactions = fresh.select(TRANSACTION).distinct()
    moves = run.write_down(find_moves(log, transactions, keys), "moves")
    moved = not moves.isEmpty()
    touched = None
    if not everything:
        touched = run.write_down(rows.select(*keys).distinct(), "touched")
        touched = keys_reached(touched, moves, keys, write_down=run.write_down) if moved else touched
    marks, events = _events_of(log, touched, keys, change_restarts=logged.change_restarts)
    if logged.may_tie:
        events = run.write_down(events, "tied")
        events = with_ties(events, keys, place=run.name, shown=target.keys, change_restarts=logged.change_restarts)
    folded = fold_keys(_in_order(events, marks, logged, keys=keys, others=others), keys, others)
    versions = run.write_down(versions_of(folded, keys, others), "versions")
    if moved:
        deaths = run.write_down(deaths_of(folded, keys, others), "deaths")
        versions = fill_left_out_values(versions, deaths, moves, keys=keys, others=others, write_down=run.write_down)
        versions = find_previous_keys(versions, deaths, moves, transactions=transactions, keys=keys, write_down=run.write_down)
    else:
        versions = without_previous_keys(versions, keys)
    joined = join_unchanged_reads(versions, keys, others).withColumn(IS_CURRENT, F.col(END_POSITION).isNull())
    # The events of its transaction determine which key a row came from; later microbatches do not search again.
    joined = joined.withColumn(TRANSACTION, F.col(BORN)["transaction"])
    joined = joined.join(F.broadcast(transactions.withColumn(ASKS, F.lit(True))), TRANSACTION, "left")  # noqa: FBT003
    held = target.with_default_names(run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}"))
    held = _with_keys(held, target.keys, keys)
    held = held if touched is None else held.join(touched, keys, "left_semi")
    joined = with_document_columns(joined, of_document)
    changes = run.write_down(differing_versions(joined, held, target, keys=keys, others=[*others, *of_document]), "changes")
    return VersionChanges(changes, changes.filter(f"{ACTION} <> 'd' AND size({OPEN}) > 0").count())


def _with_keys(rows: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    return rows.withColumns({name: F.col(sql.name(key)) for key, name in zip(keys, names, strict=True)})


def _events_of(log: DataFrame, touched: DataFrame | None, keys: Sequence[str], *, change_restarts: bool) -> tuple[DataFrame, DataFrame]:
    """Return the log's marks, and the events of the touched keys (None: of all), each once."""
    rows = log.filter(f"{OP} IN ('r', 'c', 'u', 'd')")
    rows = rows if touched is None else rows.join(touched, list(keys), "left_semi")
    rows = with_copies(rows, keys, [OP, BEFORE, AFTER], by=ORDINAL, change_restarts=change_restarts).filter(f"NOT {IS_COPY}").drop(IS_COPY)
    return log.filter(f"{OP} IN ('{Operation.TRUNCATE.value}', '{VOID}')"), rows.withColumn(TIE, F.lit(0))


def _in_order(events: DataFrame, marks: DataFrame, logged: Logged, *, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return the events in order, each with the marks that apply to its key."""
    # A version begins at a position: of several events at one, the last is left.
    is_last = F.lead(OP).over(Window.partitionBy(*keys, POSITION).orderBy(TIE, ORDINAL)).isNull()
    rows = events.filter(f"{TIE} >= 0").withColumn(_IS_LAST, is_last).filter(_IS_LAST).drop(TIE)
    ordered = order_events(rows, keys, reads_among_changes=True, change_restarts=logged.change_restarts)
    names = sql.texts(others)
    images = {
        name: F.expr(f"if({name} IS NULL, NULL, transform({names}, column -> try_element_at({name}, column)))") for name in (BEFORE, AFTER)
    }
    everything = ordered.withColumns(images)
    if marks.isEmpty():
        return everything
    return everything.unionByName(_marks_of(marks, ordered, logged.tables, keys=keys), allowMissingColumns=True)


def _marks_of(marks: DataFrame, rows: DataFrame, tables: PhysicalTables, *, keys: Sequence[str]) -> DataFrame:
    """Return each mark once per key that it applies to: a key with earlier events, the last of them a row of the mark's table, that the
    snapshot did not find.

    A mark precedes everything that the archive holds after the snapshot's reads, even if its own position is higher
    (docs/sources/postgresql.md#snapshot-position).
    """
    mark = F.struct(*[F.col(name) for name in (POSITION, OP, TRANSACTION, COMMITTED_AT, CUT, TABLE, MICROBATCH)]).alias("mark")
    behind = f"r.{OFFSET} > try_element_at(m.mark.{CUT}.last_offsets, coalesce(r.{PARTITION}, {NO_PARTITION}))"
    met = rows.alias("r").crossJoin(F.broadcast(marks.select(mark)).alias("m"))
    by_mark = [F.col(f"m.mark.{name}") for name in (POSITION, OP, TABLE)]
    by_key = met.groupBy(*[F.col(f"r.{key}") for key in keys], *by_mark).agg(
        F.first("m.mark").alias("mark"),
        F.min(f"r.{POSITION}").alias("first"),
        F.min(F.expr(f"CASE WHEN {behind} THEN r.{POSITION} END")).alias("behind"),
        F.max(F.expr(f"r.{OP} = 'r' AND r.{POSITION} = m.mark.{CUT}.snapshot")).alias("found"),
        _is_of_its_table(tables, behind).alias("of_table"),
    )
    no_ordinal = F.lit(None).cast(rows.schema[ORDINAL].dataType)
    place = order_of(F.expr(f"least(mark.{POSITION}, behind)"), F.lit(0), ordinal=no_ordinal)
    concerned = by_key.filter(f"NOT coalesce(found, false) AND first < mark.{POSITION} AND coalesce(of_table, false)")
    return concerned.select(*keys, f"mark.{POSITION}", f"mark.{OP}", f"mark.{TRANSACTION}", f"mark.{COMMITTED_AT}", place.alias(ORDER))


def _is_of_its_table(tables: PhysicalTables, behind: str) -> Column:
    """Return the aggregate that is true where a key's last row before a mark is in the table that the mark names.

    :param behind: SQL that is true for events that the archive holds after the mark.
    """
    if not tables.are_several:
        return F.first(F.lit(True))  # noqa: FBT003
    # A key may move from one table to another, and the image of a delete holds fillers.
    marked = tables.marked("r.", "m.mark.")
    is_before = f"coalesce(r.{ORDER}.position < m.mark.{POSITION}, true) AND NOT coalesce({behind}, false)"
    order = f"CASE WHEN r.{OP} <> 'd' AND ({marked}) IS NOT NULL AND {is_before} THEN r.{ORDER} END"
    return F.max_by(F.expr(marked), F.expr(order))
