"""Runs of groups on one lake: at the same time on disjoint flows, and again after some of a group's flows failed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.look.groups import FlowGroup, plan_groups
from airflow_cdc.model.look.pending import pending_files
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.pipeline.spark.storage import file_system
from tests.conftest import Apply
from tests.support.events import numbered, sqlserver, write_records
from tests.support.tables import read_rows

ORDERS, ITEMS, USERS = (f"s.db.dbo.{name}" for name in ("orders", "items", "users"))
TOPICS = (ITEMS, ORDERS, USERS)


class CrashError(Exception):
    """Stands for a worker that was lost."""


def creates(topic: str, first: int, last: int) -> list[dict[str, Any]]:
    events = [sqlserver("c", commit=number, after={"id": number}, topic=topic) for number in range(first, last + 1)]
    return numbered(events, first=first)


def ids(spark: SparkSession, lake: Path, *topics: str) -> dict[str, list[int]]:
    return {topic: [row["id"] for row in read_rows(spark, str(lake), topic).rows] for topic in topics or TOPICS}


def groups_of(archive: Path, lake: Path, **bounds: int) -> tuple[FlowGroup, ...]:
    (archive_fs, archive_root), (lake_fs, lake_root) = file_system(str(archive)), file_system(str(lake))
    pending = pending_files(archive_fs=archive_fs, archive_root=archive_root, archive=str(archive), lake_fs=lake_fs, lake_root=lake_root)
    return plan_groups(pending, **bounds)


def state_of(archive: Path, lake: Path) -> ArchiveState:
    fs, root = file_system(str(lake))
    return ArchiveState(fs, root, str(archive))


def checkpoints(lake: Path) -> dict[str, tuple[int, int | None]]:
    fs, root = file_system(str(lake))
    found = {topic: FlowState(fs, root, topic).checkpoint() for topic in TOPICS}
    return {topic: (checkpoint.number, checkpoint.table_version) for topic, checkpoint in found.items()}


def applied(report: ApplyReport) -> dict[str, int]:
    return {flow.flow: len(flow.batches) for flow in report.flows}


@pytest.mark.deep
def test_two_runs_at_once_on_disjoint_flows_both_succeed_and_the_files_are_surveyed_once(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    # Of one file nobody knows before that it holds rows of both groups' tables, and one that no plan has named.
    write_records(archive / "orders" / "partition=0" / f"{ORDERS}+0+0.json", creates(ORDERS, 1, 3))
    write_records(archive / "any.jsonl", [*creates(ORDERS, 4, 5), *creates(ITEMS, 1, 2), *creates(USERS, 1, 1)])
    groups = groups_of(archive, lake, group_bytes=1)
    assert [group.tables for group in groups] == [("*", f"!{ORDERS}"), (ORDERS,)]

    # Both have listed before either has surveyed, and both have planned before either has merged.
    begin, merge = threading.Barrier(2, timeout=120), threading.Barrier(2, timeout=120)
    surveys: list[str] = []

    def run(tables: tuple[str, ...]) -> ApplyReport:
        met: list[str] = []

        def progress(line: str) -> None:
            if line.startswith("looking into"):
                surveys.append(line)
                begin.wait()

        def after_effect(effect: str) -> None:
            if effect == "intent" and effect not in met:
                met.append(effect)
                merge.wait()

        return apply(archive, lake, tables=tables, progress=progress, after_effect=after_effect, parallel=1)

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(run, [group.tables for group in groups]))

    assert [applied(report) for report in reports] == [{ITEMS: 1, USERS: 1}, {ORDERS: 1}]
    assert ids(spark, lake) == {ITEMS: [1, 2], ORDERS: [1, 2, 3, 4, 5], USERS: [1]}
    # They raced: both looked into the files, and one's survey stands.
    assert len(surveys) == 2
    assert state_of(archive, lake).ledger().surveyed_through == 1
    assert groups_of(archive, lake) == ()
    again = apply(archive, lake)
    assert {flow.status for flow in again.flows} == {FlowStatus.UP_TO_DATE}

    # Where somebody surveyed before, groups are planned by what the files hold, and no merge looks into them again.
    write_records(archive / "more.jsonl", [*creates(ORDERS, 6, 6), *creates(ITEMS, 3, 3)])
    lines: list[str] = []
    assert apply(archive, lake, only_survey=True).flows == ()
    assert {group.tables for group in groups_of(archive, lake, group_bytes=1)} == {(ORDERS,), (ITEMS,)}
    for tables in ((ORDERS,), (ITEMS,)):
        assert applied(apply(archive, lake, tables=tables, progress=lines.append)) == {tables[0]: 1}
    assert not any(line.startswith("looking into") for line in lines)
    assert ids(spark, lake) == {ITEMS: [1, 2, 3], ORDERS: [1, 2, 3, 4, 5, 6], USERS: [1]}


def test_a_retry_does_what_failed_and_nothing_else(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    flows = (ITEMS, ORDERS)
    for topic in flows:
        write_records(archive / f"{topic}.jsonl", creates(topic, 1, 2))
    # Looked into beforehand: so it knows them by name.
    assert [group.tables for group in groups_of(archive, lake)] == [("*",)]
    assert apply(archive, lake, only_survey=True).flows == ()
    (group,) = groups_of(archive, lake)
    assert sorted(group.tables) == [*flows]
    crashed: list[str] = []

    def crash_once(effect: str) -> None:
        if effect == "merge" and not crashed:
            crashed.append(effect)
            raise CrashError

    report = apply(archive, lake, tables=group.tables, parallel=1, after_effect=crash_once, may_fail=True)
    failed = [flow.flow for flow in report.flows if flow.status is FlowStatus.FAILED]
    assert len(failed) == 1
    assert sorted(applied(report).values()) == [0, 1]
    before = checkpoints(lake)

    # Airflow's retry gets the same tables: it merges one microbatch, and looks into no file.
    done: list[str] = []
    lines: list[str] = []
    report = apply(archive, lake, tables=group.tables, after_effect=done.append, progress=lines.append)
    assert applied(report) == {topic: int(topic in failed) for topic in flows}
    assert (done.count("intent"), done.count("commit"), done.count("survey")) == (1, 1, 0)
    assert {line.split(":")[0] for line in lines} == set(failed)
    after = checkpoints(lake)
    assert {topic for topic in flows if after[topic] != before[topic]} == set(failed)
    assert ids(spark, lake, *flows) == {topic: [1, 2] for topic in flows}
