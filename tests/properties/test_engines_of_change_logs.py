"""The native engine and Spark append the same events to a change log, with the same report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.policies import WriteDisposition
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.native import connect_duckdb
from tests.conftest import Apply
from tests.properties.test_two_engines import (
    DIALECTS,
    PAIRED,
    RECORDS,
    REPEATED,
    TOPIC,
    VALUES,
    WENT_BACK,
    archive_of,
    assert_same_rows,
    compare,
    flow_by,
)
from tests.support.crashes import apply_through_crashes
from tests.support.events import numbered, postgresql, write_records
from tests.support.stories import PLACEHOLDER
from tests.support.tables import read_rows

APPEND = WriteDisposition.APPEND
COPIES, MIXED = "an event comes twice", "snapshot reads among changes"


def check(spark: SparkSession, apply: Apply, folder: Path, dialect: str, *, begin: str, **made: Any) -> list[BatchReport]:
    made = {"files": 2, "layout": RECORDS, "copies": False, **made}
    archive_of(DIALECTS[dialect], 1, folder / "archive", changes=40, begin=begin, **made)
    return compare(spark, apply, folder, write_disposition=APPEND)


def test_both_engines_append_the_same_events(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    batches = check(spark, apply, tmp_path, "postgresql", begin="reads", files=1)
    assert [(batch.engine, batch.engine_reason) for batch in batches] == [("native", "")] * 2
    assert all(batch.rows.inserted == batch.events.merged >= 30 for batch in batches), [batch.rows for batch in batches]


LAYOUTS = {"sqlserver": RECORDS, "postgresql": PAIRED, "oracle": VALUES, "mariadb": RECORDS, "db2": PAIRED}


@pytest.mark.deep
@pytest.mark.parametrize("begin", ["creates", "reads"])
@pytest.mark.parametrize(("dialect", "layout"), LAYOUTS.items())
def test_both_engines_append_the_same_events_of_each_dialect_and_layout(
    dialect: str, layout: str, begin: str, spark: SparkSession, apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect_duckdb, "THREADED_FROM_BYTES", 0)
    batches = check(spark, apply, tmp_path, dialect, begin=begin, layout=layout)
    # One file a microbatch: a partition's may be late behind another's.
    assert {batch.engine_reason for batch in batches} <= {"", *([REPEATED, WENT_BACK] if layout != RECORDS else [])}
    assert [batch.engine for batch in batches].count("native") >= 3


@pytest.mark.deep
def test_copies_and_reads_among_changes_are_left_to_spark(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    batches = check(spark, apply, tmp_path, "postgresql", begin="reads and changes", copies=True)
    assert [batch.engine_reason for batch in batches] == [MIXED, COPIES, COPIES]


@pytest.mark.deep
def test_values_that_an_event_leaves_out_are_null_and_named(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    rows = [
        {"id": 1, "name": "one", "note": "n"},
        {"id": 1, "name": PLACEHOLDER, "note": "m"},
        {"id": 1, "name": "two", "note": PLACEHOLDER},
    ]
    events = [postgresql("u", commit=10 + at, change=20 + at, after=row, topic=TOPIC) for at, row in enumerate(rows)]
    write_records(tmp_path / "archive" / "1.jsonl", numbered(events))
    with_before = [
        postgresql("u", commit=30, change=31, before=rows[0], after=rows[1], topic=TOPIC),
        postgresql("d", commit=40, change=41, before=rows[0], topic=TOPIC),
    ]
    write_records(tmp_path / "archive" / "2.jsonl", numbered(with_before, first=3))
    first, second = compare(spark, apply, tmp_path, write_disposition=APPEND)
    assert (first.engine, second.engine_reason) == ("native", "a value that an event leaves out, with an image before")
    found = read_rows(spark, str(tmp_path / "native"), TOPIC, history=True).rows
    assert [(row["name"], row["__cdc_unavailable"]) for row in found[:3]] == [("one", None), (None, ["name"]), ("two", ["note"])]


@pytest.mark.deep
def test_a_crash_after_every_effect_appends_nothing_twice(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    archive_of(DIALECTS["postgresql"], 3, tmp_path / "archive", files=2, changes=40, copies=False)
    flow = flow_by(Engine.NATIVE, write_disposition=APPEND)
    report, crashed = apply_through_crashes(apply, tmp_path / "archive", tmp_path / "crashed", flow)
    assert (report.ok, {"intent", "stage", "target", "append", "commit"} <= crashed) == (True, True)
    apply(tmp_path / "archive", tmp_path / "once", flows={TOPIC: flow_by(Engine.SPARK, write_disposition=APPEND)})
    assert_same_rows(spark, tmp_path / "crashed", tmp_path / "once", TOPIC)
