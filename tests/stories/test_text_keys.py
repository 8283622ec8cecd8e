"""Keys that are kept as text: one value has one text in a table, whatever unit its events have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.decode.types.text_forms import TIME, TextForm
from airflow_cdc.pipeline.repair.retype import Retyping, retype
from airflow_cdc.pipeline.target.target_table import read_target
from tests.conftest import Apply
from tests.stories.test_widening import TOPIC, Field, Source, plain
from tests.support.tables import read_rows

MILLIS: Field = {**plain("id", "int32"), "name": "io.debezium.time.Time"}
MICROS, NANOS = ({**plain("id", "int64"), "name": f"io.debezium.time.{unit}Time"} for unit in ("Micro", "Nano"))
WORD = plain("v", "string")
HOUR = 3_600_000


def rows_of(spark: SparkSession, lake: Path) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["v"]) for row in read_rows(spark, str(lake), TOPIC).rows)


def stopped(outcome: FlowOutcome) -> dict[str, Any]:
    assert outcome.error is not None
    assert outcome.error["type"] == "SchemaChangeError"
    return outcome.error


@pytest.mark.both_engines
def test_a_coarser_event_finds_its_row(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """``01:00:00.000`` is no key of a table with ``01:00:00.000000``: the row doubled, and its delete removed nothing."""
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    finer, coarser = [MICROS, WORD], [MILLIS, WORD]
    source.load(*(source.event("c", finer, hour * HOUR * 1000, "old") for hour in (1, 2, 3)))
    source.load(source.event("u", coarser, HOUR, "new"), source.event("d", coarser, 2 * HOUR))
    assert rows_of(spark, source.lake) == [("01:00:00.000000", "new"), ("03:00:00.000000", "old")]


@pytest.mark.parametrize("way", ["retype", pytest.param("rebuild", marks=pytest.mark.deep)])
def test_a_finer_event_stops_the_flow_and_what_the_error_advises_works(apply: Apply, spark: SparkSession, tmp_path: Path, way: str) -> None:
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    coarser, finer = [MILLIS, WORD], [MICROS, WORD]
    source.load(*(source.event("c", coarser, hour * HOUR, "old") for hour in (1, 2, 3)))
    source.load(source.event("d", coarser, 3 * HOUR))
    error = stopped(source.load(source.event("u", finer, HOUR * 1000, "new"), source.event("d", finer, 2 * HOUR * 1000), may_fail=True))
    assert "TIME(3)" in error["message"]
    assert "TIME(6)" in error["message"]
    assert rows_of(spark, source.lake) == [("01:00:00.000", "old"), ("02:00:00.000", "old")]

    assert f"airflow-cdc retype {TOPIC}, or rebuild the flow" in error["next_step"]
    if way == "retype":
        retype(Retyping(spark, str(tmp_path / "archive"), str(source.lake), TOPIC, flows={TOPIC: CdcFlow(TOPIC)}))
    else:
        shutil.rmtree(source.lake / TOPIC)
        shutil.rmtree(source.lake / "_cdc/flows" / TOPIC)
    # What came before goes on, under the keys of the finest form.
    source.load(source.event("u", coarser, HOUR, "newer"), source.event("u", finer, 4 * HOUR * 1000 + 1, "fine"))
    assert rows_of(spark, source.lake) == [("01:00:00.000000", "newer"), ("04:00:00.000001", "fine")]
    table = read_target(spark, str(source.lake / TOPIC))
    assert table is not None
    assert table.forms == {"id": TextForm(TIME, 6)}


@pytest.mark.deep
def test_one_microbatch_with_all_units_has_the_keys_of_the_finest(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    source.load(
        source.event("c", [MILLIS, WORD], HOUR, "a"),
        source.event("u", [NANOS, WORD], HOUR * 1_000_000, "b"),
        source.event("u", [MICROS, WORD], HOUR * 1_000, "c"),
    )
    assert rows_of(spark, source.lake) == [("01:00:00.000000000", "c")]


@pytest.mark.deep
def test_a_text_that_is_no_key_follows_its_event(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    at = {"millis": {**MILLIS, "field": "v"}, "micros": {**MICROS, "field": "v"}}
    source.load(source.event("c", [plain("id", "int32"), at["millis"]], 1, HOUR))
    source.load(source.event("c", [plain("id", "int32"), at["micros"]], 2, HOUR * 1000))
    assert rows_of(spark, source.lake) == [(1, "01:00:00.000"), (2, "01:00:00.000000")]


@pytest.mark.deep
def test_a_declared_text_of_timestamps_gets_the_digits_of_nanoseconds(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """As the error of a timestamp that becomes a text advises: declare STRING, and make the table anew."""
    flow = CdcFlow(TOPIC, columns={"id": "STRING"})
    source = Source(apply, tmp_path, flow)
    micros, nanos = ([{**plain("id", "int64"), "name": f"io.debezium.time.{unit}Timestamp"}, WORD] for unit in ("Micro", "Nano"))
    day = 86_400_000_000
    source.load(source.event("c", micros, day, "a"), source.event("c", micros, 2 * day + 500_000, "kept"))
    error = stopped(source.load(source.event("u", nanos, day * 1_000, "b"), may_fail=True))
    assert "TIMESTAMP_NTZ(9)" in error["message"]
    retype(Retyping(spark, str(tmp_path / "archive"), str(source.lake), TOPIC, flows={TOPIC: flow}))
    source.load(source.event("u", micros, 2 * day + 500_000, "c"))
    assert rows_of(spark, source.lake) == [("1970-01-02 00:00:00.000000000", "b"), ("1970-01-03 00:00:00.500000000", "c")]
