"""Many small flows in the tasks of one job: as the driver would apply them, and by the driver where a task cannot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.run import flows_in_tasks
from airflow_cdc.pipeline.run.step import BEGUN, DONE, ENDED, Step
from airflow_cdc.pipeline.spark.task_job import TasksFailedError
from tests.conftest import Apply
from tests.support.events import sqlserver, write_records
from tests.support.tables import read_rows

TOPICS = [f"source.dbo.table{number}" for number in range(3)]
FLOWS = {topic: CdcFlow(topic, max_microbatch_bytes=1) for topic in TOPICS}


@pytest.fixture(autouse=True)
def is_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's own two processes count as a cluster, and three flows as many."""
    monkeypatch.setattr(flows_in_tasks, "has_cluster", lambda _spark: True)
    monkeypatch.setattr(flows_in_tasks, "FROM_FLOWS", 2)


def write(archive: Path, topic: str, number: int, *, changes: int = 5, broken: bool = False) -> None:
    """Write a file of one topic's changes, each of a row of its own or of the last file's."""
    first = number * 10
    records = [
        sqlserver(
            "u" if number else "c", commit=first + key + 1, key={"id": key}, after={"id": key, "n": first}, topic=topic, offset=first + key
        )
        for key in range(changes)
    ]
    path = archive / topic / f"{number}.jsonl"
    write_records(path, records)
    if broken:
        path.write_text(path.read_text() + "{\n")


def without_times(batch: BatchReport) -> BatchReport:
    return replace(batch, started_at=None, seconds=0.0, stage_seconds={})


def names_of(spark: SparkSession, lake: Path, topic: str) -> dict[int, int]:
    return {row["id"]: row["n"] for row in read_rows(spark, str(lake), topic).rows}


def test_tasks_apply_flows_as_the_driver_does(apply: Apply, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in TOPICS:
        for number in range(3):
            write(tmp_path / "archive", topic, number)
    lines: list[str] = []
    steps: list[Step] = []
    in_tasks = apply(tmp_path / "archive", tmp_path / "one", flows=FLOWS, progress=lines.append, watch=steps.append)
    assert "3 flows are applied by 1 tasks" in lines
    monkeypatch.setattr(flows_in_tasks, "FROM_FLOWS", 10**6)
    by_driver = apply(tmp_path / "archive", tmp_path / "other", flows=FLOWS)
    for one, other in zip(in_tasks.flows, by_driver.flows, strict=True):
        assert [batch.engine for batch in one.batches] == ["native"] * 3
        assert list(map(without_times, one.batches)) == list(map(without_times, other.batches))
        assert replace(one, batches=(), table=None) == replace(other, batches=(), table=None)
        assert names_of(spark, tmp_path / "one", one.flow) == dict.fromkeys(range(5), 20)
    stages = [step.stage for step in steps if step.flow == TOPICS[0]]
    assert stages.count(BEGUN) == stages.count(DONE) == 3
    assert stages[-1] == ENDED
    assert sum(f"{TOPICS[0]}: microbatch" in line for line in lines) == 3


def test_the_driver_goes_on_where_a_task_needs_spark(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    for topic in TOPICS:
        for number in range(3):
            write(tmp_path / "archive", topic, number, broken=topic == TOPICS[1] and number == 1)
    lines: list[str] = []
    report = apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS, progress=lines.append)
    engines = {flow.flow: [batch.engine for batch in flow.batches] for flow in report.flows}
    assert engines == {TOPICS[0]: ["native"] * 3, TOPICS[1]: ["native", "spark", "native"], TOPICS[2]: ["native"] * 3}
    assert report.flows[1].status is FlowStatus.APPLIED
    assert report.flows[1].events.rejected == 1
    assert names_of(spark, tmp_path / "lake", TOPICS[1]) == dict.fromkeys(range(5), 20)
    assert not [line for line in lines if "FAILED" in line]


def test_a_flow_that_fails_in_a_task_fails_alone(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    for topic in TOPICS:
        write(tmp_path / "archive", topic, 0)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / TOPICS[0]).write_text("a file where the table should be")
    report = apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS, may_fail=True)
    assert [flow.status for flow in report.flows] == [FlowStatus.FAILED, FlowStatus.APPLIED, FlowStatus.APPLIED]
    (tmp_path / "lake" / TOPICS[0]).unlink()
    assert apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS).flows[0].status is FlowStatus.APPLIED
    assert names_of(spark, tmp_path / "lake", TOPICS[0]) == dict.fromkeys(range(5), 0)


def test_a_flow_whose_state_cannot_be_read_fails_alone(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    for topic in TOPICS:
        write(tmp_path / "archive", topic, 0)
    apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS)
    for topic in TOPICS:
        write(tmp_path / "archive", topic, 1)
    for state in (tmp_path / "lake" / "_cdc" / "flows" / TOPICS[0]).rglob("*.json"):
        state.write_text("{")
    report = apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS, may_fail=True)
    assert [flow.status for flow in report.flows] == [FlowStatus.FAILED, FlowStatus.APPLIED, FlowStatus.APPLIED]
    assert report.flows[0].error is not None
    assert report.flows[0].error["type"] == "StateUnreadableError"


def test_where_the_job_fails_the_driver_applies_all(
    apply: Apply, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in TOPICS:
        write(tmp_path / "archive", topic, 0)

    def fail(*_: Any) -> list[str]:
        raise TasksFailedError("an executor was lost")

    monkeypatch.setattr(flows_in_tasks, "call_in_tasks", fail)
    lines: list[str] = []
    report = apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS, progress=lines.append)
    assert "the tasks cannot apply flows: an executor was lost" in lines
    assert {flow.status for flow in report.flows} == {FlowStatus.APPLIED}
    assert names_of(spark, tmp_path / "lake", TOPICS[2]) == dict.fromkeys(range(5), 0)


def test_a_task_that_runs_twice_applies_once(apply: Apply, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in TOPICS:
        write(tmp_path / "archive", topic, 0)
    call: Callable[..., list[str]] = flows_in_tasks.call_in_tasks

    def twice(*given: Any) -> list[str]:
        call(*given)
        return call(*given)

    monkeypatch.setattr(flows_in_tasks, "call_in_tasks", twice)
    report = apply(tmp_path / "archive", tmp_path / "lake", flows=FLOWS)
    # The second time nothing was left to do; the run did it all the same.
    assert [(flow.status, flow.events.read, flow.is_new_table) for flow in report.flows] == [(FlowStatus.APPLIED, 5, True)] * 3
    for topic in TOPICS:
        assert names_of(spark, tmp_path / "lake", topic) == dict.fromkeys(range(5), 0)
        history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'lake' / topic}`").collect()
        assert [row["operation"] for row in history].count("MERGE") == 1


def lines_of(apply: Apply, tmp_path: Path, **settings: Any) -> list[str]:
    for topic in TOPICS:
        write(tmp_path / "archive", topic, 0)
    lines: list[str] = []
    report: ApplyReport = apply(tmp_path / "archive", tmp_path / "lake", progress=lines.append, **settings)
    assert {flow.status for flow in report.flows} == {FlowStatus.APPLIED}
    return lines


@pytest.mark.parametrize(
    "settings",
    [
        {"consistent": True},
        {"engine": Engine.SPARK},
        {"flows": {topic: CdcFlow(topic, stored_as_scd_type=2) for topic in TOPICS[:2]}},
    ],
    ids=str,
)
def test_flows_for_spark_and_consistent_runs_are_the_driver_s(settings: dict[str, Any], apply: Apply, tmp_path: Path) -> None:
    assert not [line for line in lines_of(apply, tmp_path, **settings) if "applied by" in line]


def test_large_flows_are_the_driver_s(apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows_in_tasks, "_MOST_TEXT_BYTES", 100)
    assert not [line for line in lines_of(apply, tmp_path) if "applied by" in line]
