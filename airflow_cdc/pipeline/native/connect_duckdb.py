"""A connection of DuckDB, with bounds: the driver has a JVM beside it, and a working folder in which it may not write."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from airflow_cdc.pipeline.native.duckdb_sql import text, texts
from airflow_cdc.pipeline.native.free_memory import free_memory

_MOST, _LEAST = 4 * 1024**3, 256 * 1024**2
"""Bytes of memory. By default DuckDB takes four fifths of the machine's, in each connection."""


_IDLE: dict[tuple[Any, ...], list[Any]] = {}
"""Databases of one thread that nobody uses, by process and settings: to make one costs a tenth of a small microbatch.

By process, because a lock of DuckDB may be held while a process is forked. Those of several threads are not kept: the child lacks them.
"""


def may_read() -> bool:
    """Return whether the packages are installed with which files are read here."""
    return all(find_spec(package) is not None for package in ("duckdb", "numpy", "pyarrow"))


THREADED_FROM_BYTES = 32 * 1024**2
"""Text from which DuckDB may use several threads: below, the tables of a run are merged side by side."""
_THREADS = 4


def threads_for(text_bytes: int) -> int:
    """Return the number of threads that DuckDB may use for a microbatch with so much text."""
    return _THREADS if text_bytes >= THREADED_FROM_BYTES else 1


@contextmanager
def connect_duckdb(*, threads: int = 1) -> Iterator[Any]:
    """Open a connection of its own to a database in memory; closes it at the end, with all that it holds.

    What does not fit is spilled to the machine's folder for temporary files.

    :param threads: at most; no more than the machine has.
    """
    import duckdb

    settings: dict[str, Any] = {
        "threads": min(threads, os.cpu_count() or 1),
        "memory_limit": f"{_memory()}B",
        "temp_directory": tempfile.gettempdir(),
        "autoinstall_known_extensions": False,
        # Under one name there may be other bytes in the next statement.
        "enable_external_file_cache": False,
    }
    if settings["threads"] != 1:
        with duckdb.connect(config=settings) as connection:
            yield connection
        return
    idle = _IDLE.setdefault((os.getpid(), *settings.items()), [])
    try:
        database = idle.pop()
    except IndexError:
        database = duckdb.connect(config=settings)
    try:
        with database.cursor() as connection:
            yield connection
        # They hold the files' bytes, and belong to the database.
        for protocol in database.list_filesystems():
            database.unregister_filesystem(protocol)
    except BaseException:
        database.close()
        raise
    idle.append(database)


def _memory() -> int:
    """Return the bytes that a connection may take: half of what is free, by powers of two, because databases are kept by their settings."""
    free = free_memory()
    return _MOST if free is None else min(_MOST, max(_LEAST, 1 << (max(free, 2) // 2).bit_length() - 1))


def rows_by_name(cursor: Any) -> list[dict[str, Any]]:
    """Return the rows of an executed statement, by column name."""
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def with_line_like(connection: Any, paths: Iterable[str], pattern: str) -> set[str]:
    """Return the paths of files with a JSON line, as it is archived, that contains a match of a regular expression (RE2)."""
    found = connection.execute(f"SELECT DISTINCT filename FROM {_lines(paths)} WHERE regexp_matches(json, {text(pattern)})").fetchall()
    return {path for (path,) in found}


def lines_with_null(connection: Any, paths: Iterable[str], member: str) -> dict[str, int]:
    """Return by path how many lines of whole JSON documents have a member that is null, and hold no object under its name."""
    is_object = " OR ".join(f"contains(json, {text(begins)})" for begins in (f'"{member}":{{', f'"{member}": {{'))
    has_null = f"json_type(json, {text(f'$.{member}')}) = 'NULL'"
    query = f"SELECT filename, count(*) FROM {_lines(paths)} WHERE NOT ({is_object}) AND {has_null} GROUP BY filename"
    return dict(connection.execute(query).fetchall())


def _lines(paths: Iterable[str]) -> str:
    return f"read_ndjson_objects([{texts(paths)}], filename = true, hive_partitioning = false)"
