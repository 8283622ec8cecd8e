"""A connection of DuckDB, with bounds: the driver has a JVM beside it, and a working folder in which it may not write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_cdc.pipeline.native.duckdb_sql import text, texts

_MEMORY = "4GB"
"""By default DuckDB takes four fifths of the machine's, in each connection."""


@contextmanager
def connect_duckdb(*, threads: int = 1) -> Iterator[Any]:
    """Open a database in memory; closes it at the end. What does not fit is spilled to the machine's folder for temporary files.

    :param threads: at most; no more than the machine has.
    """
    import duckdb

    with duckdb.connect(
        config={
            "threads": min(threads, os.cpu_count() or 1),
            "memory_limit": _MEMORY,
            "temp_directory": tempfile.gettempdir(),
            "autoinstall_known_extensions": False,
        }
    ) as connection:
        yield connection


def rows_by_name(cursor: Any) -> list[dict[str, Any]]:
    """Return the rows of an executed statement, by column name."""
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def with_line_like(connection: Any, paths: Iterable[str], pattern: str) -> set[str]:
    """Return the paths of files with a JSON line, as it is archived, that contains a match of a regular expression (RE2)."""
    lines = f"read_ndjson_objects([{texts(paths)}], filename = true, hive_partitioning = false)"
    found = connection.execute(f"SELECT DISTINCT filename FROM {lines} WHERE regexp_matches(json, {text(pattern)})").fetchall()
    return {path for (path,) in found}
