"""Archive and lake on two S3-compatible stores: the native engine and Spark give the same table, delete markers and reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cdc import runtime
from airflow_cdc.model.flow.engine import MIXED
from airflow_cdc.model.report.batch_report import BatchReport
from tests.properties.test_two_engines import DIALECTS, TOPIC, archive_of
from tests.system.object_store import SPARK_WITH_S3, Store, path_with_packages, python, two_stores

pytestmark = pytest.mark.system_deep

APPLY = """
import os
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.session import start_session
from airflow_cdc.pipeline.spark.storage import use_options
archive, lake, topic, file_systems, options, environment = given
use_options(file_systems)
os.environ.update(environment)
spark = start_session("engines", master="local[1]", options=options)
spark.sparkContext.setLogLevel("ERROR")
answer = {}
for engine in Engine.SPARK, Engine.NATIVE:
    # One file a microbatch.
    flow = CdcFlow(topic, keys=("id",), columns={"share": "DOUBLE"}, engine=engine, max_microbatch_bytes=1)
    report = apply_archive(ArchiveRun(spark, archive, f"{lake}/{engine.value}", {topic: flow}))
    assert report.ok, report
    answer[engine.value] = [batch.to_json() for batch in report.flows[0].batches]
spark.stop()
"""


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """One for the archive, one for the lake."""
    with two_stores(tmp_path) as both:
        yield both


def applied(stores: tuple[Store, Store], tmp_path: Path, environment: dict[str, str] | None = None) -> dict[str, list[BatchReport]]:
    """Apply the archive once by each engine, into lakes of their own, and return the reports of the microbatches."""
    archive, lake = stores
    archive_of(DIALECTS["sqlserver"], 5, tmp_path / "files", files=3, changes=40)
    archive.put(tmp_path / "files", "topics")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    started = {**kept, **runtime.spark_environment("local[1]"), "PYTHONPATH": path_with_packages()}
    file_systems = {
        f"s3://{store.bucket}": {name: value for name, value in store.options.items() if name != "use_listings_cache"} for store in stores
    }
    options = {**archive.spark_options, **lake.spark_options, **SPARK_WITH_S3, "spark.local.dir": str(tmp_path / "spark")}
    found = python(APPLY, started, "s3://events/topics", "s3://tables/lake", TOPIC, file_systems, options, environment or {})
    return {engine: [BatchReport.from_json(batch) for batch in batches] for engine, batches in found.items()}


def rows(store: Store, engine: str, place: str) -> list[dict[str, Any]]:
    table = DeltaTable(f"s3://{store.bucket}/lake/{engine}/{place}", storage_options=store.delta_options)
    read = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    found: list[dict[str, Any]] = pa.table(read).to_pylist()
    return sorted(found, key=lambda row: (row["id"], str(row)))


def same(batch: BatchReport) -> BatchReport:
    """Return a report without what engines may do differently."""
    return replace(batch, started_at=None, seconds=0.0, stage_seconds={}, merge_plan="", engine="", engine_reason="")


def test_both_engines_give_the_same_on_object_stores(stores: tuple[Store, Store], tmp_path: Path) -> None:
    reports = applied(stores, tmp_path)
    assert [(batch.engine, batch.engine_reason) for batch in reports["native"]] == [("native", "")] * 4
    assert [same(batch) for batch in reports["native"]] == [same(batch) for batch in reports["spark"]]
    for place in (TOPIC, f"_cdc/flows/{TOPIC}/delete_markers"):
        expected = rows(stores[1], "spark", place)
        assert rows(stores[1], "native", place) == expected
        assert expected


def test_a_variable_that_would_lead_delta_rs_elsewhere_leaves_the_merges_to_spark(stores: tuple[Store, Store], tmp_path: Path) -> None:
    # A token that belongs to something else; fsspec and Spark do not read it, delta-rs would.
    reports = applied(stores, tmp_path, {"TOKEN": "of-something-else"})
    left = (MIXED, "delta-rs may read the environment variable TOKEN")
    assert [(batch.engine, batch.engine_reason) for batch in reports["native"]] == [left] * 4
    assert rows(stores[1], "native", TOPIC) == rows(stores[1], "spark", TOPIC)
