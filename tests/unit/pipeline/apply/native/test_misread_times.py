"""Files whose times delta-rs would read as others are found: the native engine copies whole files."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from airflow_cdc.pipeline.apply.native.misread_times import misread_file


def table_of(folder: Path, values: list[datetime | None], *, int96: bool = True, more: int = 0) -> DeltaTable:
    """Make a table with one file, with ``more`` columns before the times."""
    columns: dict[str, Any] = {f"c{place}": pa.array([1] * len(values)) for place in range(more)}
    folder.mkdir()
    rows = pa.table({**columns, "at": pa.array(values, pa.timestamp("us", "UTC"))})
    pq.write_table(rows, folder / "a b.parquet", use_deprecated_int96_timestamps=int96, store_schema=False)
    convert_to_deltalake(str(folder))
    times = [value.isoformat() for value in values if value]
    _as_spark_writes(folder / "_delta_log" / f"{0:020d}.json", statistics=None if more else _statistics(times, len(values)))
    return DeltaTable(str(folder))


def _statistics(times: list[str], count: int) -> str:
    ends = {"minValues": {"at": min(times)}, "maxValues": {"at": max(times)}} if times else {"minValues": {}, "maxValues": {}}
    return json.dumps({"numRecords": count, **ends, "nullCount": {"at": count - len(times)}})


def _as_spark_writes(commit: Path, *, statistics: str | None) -> None:
    """Change a log's first commit: delta-rs takes INT96 for times without a zone, and writes no statistics of it."""
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["stats"] = statistics
        if "metaData" in action:
            action["metaData"]["schemaString"] = action["metaData"]["schemaString"].replace("timestamp_ntz", "timestamp")
    commit.write_text("\n".join(map(json.dumps, actions)))


def at(year: int) -> datetime:
    return datetime(year, 1, 1, 0, 0, 0, 500_000, tzinfo=timezone.utc)


@pytest.mark.parametrize("year", [1, 1500, 2300, 9999])
def test_a_time_that_nanoseconds_do_not_reach_is_found(year: int, tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", [at(2024), at(year)])
    assert misread_file(table, str(tmp_path / "t")) == "a%20b.parquet"
    # What the guard is for; where this fails, delta-rs has learned to read INT96.
    read = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())["at"].to_pylist()
    assert read[0] == at(2024)
    assert read[1] != at(year)


@pytest.mark.parametrize("values", [[at(1700), at(2261)], [None, None], []])
def test_times_within_reach_and_none_at_all_are_no_reason(values: list[datetime | None], tmp_path: Path) -> None:
    assert misread_file(table_of(tmp_path / "t", values), str(tmp_path / "t")) is None


def test_a_file_of_microseconds_is_read_rightly_whatever_it_holds(tmp_path: Path) -> None:
    assert misread_file(table_of(tmp_path / "t", [at(1), at(9999)], int96=False), str(tmp_path / "t")) is None


def test_without_statistics_the_footer_decides(tmp_path: Path) -> None:
    by_int96, by_micros = (table_of(tmp_path / str(int96), [at(2024)], int96=int96, more=40) for int96 in (True, False))
    assert "min.at" not in by_int96.get_add_actions(flatten=True).schema.names
    assert misread_file(by_int96, str(tmp_path / "True")) == "a%20b.parquet"
    assert misread_file(by_micros, str(tmp_path / "False")) is None
