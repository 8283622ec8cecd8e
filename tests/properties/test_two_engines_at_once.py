"""Microbatches that the native engine folds and Spark merges give the same table, delete markers and report as Spark alone."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.apply.native import settle_rows, take_plain
from tests.conftest import Apply
from tests.properties.test_two_engines import (
    BEGINS,
    DIALECTS,
    PAIRED,
    RECORDS,
    VALUES,
    LargeValues,
    Source,
    archive_of,
    compare,
    flow_by,
    older_values,
)
from tests.support.crashes import apply_through_crashes
from tests.support.events import numbered, write_records
from tests.support.tables import read_rows

pytest.importorskip("duckdb")

LARGE = "few events touch many files of a large table"


@pytest.fixture
def tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as so large that Spark merges."""
    monkeypatch.setattr(settle_rows, "MOST_TOUCHED_BYTES", -1)


TOO_LARGE = "the driver has no room for it"


@pytest.fixture
def drivers_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No microbatch fits into the driver, and Spark's tasks count as a cluster's."""
    monkeypatch.setattr(take_plain, "why_too_large", lambda _microbatch: TOO_LARGE)
    monkeypatch.setattr(take_plain, "has_cluster", lambda _spark: True)


def engines_of(batches: list[Any]) -> list[tuple[str, str]]:
    return [(batch.engine, batch.engine_reason) for batch in batches]


def late_archive(seed: int, dialect: str, folder: Path, *, begin: str) -> None:
    """Write files whose order is not that of their events: some hold events behind, or between, those of earlier ones."""
    source = Source(DIALECTS[dialect], seed)
    first = source.load(30) if begin == "creates" else source.snapshot(30, again=False)
    records = numbered([*first, *source.changes(60)])
    cuts = [0, 30, 60, len(records)]
    parts = [records[begins:ends] for begins, ends in pairwise(cuts)]
    for number, place in enumerate((0, 2, 1)):
        write_records(folder / f"{number:03d}.jsonl", parts[place])


@pytest.mark.usefixtures("tables_are_large")
@pytest.mark.parametrize(
    ("dialect", "begin", "layout"),
    [
        pytest.param("postgresql", "reads and changes", RECORDS, marks=pytest.mark.deep),
        pytest.param("sqlserver", "creates", PAIRED, marks=pytest.mark.deep),
        pytest.param("oracle", "reads", VALUES, marks=pytest.mark.deep),
        pytest.param("mariadb", "reads and changes", PAIRED, marks=pytest.mark.deep),
        pytest.param("db2", "creates", RECORDS, marks=pytest.mark.deep),
    ],
)
def test_what_is_folded_natively_is_merged_by_spark_alike(
    dialect: str, begin: str, layout: str, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    archive_of(DIALECTS[dialect], 4, tmp_path / "archive", files=2, changes=40, begin=begin, layout=layout)
    batches = compare(spark, apply, tmp_path)
    assert ("mixed", LARGE) in engines_of(batches)
    assert {*engines_of(batches)} <= {("native", ""), ("mixed", LARGE)}


@pytest.mark.parametrize(
    ("dialect", "begin"),
    [
        ("sqlserver", "creates"),
        *(pytest.param(dialect, begin, marks=pytest.mark.deep) for dialect, begin in zip(DIALECTS, BEGINS * 2, strict=False)),
    ],
)
def test_late_events_are_merged_natively(dialect: str, begin: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    late_archive(5, dialect, tmp_path / "archive", begin=begin)
    batches = compare(spark, apply, tmp_path)
    assert {*engines_of(batches)} == {("native", "")}
    assert sum(batch.events.stale for batch in batches) > 0


@pytest.mark.usefixtures("tables_are_large")
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 8))])
def test_values_that_events_leave_out_come_from_the_row_that_spark_merges(
    seed: int, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    source, first = LargeValues(seed), 0
    for number, (changes, asks_table) in enumerate([(60, False), (60, True)]):
        records = source.file(changes, asks_table=asks_table)
        write_records(tmp_path / "archive" / f"{number}.jsonl", numbered(records, first=first))
        first += len(records)
    batches = compare(spark, apply, tmp_path)
    assert [batch.engine for batch in batches].count("mixed") >= 1, engines_of(batches)
    assert older_values(spark, tmp_path) > 5


@pytest.mark.usefixtures("drivers_are_small")
@pytest.mark.parametrize(
    ("dialect", "begin", "layout"),
    [
        ("postgresql", "reads and changes", PAIRED),
        pytest.param("sqlserver", "creates", VALUES, marks=pytest.mark.deep),
        pytest.param("oracle", "reads", RECORDS, marks=pytest.mark.deep),
        pytest.param("mariadb", "reads and changes", RECORDS, marks=pytest.mark.deep),
        pytest.param("db2", "reads", PAIRED, marks=pytest.mark.deep),
    ],
)
def test_what_executors_fold_is_the_same(dialect: str, begin: str, layout: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    archive_of(DIALECTS[dialect], 6, tmp_path / "archive", files=2, changes=40, begin=begin, layout=layout)
    batches = compare(spark, apply, tmp_path, at_once=layout != RECORDS)
    assert {*engines_of(batches)} == {("mixed", TOO_LARGE)}


@pytest.mark.deep
@pytest.mark.usefixtures("tables_are_large")
def test_a_crash_after_every_effect_loses_and_doubles_nothing(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    rows = archive_of(DIALECTS["postgresql"], 3, tmp_path / "archive", files=1, changes=40)
    report, crashed = apply_through_crashes(apply, tmp_path / "archive", tmp_path / "crashed", flow_by(Engine.NATIVE))
    assert {"intent", "target", "stage", "delete_markers", "merge", "commit"} <= crashed
    assert report.ok
    (last, *_) = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'crashed' / 'source.dbo.engines'}`").collect()
    assert (last["operation"], json.loads(last["userMetadata"])["report"]["engine"]) == ("MERGE", "mixed")
    assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "crashed"), "source.dbo.engines").rows} == rows
