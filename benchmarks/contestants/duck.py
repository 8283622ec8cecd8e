"""Archived events as DuckDB reads them."""

from __future__ import annotations

import duckdb

from benchmarks.contestants.contestant import Task
from benchmarks.shapes import KEY

THREADS = 2


def connect() -> duckdb.DuckDBPyConnection:
    """Return a connection that uses as many threads as Spark does here, and reads times as Spark does."""
    connection = duckdb.connect(config={"threads": THREADS})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def latest(task: Task) -> str:
    """Return DuckDB's SQL of the last event of each key: its operation (``op``) and the table's columns."""
    types = {name: {"STRING": "VARCHAR", "TIMESTAMP": "TIMESTAMPTZ"}.get(kind, kind) for name, kind in task.types.items()}
    row = f"STRUCT({', '.join(f'{name} {kind}' for name, kind in types.items())})"
    source = "STRUCT(commit_lsn VARCHAR, change_lsn VARCHAR, event_serial_no BIGINT)"
    columns = f"{{key: 'STRUCT({KEY} BIGINT)', value: 'STRUCT(op VARCHAR, after {row}, source {source})'}}"
    position = "(value.source.commit_lsn, value.source.change_lsn, value.source.event_serial_no)"
    others = ", ".join(f"last.after.{name} AS {name}" for name in task.names if name != KEY)
    return f"""
        SELECT key AS {KEY}, last.op AS op, {others} FROM (
            SELECT key.{KEY} AS key, arg_max(value, {position}) AS last
            FROM read_json({task.paths}, format = 'newline_delimited', columns = {columns})
            WHERE value IS NOT NULL GROUP BY key.{KEY})
    """
