"""Write rows into a new file of a Delta table, with right statistics (:mod:`airflow_cdc.pipeline.target.file_statistics`).

delta-rs's own are rounded for DECIMAL, and leave NaN out (:mod:`airflow_cdc.pipeline.target.rounded_range`). So all rows that are written
without Spark are written here.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from airflow_cdc.pipeline.native.duckdb_sql import name, text
from airflow_cdc.pipeline.spark.storage import file_system, is_local
from airflow_cdc.pipeline.target.add_actions import Action, statistics_of
from airflow_cdc.pipeline.target.file_statistics import read_footer, statistics_of_file
from airflow_cdc.pipeline.target.open_natively import native_path

_WRITTEN = "FORMAT parquet, COMPRESSION zstd"


def add_rows(connection: Any, table: Any, uri: str, *, rows: str, keys: Sequence[str] = ()) -> list[Action]:
    """Write rows into a new file of the table and return its ``add`` action; none where there are none.

    :param connection: of DuckDB.
    :param table: delta-rs's table.
    :param rows: query, with the table's types.
    :param keys: columns in whose order the rows are written, so that later merges and readers pass over parts of the file.
    :raises duckdb.Error: when the rows cannot be written.
    :raises OSError: when the store fails.
    """
    file = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    fields = json.loads(table.schema().to_json())["fields"]
    query = f"SELECT * FROM ({rows}){' ORDER BY ' if keys else ''}{', '.join(map(name, keys))}"
    with _folder_for(uri) as folder:
        path = Path(folder, file)
        ((count,),) = connection.execute(f"COPY ({query}) TO {text(str(path))} ({_WRITTEN})").fetchall()
        if not count:
            path.unlink(missing_ok=True)
            return []
        size, statistics = path.stat().st_size, statistics_of_file(read_footer(path), fields)
        if not is_local(uri):
            fs, root = file_system(uri)
            fs.put_file(str(path), f"{root.rstrip('/')}/{file}")
    now = time.time_ns() // 1_000_000
    return [{"path": file, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": True, "stats": statistics}]


def rows_in(added: Sequence[Action]) -> int:
    """Return the number of rows of files that were written."""
    return sum(int(statistics_of(each)["numRecords"]) for each in added)


def _folder_for(uri: str) -> AbstractContextManager[str]:
    """Return the folder in which DuckDB writes a table's new file."""
    return nullcontext(native_path(uri)) if is_local(uri) else tempfile.TemporaryDirectory(prefix="airflow-cdc-")
