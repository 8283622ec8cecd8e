"""Whatever the split into microbatches, the replay, the crash: the table is the source's."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.support.crashes import apply_through_crashes
from tests.support.events import Record, write_records
from tests.support.oracle import History, SourceDatabase, Statement, histories
from tests.support.tables import read_quarantine, read_rows

pytestmark = pytest.mark.both_engines

TOPIC = "source.dbo.table"
ONE_FILE_A_BATCH = {TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)}


def land(files: list[list[Record]], archive: Path, order: list[int] | None = None) -> None:
    for place, number in enumerate(order if order is not None else range(len(files))):
        write_records(archive / f"{place:03d}.jsonl", files[number])


def table_of(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), TOPIC).rows


def rows_of(database: SourceDatabase) -> list[dict[str, Any]]:
    return [database.rows[key] for key in sorted(database.rows)]


def check_history(history: History, shuffled: list[int], apply: Apply, spark: SparkSession, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    database = history.play(TOPIC)
    files = history.files(database.events)

    land(files, folder / "archive")
    report = apply(folder / "archive", folder / "lake", flows=ONE_FILE_A_BATCH)
    assert table_of(spark, folder / "lake") == rows_of(database)
    assert report.flows[0].events.read == len(database.events)
    assert report.flows[0].events.rejected == 0

    # The same files in another order, then all of them once more under other names.
    order = sorted(range(len(files)), key=lambda number: shuffled[number % len(shuffled)])
    land([*files, *files], folder / "shuffled", [*order, *(number + len(files) for number in reversed(order))])
    apply(folder / "shuffled", folder / "other", flows=ONE_FILE_A_BATCH)
    assert table_of(spark, folder / "other") == rows_of(database)


@pytest.mark.deep
@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(history=histories(), shuffled=st.lists(st.integers(0, 99), min_size=4, max_size=4))
def test_any_split_order_and_replay_gives_the_source_s_rows(
    history: History, shuffled: list[int], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    check_history(history, shuffled, apply, spark, tmp_path / "example")


@pytest.mark.deep
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(history=histories(), shuffled=st.lists(st.integers(0, 99), min_size=4, max_size=4))
def test_any_split_order_and_replay_gives_the_source_s_rows_deep(
    history: History, shuffled: list[int], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    check_history(history, shuffled, apply, spark, tmp_path / "example")


@pytest.mark.parametrize("dialect", ["sqlserver", "postgresql"])
def test_a_read_sent_again_between_two_deliveries_of_a_delete_brings_no_row_back(
    dialect: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """Found by the property above: the first read lay in an earlier microbatch, so nothing there showed that this one is its copy."""
    gone = (((Statement("put", 1, value=5),),), ((Statement("delete", 1),),))
    history = History(dialect, partitions=1, snapshot=(1,), groups=gone, redelivered=(0, 4), cuts=(1, 20))
    assert [len(file) for file in history.files(history.play(TOPIC).events)] == [1, 7]

    check_history(history, [0, 0, 0, 0], apply, spark, tmp_path)


def put(key: int, value: int) -> Statement:
    return Statement("put", key, value=value)


HAZARDS = History(
    dialect="postgresql",
    partitions=3,
    snapshot=(1, 2, 3),
    groups=(
        ((put(1, 10), Statement("move", 2, 5)), (put(7, 11), Statement("delete", 7), put(7, 12))),
        ((Statement("truncate"),),),
        ((put(4, 13), put(5, 14)), (Statement("delete", 4), put(3, 15))),
    ),
    redelivered=(4, 0, 3),
    cuts=(45,),
)


def test_a_crash_after_every_single_effect_loses_and_doubles_nothing(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    database = HAZARDS.play(TOPIC)
    broken: Record = {**database.events[0], "value": {"op": "?"}, "offset": 999}
    files = [[*file, {**broken, "offset": 900 + number}] for number, file in enumerate(HAZARDS.files(database.events))]
    land(files, tmp_path / "archive")

    report, crashed = apply_through_crashes(apply, tmp_path / "archive", tmp_path / "lake", ONE_FILE_A_BATCH[TOPIC])

    assert report.ok
    assert crashed >= {"survey", "intent", "stage", "quarantine", "delete_markers", "target", "merge", "commit"}
    assert table_of(spark, tmp_path / "lake") == rows_of(database)
    # Each reject once, though its append was repeated after the crash.
    rejected = read_quarantine(spark, str(tmp_path / "lake"))
    assert sorted(record["offset"] for record in rejected) == [900 + number for number in range(len(files))]
    # One merge a microbatch: nothing was merged twice.
    merges = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'lake' / TOPIC}`").filter("operation = 'MERGE'").count()
    assert merges == len(files)
