"""The rows that merges and appends write without Spark, with the table's columns and types, and the appends themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_cdc.model.columns import (
    BEGAN,
    CHANGE_LOG_COLUMNS,
    COMMITTED_AT,
    DELETED,
    DELETED_AT,
    DEPENDS,
    MICROBATCH,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    PASSED,
    POSITION,
    VALUE_POSITIONS,
)
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.apply.native.fold_sql import MARKED_AT, OF_VERSIONS
from airflow_cdc.pipeline.native.arrow_rows import in_schema
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, threads_for
from airflow_cdc.pipeline.native.duckdb_sql import name
from airflow_cdc.pipeline.target.commit_natively import APPEND, CommitOf, commit_rows
from airflow_cdc.pipeline.target.create_natively import made_ready
from airflow_cdc.pipeline.target.write_rows import add_rows, rows_in

_WRITTEN = (POSITION, OP, COMMITTED_AT, PARTITION, OFFSET, MICROBATCH, VALUE_POSITIONS)
FLAGS = (DELETED, DELETED_AT)
"""Columns of row changes of a table that keeps deleted rows."""
_SELDOM = {"delta.checkpointInterval": "100"}
_ATTEMPTS = 5


def rows_for(table: Any, changes: Any, columns: Sequence[str], *, microbatch: int) -> Any:
    """Return row changes with the target's columns and types, and behind them those of row versions, where the changes have them
    (:data:`~airflow_cdc.pipeline.apply.native.fold_sql.OF_VERSIONS`).

    :param changes: Arrow table, see :class:`airflow_cdc.pipeline.apply.native.fold.NativeChanges`.
    """
    import pyarrow as pa

    ours = [*_WRITTEN, *(FLAGS if DELETED in changes.column_names else ())]
    rows = _in_columns_of(table, changes, [*columns, *ours], microbatch=microbatch)
    if OP_IF_ABSENT not in changes.column_names:
        return rows
    position = rows.schema.field(POSITION).type
    stretch = pa.struct([("position", position), ("partition", pa.int32()), ("offset", pa.int64()), ("began", position)])
    kinds = {OP_IF_ABSENT: pa.string(), BEGAN: position, DEPENDS: pa.bool_(), PASSED: pa.list_(stretch), MARKED_AT: position}
    for each in OF_VERSIONS:
        rows = rows.append_column(each, changes.column(each).cast(kinds[each]))
    return rows


def events_for(table: Any, events: Any, columns: Sequence[str], *, microbatch: int) -> Any:
    """Return events with the columns and types of a change log.

    :param events: Arrow table, see :class:`airflow_cdc.pipeline.apply.native.all_events.NativeEvents`.
    """
    return _in_columns_of(table, events, [*columns, *CHANGE_LOG_COLUMNS], microbatch=microbatch)


def _in_columns_of(table: Any, rows: Any, names: Sequence[str], *, microbatch: int) -> Any:
    import pyarrow as pa

    schema = pa.schema(table.schema().to_arrow())
    constants: dict[str, Any] = {MICROBATCH: microbatch}
    if VALUE_POSITIONS not in rows.column_names:
        constants[VALUE_POSITIONS] = None
    return in_schema(rows, pa.schema([pa.field(each, schema.field(each).type) for each in names]), constants=constants)


def operations_of(rows: Any) -> tuple[str, str]:
    """Return what row changes do, in SQL: to a key that the table holds, and to one that it does not hold.

    :param rows: from :func:`rows_for`. A deleted row that stays, flagged, is one that is written.
    """
    if DELETED in rows.column_names:
        return "'u'", "'u'"
    return OP, OP_IF_ABSENT if OP_IF_ABSENT in rows.column_names else OP


def is_upsert(operation: str) -> str:
    """Return the SQL that is true where a row is left; ``operation``: SQL."""
    return f"{operation} NOT IN ('d', '{KEEP}')"


def append_rows(table: Any, uri: str, rows: Any, *, of: CommitOf | None) -> None:
    """Append rows to a table in one commit.

    :param table: delta-rs's table.
    :param rows: Arrow table with the table's columns and types.
    :param of: None where nothing is to be told.
    :raises ConcurrentRunError: when another run committed first.
    :raises duckdb.Error: when the rows cannot be written.
    :raises OSError: when the store fails.
    """
    with connect_duckdb(threads=threads_for(rows.nbytes)) as connection:
        connection.register("appended", rows)
        try:
            added = add_rows(connection, table, uri, rows="SELECT * FROM appended")
        finally:
            connection.unregister("appended")
    counts = {"numFiles": len(added), "numOutputRows": rows_in(added)}
    commit_rows(uri, table, [{"add": each} for each in added], of=of, metrics=counts, kind=APPEND)


def _markers(rows: Any, keys: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = rows.filter(pc.equal(rows.column(OP), "d"))
    count = deleted.num_rows
    markers = deleted.select([*keys, POSITION, OP, PARTITION, OFFSET])
    markers = markers.append_column(BEGAN, pa.nulls(count, deleted.schema.field(POSITION).type))
    markers = markers.append_column(DEPENDS, pa.repeat(pa.scalar(value=False), count))
    return markers.append_column(MICROBATCH, deleted.column(MICROBATCH))


def _markers_of_versions(rows: Any, keys: Sequence[str]) -> Any:
    stays = f"({OP} = '{KEEP}' OR ({OP} <> 'd' AND {POSITION}.commit < {MARKED_AT}.commit))"
    values = [*map(name, keys), f"{MARKED_AT} AS {POSITION}", f"if({stays}, '{KEEP}', 'd') AS {OP}", PARTITION, OFFSET, BEGAN]
    with connect_duckdb(threads=1) as connection:
        connection.register("changes", rows)
        own = f"SELECT {', '.join(values)}, {DEPENDS} AND NOT {stays} AS {DEPENDS}, {MICROBATCH} FROM changes WHERE {OP} = 'd' OR {DEPENDS}"
        earlier = f"""
SELECT {", ".join(map(name, keys))}, each.position, '{KEEP}', each."partition", each."offset", each.began, false, {MICROBATCH}
FROM (SELECT *, unnest({PASSED}) AS each FROM changes WHERE {DEPENDS} AND {stays})"""
        markers = connection.sql(f"{own} UNION ALL {earlier}").to_arrow_table()
        connection.unregister("changes")
    return markers.cast(rows.select(markers.column_names).schema)


def append_markers(uri: str, rows: Any, keys: Sequence[str]) -> None:
    """Append the delete markers of row changes (:func:`airflow_cdc.pipeline.record.delete_markers.markers_of`).

    :raises NotReached: where delta-rs is not used.
    :raises ConcurrentRunError: when other runs kept committing first.
    :raises duckdb.Error: when the rows cannot be written.
    :raises OSError: when the store fails.
    """
    markers = _markers_of_versions(rows, keys) if OP_IF_ABSENT in rows.column_names else _markers(rows, keys)
    _append_markers(uri, markers, attempts=_ATTEMPTS)


def _append_markers(uri: str, markers: Any, *, attempts: int) -> None:
    try:
        append_rows(made_ready(uri, markers.schema, configuration=_SELDOM), uri, markers, of=None)
    except ConcurrentRunError:
        # Maintenance moves expired markers meanwhile.
        if attempts == 1:
            raise
        _append_markers(uri, markers, attempts=attempts - 1)
