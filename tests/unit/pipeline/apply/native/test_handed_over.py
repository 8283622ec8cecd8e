"""Where archive, table and lake lie decides whether the native engine is asked at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.apply.native.handed_over import why_not_merged, why_not_read
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.spark import storage
from airflow_cdc.pipeline.target.target_table import TargetTable

LAKE = "s3://lake/root"
FILES = (ArchivedFile("1.jsonl", 1, "t", format=FileFormat.LINES),)


@pytest.fixture(autouse=True)
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that has read its state in the lake by keys of a connection."""
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.delenv(name)
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri, **options: (None, ""))
    monkeypatch.setattr(storage, "_OPTIONS", {})
    monkeypatch.setattr(storage, "_CALLED", set())
    storage.use_options({"s3://lake": {"key": "AK", "secret": "s3cr3t"}})
    storage.file_system(LAKE)


def reason(tmp_path: Path, *, archive: str = "s3://events/topics", lake: str = LAKE, **flow: Any) -> str | None:
    run = MicrobatchRun(
        spark=None,  # type: ignore[arg-type] # nothing here asks it
        lake=lake,
        flow=CdcFlow("t", **flow),
        application="t:1",
        checkpoint=FlowCheckpoint("t"),
        microbatch=Microbatch("t", 1, archive, FILES, PlanPosition(), ()),
        past=FlowState(LocalFileSystem(), str(tmp_path), "t"),
    )
    target = TargetTable(uri=run.table, columns={}, keys=(), size=1, files=1, deletion_vectors=False)
    if found := why_not_read(run, target):
        return found
    by_spark = why_not_merged(run)
    return by_spark and f"merged by Spark: {by_spark}"


@pytest.mark.parametrize("archive", ["s3://events/topics", "/archive", "file:///archive", "gs://events/topics", "abfss://c@a.dfs.x/topics"])
@pytest.mark.parametrize("lake", [LAKE, "s3a://lake/root", "/lake"])
def test_archive_and_lake_may_lie_on_different_stores(tmp_path: Path, archive: str, lake: str) -> None:
    assert reason(tmp_path, archive=archive, lake=lake) is None


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"archive": "hdfs://name:8020/topics"}, "the archive is on a store that only Spark reads"),
        ({"lake": "hdfs://name:8020/lake"}, "the lake is on a store that only Spark writes"),
        ({"lake": "s3://other/root"}, "merged by Spark: the job reads nothing else from the table's store, so its credentials are unknown"),
        ({"table": "s3://third/t"}, "merged by Spark: the table is on another store than the lake"),
        ({"table": "s3://lake/a%23b"}, "merged by Spark: delta-rs reads another folder where a name holds % and two digits"),
    ],
)
def test_other_places_are_left_to_spark(tmp_path: Path, changes: dict[str, Any], shown: str) -> None:
    assert shown in str(reason(tmp_path, **changes))


def test_an_option_that_delta_rs_does_not_have_is_named(tmp_path: Path) -> None:
    storage.use_options({"s3://lake": {"key": "AK", "secret": "s3cr3t", "profile": "etl"}})
    assert reason(tmp_path) == "merged by Spark: the store's option profile has no equivalent in delta-rs"
