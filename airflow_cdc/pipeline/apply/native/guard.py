"""Compare a microbatch's row changes with the table's rows and the delete markers, in this process (DuckDB): late events never regress a
row, nor bring one back.

The rules are those of :mod:`airflow_cdc.pipeline.reconcile.rule`, as in :mod:`airflow_cdc.pipeline.apply.guard_late_events`. What has to be
folded again, or filled in, is left to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.columns import BEGAN, DELETED, DEPENDS, MICROBATCH, OFFSET, OP, PARTITION, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.delta_rs_options import NotReached
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.places import delete_markers_uri, expired_markers_uri, moves_uri
from airflow_cdc.pipeline.apply.native.fold import NativeChanges, NativeFold
from airflow_cdc.pipeline.apply.native.fold_sql import CHANGES, reach_of, row_changes
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.settled import may_have_been_applied, may_meet_markers
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source, text
from airflow_cdc.pipeline.reconcile import rule
from airflow_cdc.pipeline.reconcile.trace_moved_rows import FROM, TO, numbered
from airflow_cdc.pipeline.target.open_natively import open_table
from airflow_cdc.pipeline.target.parquet_scan import create_view
from airflow_cdc.pipeline.target.table_files import UnreadableError

_MET, _STALE = "cdc_met", "cdc_stale"
_OF_ROW = (POSITION, OP, PARTITION, OFFSET, VALUE_POSITIONS)
_OF_MARKER = (POSITION, OP, PARTITION, OFFSET, BEGAN, DEPENDS, MICROBATCH)


def leave_out_stale(run: MicrobatchRun, fold: NativeFold, *, changes: NativeChanges, table: Any) -> tuple[Any, int]:
    """Return the row changes that are still news (Arrow table), and the number of those that newer events of their keys make obsolete.

    :param changes: of the fold.
    :param table: delta-rs's table, as it was before the microbatch.
    :raises HandedOver: where a transaction that earlier microbatches hold in part has to be put together, a late event fills in a value, or
        the rows cannot be read here.
    """
    import duckdb

    try:
        _refuse_moved_rows(run, fold)
        _find_met(run, fold, table)
        if not fold.connection.execute(f"SELECT 1 FROM {_MET} LIMIT 1").fetchall():
            return changes.rows, 0
        _refuse_what_spark_folds(run, fold, table)
        if not (stale := _find_stale(fold)):
            return changes.rows, 0
        using = ", ".join(map(name, fold.how.keys))
        return fold.read(f"SELECT * FROM ({row_changes(fold.how)}) ANTI JOIN {_STALE} USING ({using})"), stale
    except (duckdb.Error, OSError, UnreadableError) as error:
        raise HandedOver(f"the table's rows cannot be read from the driver: {first_line(error)}") from error


def _refuse_moved_rows(run: MicrobatchRun, fold: NativeFold) -> None:
    """Leave to Spark events about rows that have other keys by now.

    :raises HandedOver: where there are some.
    """
    if not run.checkpoint.moves_kept or (log := _open_markers(run.state(moves_uri))) is None or not log.file_uris():
        return
    how, old = fold.how, numbered(FROM, fold.how.keys)
    to = numbered(TO, how.keys)
    _view(fold.connection, run.state(moves_uri), log, columns=[*old, *to, POSITION, PARTITION, OFFSET])
    unnamed, named = (f"SELECT {', '.join(to)}, {POSITION} FROM cdc WHERE {old[0]} IS {each}" for each in ("NULL", "NOT NULL"))
    if fold.staged.has_deletes and fold.connection.execute(f"({unnamed}) EXCEPT ({named}) LIMIT 1").fetchall():
        raise HandedOver("an earlier microbatch awaits the delete of a moved row")
    same = " AND ".join(f"m.{column} = s.{of_source(key)}" for column, key in zip(old, how.keys, strict=True))
    before = rule.may_precede_move("m", "s", reach_of("s", how), has_reads=how.has_reads)
    if fold.connection.execute(f"SELECT 1 FROM cdc AS m JOIN {CHANGES} AS s ON {same} AND {before} LIMIT 1").fetchall():
        raise HandedOver("a late event of a row that has another key by now")


def _find_met(run: MicrobatchRun, fold: NativeFold, table: Any) -> None:
    """Make the table of what is known of the changes' keys and may meet their events: rows of the table, and delete markers."""
    connection, keys = fold.connection, fold.how.keys
    named, ours = ", ".join(map(name, keys)), f"{POSITION}, {OP}, {PARTITION}, {OFFSET}"
    typed = ", ".join(f"{of_source(key)} AS {name(key)}" for key in keys)
    connection.execute(f"""
CREATE OR REPLACE TEMP TABLE {_MET} AS
SELECT {typed}, {ours}, {POSITION} AS {BEGAN}, false AS {DEPENDS}, false AS is_marker, false AS is_flagged, false AS is_filled
FROM {CHANGES} WHERE false""")
    met = f"{_same_key(keys)} AND {rule.may_meet('k', 's', reach_of('s', fold.how), has_reads=fold.how.has_reads)}"
    asks_markers = may_meet_markers(run, fold.staged, has_reads=fold.how.has_reads)
    held = f"SELECT {typed} FROM {CHANGES} WHERE false"
    if table.file_uris():
        flagged = f"coalesce({DELETED}, false)" if fold.how.keeps_deleted else "false"
        _view(connection, run.table, table, columns=[*keys, *_OF_ROW, *([DELETED] if fold.how.keeps_deleted else [])])
        rows = f"SELECT {named}, {ours}, {flagged} AS is_flagged, {VALUE_POSITIONS} IS NOT NULL AS is_filled FROM cdc"
        connection.execute(f"INSERT INTO {_MET} BY NAME SELECT k.* FROM ({rows}) AS k SEMI JOIN {CHANGES} AS s ON {met}")
        held = f"SELECT {named} FROM ({rows}) AS k SEMI JOIN {CHANGES} AS s ON {_same_key(keys)} WHERE NOT is_flagged"
    if not asks_markers:
        return
    # Read before the view is another table's.
    connection.execute(f"CREATE OR REPLACE TEMP TABLE cdc_held AS {held}")
    for uri in map(run.state, [delete_markers_uri, *([expired_markers_uri] if may_have_been_applied(run) else [])]):
        if (markers := _open_markers(uri)) is not None and markers.file_uris():
            _view(connection, uri, markers, columns=[*keys, *_OF_MARKER])
            of_others = f"SELECT * EXCLUDE ({MICROBATCH}), true AS is_marker FROM cdc WHERE {MICROBATCH} <> {run.microbatch.number}"
            connection.execute(f"INSERT INTO {_MET} BY NAME SELECT k.* FROM ({of_others}) AS k SEMI JOIN {CHANGES} AS s ON {met}")
    # A marker of a key that the table holds says nothing: the row came later, or the run that wrote the marker did not merge.
    connection.execute(f"""
DELETE FROM {_MET} WHERE is_marker AND {OP} = 'd' AND NOT {DEPENDS} AND ({named}) IN (SELECT {named} FROM cdc_held)""")


def _view(connection: Any, uri: str, table: Any, *, columns: Sequence[str]) -> None:
    fields: Sequence[Mapping[str, Any]] = json.loads(table.schema().to_json())["fields"]
    create_view(connection, uri, table, fields=[field for field in fields if field["name"] in columns])


def _open_markers(uri: str) -> Any | None:
    from deltalake.exceptions import TableNotFoundError

    try:
        return open_table(uri)
    except TableNotFoundError:
        return None
    except NotReached as reason:
        raise HandedOver(str(reason)) from reason


def _same_key(keys: Sequence[str], known: str = "k") -> str:
    return " AND ".join(f"{known}.{name(key)} = s.{of_source(key)}" for key in keys)


def _on_keys(fold: NativeFold) -> str:
    return f"{_MET} AS k JOIN {CHANGES} AS s ON {_same_key(fold.how.keys)}"


def _refuse_what_spark_folds(run: MicrobatchRun, fold: NativeFold, table: Any) -> None:
    """Leave to Spark what it has to fold again, or to fill in.

    :raises HandedOver: with the first reason.
    """
    how, reach = fold.how, reach_of("s", fold.how)
    cut = "false" if how.are_documents else rule.is_cut("k", "s", reach, has_reads=how.has_reads)
    depends = f"k.is_marker AND k.{DEPENDS} AND coalesce({reach['first']}, s.{POSITION}) < k.{POSITION}"
    fills = "k.is_filled" + (f" OR s.{VALUE_POSITIONS} IS NOT NULL" if how.leaves_values else "")
    against = {
        "a transaction that an earlier microbatch holds in part": f"({cut}) OR ({depends})",
        "a late event, among values that other events left out": fills,
        "a late event of a key whose deleted row stays": "k.is_flagged",
    }
    counts = ", ".join(f"count_if({condition})" for condition in against.values())
    ((*found, ties),) = fold.connection.execute(
        f"SELECT {counts}, count_if({rule.is_tie('k', 's', are_values=how.are_values)}) FROM {_on_keys(fold)}"
    ).fetchall()
    for reason, count in zip(against, found, strict=True):
        if count:
            raise HandedOver(reason)
    if ties and _have_other_values(run, fold, table):
        raise HandedOver("two events of a key with one position")


def _have_other_values(run: MicrobatchRun, fold: NativeFold, table: Any) -> bool:
    """Return whether a row that has the position of a row change holds other values than that carries."""
    how = fold.how
    _view(fold.connection, run.table, table, columns=how.columns)
    left_out = f"coalesce(list_contains(s.{UNAVAILABLE}, {{}}), false)" if how.leaves_values else "false"
    differs = " OR ".join(
        f"(NOT {left_out.format(text(column))} AND t.{name(column)} IS DISTINCT FROM s.{of_source(column)})" for column in how.others
    )
    same = " AND ".join(f"t.{name(key)} = k.{name(key)}" for key in how.keys)
    is_tied = rule.is_tie("k", "s", are_values=how.are_values)
    query = f"SELECT 1 FROM {_on_keys(fold)} JOIN cdc AS t ON {same} WHERE {is_tied} AND ({differs or 'false'}) LIMIT 1"
    return bool(fold.connection.execute(query).fetchall())


def _find_stale(fold: NativeFold) -> int:
    """Make the table of the keys whose changes are obsolete, and return their number."""
    keys = ", ".join(f"k.{name(key)}" for key in fold.how.keys)
    fold.connection.execute(f"""
CREATE OR REPLACE TEMP TABLE {_STALE} AS
SELECT DISTINCT {keys} FROM {_on_keys(fold)} WHERE {rule.makes_stale("k", "s")}""")
    ((count,),) = fold.connection.execute(f"SELECT count(*) FROM {_STALE}").fetchall()
    return int(count)
