"""Runs over intervals of archived time: side by side and out of order they end where one pass does, and what is outside waits."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.interval import Interval, parse_interval
from airflow_cdc.model.report.apply_report import FlowOutcome, FlowStatus
from airflow_cdc.model.state.lake import FlowState
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.support.tables import read_rows

DAYS = 4


def land(archive: Path) -> None:
    """Land a file a day: of each day a new row, a change of all rows so far, and the end of the row before last."""
    events: list[list[Any]] = []
    for day in range(1, DAYS + 1):
        rows = [sqlserver("u", commit=day * 10 + 1, serial=row, after={"id": row, "day": day}) for row in range(max(1, day - 1), day)]
        made = sqlserver("c", commit=day * 10, after={"id": day, "day": day})
        gone = [sqlserver("d", commit=day * 10 + 2, before={"id": day - 2, "day": day - 1})] if day > 2 else []
        events.append([made, *rows, *gone])
    records = iter(numbered([event for day in events for event in day]))
    for day, of_day in enumerate(events, 1):
        write_records(archive / f"year=2026/month=11/day={day:02d}/events.jsonl", [next(records) for _ in of_day])


def day(number: int) -> Interval:
    return parse_interval(f"2026-11-{number:02d}", f"2026-11-{number + 1:02d}")


def rows(spark: SparkSession, lake: Path) -> list[tuple[int, int]]:
    return [(row["id"], row["day"]) for row in read_rows(spark, str(lake), TOPIC).rows]


def test_a_run_takes_what_was_archived_in_its_interval_and_the_rest_waits(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "archive")
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", interval=day(2)).flows
    assert (flow.status, flow.batches[0].files, flow.outside_files) == (FlowStatus.APPLIED, 1, DAYS - 1)
    assert f"{TOPIC}: {DAYS - 1} files wait that were archived outside of the interval" in list(flow.gap_lines())
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", interval=day(2)).flows
    assert (flow.status, flow.outside_files) == (FlowStatus.WAITING, DAYS - 1)
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", interval=Interval(until=day(3).until)).flows
    assert (flow.batches[0].files, flow.outside_files) == (2, DAYS - 3)
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake").flows
    assert (flow.batches[0].files, flow.outside_files) == (DAYS - 3, 0)
    assert FlowState(fsspec.filesystem("file"), str(tmp_path / "lake"), TOPIC).checkpoint().held == {}


@pytest.mark.deep
def test_intervals_side_by_side_and_out_of_order_end_where_one_pass_does(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "archive")
    apply(tmp_path / "archive", tmp_path / "once")
    expected = rows(spark, tmp_path / "once")
    assert [row for row, _ in expected] == [DAYS - 1, DAYS]

    def run(number: int) -> FlowOutcome:
        # Two runs of one flow at a time: one of them may lose, says so, and is tried again.
        while True:
            (flow,) = apply(tmp_path / "archive", tmp_path / "lake", interval=day(number), may_fail=True).flows
            if flow.error is None:
                return flow
            assert flow.error["transient"], flow.error

    order = list(range(1, DAYS + 1))
    random.Random(5).shuffle(order)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, order))
    assert rows(spark, tmp_path / "lake") == expected
