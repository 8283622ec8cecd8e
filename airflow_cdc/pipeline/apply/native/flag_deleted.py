"""Row changes of a table that keeps deleted rows, flagged: each as the whole row that it leaves under its key.

A flagged row does not hold its key, and keeps the last known values. The rows are those of
:func:`airflow_cdc.pipeline.target.flag_deletes.flagging_clauses` where nothing is late and nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from airflow_cdc.model.columns import COMMITTED_AT, DELETED, DELETED_AT, OP, OP_IF_ABSENT
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.apply.native.fold_sql import OF_VERSIONS
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.table_values import Completed, complete, view_rows
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import name
from airflow_cdc.pipeline.target.table_files import UnreadableError


def flag_deleted(table: Any, uri: str, changes: Any, *, keys: Sequence[str]) -> Completed:
    """Return the rows that changes leave, with the flag and the time of their delete. A change that keeps the table's row has none.

    :param table: delta-rs's table; None where it is to be created.
    :param changes: Arrow table, see :class:`airflow_cdc.pipeline.apply.native.fold.NativeChanges`.
    :raises HandedOver: where the table's rows cannot be read here.
    """
    completed = complete(table, uri, _as_done(table, uri, changes, keys=keys), keys=keys)
    flags = f"{OP} = 'd' AS {DELETED}, CASE WHEN {OP} = 'd' THEN {COMMITTED_AT} END AS {DELETED_AT}"
    with connect_duckdb(threads=1) as connection:
        connection.register("completed", completed.rows)
        return replace(completed, rows=connection.sql(f"SELECT *, {flags} FROM completed").to_arrow_table())


def _as_done(table: Any, uri: str, changes: Any, *, keys: Sequence[str]) -> Any:
    """Return the changes with the operation that is carried out, without those that keep the table's row."""
    import duckdb

    if OP_IF_ABSENT not in changes.column_names:
        return changes
    own = f"changes.* EXCLUDE ({', '.join(OF_VERSIONS)})"
    with connect_duckdb(threads=4) as connection:
        connection.register("changes", changes)
        try:
            if table is None or not table.file_uris():
                done = f"SELECT {own} REPLACE (changes.{OP_IF_ABSENT} AS {OP}) FROM changes"
            else:
                view_rows(connection, table, uri, columns=[*keys, DELETED])
                same_key = " AND ".join(f"cdc.{name(key)} = changes.{name(key)}" for key in keys)
                held = f"coalesce(NOT cdc.{DELETED}, false)"
                done = f"""
SELECT {own} REPLACE (CASE WHEN {held} THEN changes.{OP} ELSE changes.{OP_IF_ABSENT} END AS {OP})
FROM changes LEFT JOIN cdc ON {same_key}"""
            return connection.sql(f"SELECT * FROM ({done}) WHERE {OP} <> '{KEEP}'").to_arrow_table()
        except (duckdb.Error, OSError, UnreadableError) as error:
            raise HandedOver(f"the table's rows cannot be read from the driver: {first_line(error)}") from error
