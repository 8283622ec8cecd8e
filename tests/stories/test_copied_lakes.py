"""A lake that was copied or moved, with its tables: it is a lake of its own, and whoever looks at it sees its own tables."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.look.flow_rows import read_rows_natively
from airflow_cdc.pipeline.look.flow_summaries import summarize_natively
from airflow_cdc.pipeline.run.apply_archive import ArchiveRun, apply_archive
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.plugins.page.detail import table
from airflow_cdc.plugins.page.lake_view import LakeView
from tests.support.events import TOPIC, numbered, sqlserver, write_records

pytest.importorskip("duckdb")


def no_session() -> SparkSession:
    raise AssertionError("Spark was asked for")


def apply(folder: Path, lake: Path, key: int) -> None:
    (folder / "archive").mkdir(exist_ok=True)
    event = sqlserver("c", commit=key, after={"id": key, "name": ""})
    write_records(folder / "archive" / f"{key}.jsonl", numbered([event], first=key))
    report = apply_archive(ArchiveRun(late_session(no_session), str(folder / "archive"), str(lake), engine=Engine.NATIVE))
    assert report.ok, [flow.error for flow in report.flows]


def keys(lake: Path) -> list[int]:
    found = QueryBuilder().register("t", DeltaTable(str(lake / TOPIC))).execute("SELECT id FROM t ORDER BY id")
    return [row["id"] for row in pa.table(found).to_pylist()]


@pytest.mark.parametrize("is_moved", [False, True], ids=["copied", "moved"])
def test_each_lake_goes_on_with_its_own_tables(tmp_path: Path, is_moved: bool) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    apply(tmp_path, lake, 1)
    (shutil.move if is_moved else shutil.copytree)(str(lake), str(other))
    (seen,) = summarize_natively(str(other))
    assert (seen.table, seen.rows) == (f"{other}/{TOPIC}", 1)
    apply(tmp_path, other, 2)
    assert keys(other) == [1, 2]
    assert [row["id"] for row in read_rows_natively(str(other), TOPIC).rows] == [1, 2]
    assert lake.exists() is not is_moved
    if not is_moved:
        assert keys(lake) == [1]
        apply(tmp_path, lake, 3)
        assert (keys(lake), keys(other)) == ([1, 2, 3], [1, 2])


def test_the_page_of_a_copy_shows_the_copys_tables(tmp_path: Path) -> None:
    lake, other = tmp_path / "lake", tmp_path / "other"
    apply(tmp_path, lake, 1)
    shutil.copytree(lake, other)
    apply(tmp_path, lake, 2)
    shown = table(LakeView(str(other)).flow(TOPIC))
    assert (shown["uri"], shown["table"]["rows"]) == (f"{other}/{TOPIC}", 1)
