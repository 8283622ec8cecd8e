"""Find files whose TIMESTAMP values delta-rs would read, and write again, as other times.

Spark's default for such columns is INT96, and delta-rs 1.6 reads it as 64-bit nanoseconds: a time before 1677 or after 2262, as the
sentinels 0001-01-01 and 9999-12-31, becomes another one without an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote

from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.open_natively import live_files

_FIRST, _LAST = datetime(1678, 1, 1, tzinfo=timezone.utc), datetime(2262, 1, 1, tzinfo=timezone.utc)


def misread_file(table: Any, uri: str) -> str | None:
    """Return the path of a file with INT96 values that may lie outside of what delta-rs reads; None where no file has any.

    Reads a file's footer only where the log's statistics do not show that all of its times lie within.

    :param table: delta-rs's table at ``uri``.
    :raises OSError: when a footer cannot be read.
    """
    times = [field.name for field in table.schema().fields if "timestamp" in str(field.type) and "ntz" not in str(field.type)]
    files = live_files(table) if times else []
    doubtful = [file["path"] for file in files if not all(_lies_within(file, name) for name in times)]
    return next((path for path in doubtful if _has_int96(uri, path)), None)


def _lies_within(file: Mapping[str, Any], column: str) -> bool:
    first, last = file.get(f"min.{column}"), file.get(f"max.{column}")
    if first is None or last is None:
        return file.get("num_records") is not None and file.get(f"null_count.{column}") == file["num_records"]
    return bool(first >= _FIRST and last < _LAST)


def _has_int96(uri: str, path: str) -> bool:
    import pyarrow.parquet as pq

    fs, root = file_system(uri)
    with fs.open(f"{root.rstrip('/')}/{unquote(path)}") as file:
        schema = pq.ParquetFile(file).schema
    return any(schema.column(place).physical_type == "INT96" for place in range(len(schema)))
