"""Tables with deletion vectors: both engines mark changed rows and add new ones, and each goes on where the other ended."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.target import alter_table
from tests.conftest import Apply
from tests.properties.test_two_engines import (
    BEGINS,
    CUT,
    DIALECTS,
    PAIRED,
    RECORDS,
    TOPIC,
    VALUES,
    WENT_BACK,
    LargeValues,
    Source,
    archive_of,
    compare,
    flow_by,
    older_values,
)
from tests.support.crashes import apply_through_crashes
from tests.support.events import Row, numbered, sqlserver, write_records
from tests.support.tables import read_rows

pytest.importorskip("duckdb")

UTC = timezone.utc


@pytest.fixture(autouse=True)
def tables_have_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every table counts as large enough for deletion vectors."""
    monkeypatch.setattr(alter_table, "DELETION_VECTORS_FROM_BYTES", 0)


def merges_of(lake: Path) -> list[dict[str, Any]]:
    """Return what the log says of each merge into the table, ascending."""
    logs = (path.read_text() for path in sorted((lake / TOPIC / "_delta_log").glob("*.json")))
    infos = [json.loads(line)["commitInfo"] for text in logs for line in text.splitlines() if line.startswith('{"commitInfo"')]
    return [info for info in infos if info["operation"] == "MERGE"]


def marked_in(merges: list[dict[str, Any]]) -> list[int]:
    return [int(merge["operationMetrics"]["numTargetDeletionVectorsAdded"]) for merge in merges]


@pytest.mark.parametrize(
    ("dialect", "begin", "layout"),
    [
        ("postgresql", "reads and changes", RECORDS),
        *(
            pytest.param(dialect, begin, layout, marks=pytest.mark.deep)
            for dialect, begin, layout in zip(DIALECTS, BEGINS * 2, (PAIRED, RECORDS, VALUES, RECORDS, PAIRED), strict=False)
        ),
    ],
)
def test_both_engines_mark_the_same_rows(dialect: str, begin: str, layout: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    archive_of(DIALECTS[dialect], 8, tmp_path / "archive", files=4, changes=40, begin=begin, layout=layout)
    batches = compare(spark, apply, tmp_path)
    assert {batch.engine_reason for batch in batches if batch.engine == "spark"} <= {WENT_BACK, CUT}
    natively = [merge for merge in merges_of(tmp_path / "native") if "airflow-cdc" in merge["engineInfo"]]
    assert sum(marked_in(natively)) > 2
    if layout == RECORDS:
        # Files are cut alike too.
        assert marked_in(merges_of(tmp_path / "native")) == marked_in(merges_of(tmp_path / "spark"))


def test_values_that_events_leave_out_come_from_marked_tables(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source, first = LargeValues(2), 0
    for number, asks_table in enumerate([False, True, True]):
        records = source.file(50, asks_table=asks_table)
        write_records(tmp_path / "archive" / f"{number}.jsonl", numbered(records, first=first))
        first += len(records)
    batches = compare(spark, apply, tmp_path)
    assert [batch.engine for batch in batches].count("native") >= 2, [batch.engine_reason for batch in batches]
    assert older_values(spark, tmp_path) > 5


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(2, 7))])
def test_engines_that_take_turns_leave_the_source_s_rows(seed: int, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source, first = Source(DIALECTS["sqlserver"], seed), 0
    for number in range(6):
        records = source.changes(40) if number else source.load(40)
        write_records(tmp_path / "archive" / f"{number}.jsonl", numbered(records, first=first))
        first += len(records)
        engine = Engine.SPARK if number % 2 else Engine.NATIVE
        report = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow_by(engine)})
        assert [batch.engine for batch in report.flows[0].batches] == [engine.value]
        assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "lake"), TOPIC).rows} == source.rows
        if number == 3:
            spark.sql(f"OPTIMIZE delta.`{tmp_path / 'lake' / TOPIC}`").collect()
    assert len(merges_of(tmp_path / "lake")) == 6


def test_rows_are_looked_for_again_where_the_table_changed_meanwhile(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source = Source(DIALECTS["sqlserver"], 1, copies=False)
    first = source.load(10)
    write_records(tmp_path / "archive" / "0.jsonl", numbered(first))
    apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow_by(Engine.NATIVE)})
    table = tmp_path / "lake" / TOPIC
    write_records(tmp_path / "archive" / "1.jsonl", numbered(source.changes(20), first=len(first)))

    def meddle(effect: str) -> None:
        if effect == "stage":
            # Other files, and the same rows.
            spark.sql(f"OPTIMIZE delta.`{table}`").collect()
            spark.sql(f"REORG TABLE delta.`{table}` APPLY (PURGE)").collect()
            spark.sql(f"UPDATE delta.`{table}` SET __cdc_offset = __cdc_offset WHERE id < 5").collect()

    report = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow_by(Engine.NATIVE)}, after_effect=meddle)
    assert report.flows[0].batches[0].engine == "native"
    assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "lake"), TOPIC).rows} == source.rows
    counted = report.flows[0].rows
    assert counted.inserted - counted.deleted == len(source.rows) - 10


def test_a_crash_after_every_effect_loses_and_doubles_nothing(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    rows = archive_of(DIALECTS["postgresql"], 3, tmp_path / "archive", files=2, changes=40)
    report, crashed = apply_through_crashes(apply, tmp_path / "archive", tmp_path / "crashed", flow_by(Engine.NATIVE))
    assert {"intent", "target", "delete_markers", "merge", "commit"} <= crashed
    assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "crashed"), TOPIC).rows} == rows
    merges = merges_of(tmp_path / "crashed")
    assert ["airflow-cdc" in merge["engineInfo"] for merge in merges] == [True] * 3
    assert report.ok


@pytest.mark.deep
@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_both_engines_mark_the_same_of_many_histories(dialect: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    for seed in range(20, 25):
        archive_of(DIALECTS[dialect], seed, tmp_path / str(seed) / "archive", files=4, changes=200, begin=BEGINS[seed % 3])
        batches = compare(spark, apply, tmp_path / str(seed))
        assert [batch.engine for batch in batches] == ["native"] * 5


def test_spark_finds_every_row_by_the_statistics_of_our_files(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    pick = random.Random(5)
    columns = {"amount": "DECIMAL(20,2)", "day": "DATE", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "share": "DOUBLE"}
    texts = ["", "a", "z" * 40, "z" * 32, "é" * 40, "\U0010ffff" * 40, "Z", "~"]
    moments = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    ]
    rows: list[Row] = []
    for number in range(8):
        made = []
        for key in range(number * 5, number * 5 + 5):
            at = pick.choice([*moments, datetime(2024, 1, 2, 3, 4, 5, pick.randrange(10**6), UTC)])
            row = {
                "id": key,
                "name": pick.choice(texts),
                "amount": f"{pick.randrange(-(10**18), 10**18) / 100:.2f}",
                "open": pick.random() < 0.5,
            }
            row |= {"day": at.date().isoformat(), "at": f"{at:%Y}".zfill(4) + at.isoformat()[4:-6] + "Z", "share": pick.uniform(-1, 1)}
            rows.append(row | {"local": row["at"].removesuffix("Z")})
            made.append(sqlserver("c", commit=key + 1, key={"id": key}, after=rows[-1], topic=TOPIC, offset=key))
        write_records(tmp_path / "archive" / f"{number}.jsonl", made)
    flow = replace(flow_by(Engine.NATIVE), columns=columns)
    report = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow})
    assert [batch.engine for batch in report.flows[0].batches] == ["native"] * 8, report.flows[0].batches[0].engine_reason
    table = spark.read.format("delta").load(str(tmp_path / "lake" / TOPIC))
    assert len(table.inputFiles()) == 8
    # As text: Python has no instant before the year 1 in this machine's zone.
    asked = ["name", "amount", "open", *columns]
    held = {row["id"]: row for row in table.selectExpr("id", *(f"CAST({column} AS STRING) AS {column}" for column in asked)).collect()}
    kinds = dict(table.dtypes)
    for column in asked:
        for value in {row[column] for row in held.values()}:
            expected = {key for key, row in held.items() if row[column] == value}
            found = table.filter(F.col(column) == F.lit(value).cast(kinds[column])).select("id").collect()
            assert {row["id"] for row in found} == expected, (column, value)
    for key in held:
        assert table.filter(F.col("id") == key).count() == 1
