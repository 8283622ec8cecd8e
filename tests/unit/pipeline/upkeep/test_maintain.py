"""Maintenance: small tables that hold what they held, and late events and crashes that find all they need afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.maintenance import Action, MaintenanceReport, MaintenanceSettings, TableKind, TableMaintenance
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.target.target_table import describe_table, latest_version
from airflow_cdc.pipeline.upkeep.clear_reports import clear_reports
from airflow_cdc.pipeline.upkeep.clear_staging import clear_staging
from airflow_cdc.pipeline.upkeep.inspect_lake import read_rows
from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun, maintain
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.support.rounded import as_of_delta_rs

ONE_FILE_EACH = {TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)}
SETTINGS = MaintenanceSettings(compact_from=2)


@pytest.fixture
def keep(spark: SparkSession) -> Callable[..., MaintenanceReport]:
    def run(lake: Path, settings: MaintenanceSettings = SETTINGS, **options: Any) -> MaintenanceReport:
        report = maintain(MaintenanceRun(spark, str(lake), settings=settings, **options))
        assert report.ok, report.causes()
        assert MaintenanceReport.from_json(json.loads(json.dumps(report.to_json()))) == report
        return report

    return run


def of(report: MaintenanceReport, kind: TableKind) -> TableMaintenance:
    (found,) = [table for flow in report.flows for table in flow.tables if table.kind is kind]
    return found


def person(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name}


def rows(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), TOPIC).rows


def copied(lake: Path, name: str) -> Path:
    """Copy a lake beside itself; what its state says of its own place goes with it."""
    copy = shutil.copytree(lake, lake.with_name(name))
    for path in copy.rglob("*.json"):
        # The times of the log's files are those at which versions were committed.
        times = path.stat().st_atime, path.stat().st_mtime
        path.write_text(path.read_text().replace(str(lake), str(copy)))
        os.utime(path, times)
    return copy


def aged(lake: Path, days: int) -> Path:
    """Return a copy of a lake in which all that happened is so many days older: a copy, for Delta remembers what it read of a path."""
    copy = lake.with_name(f"{lake.name}-aged")
    shutil.copytree(lake, copy)
    seconds = days * 86400

    def earlier(found: re.Match[str]) -> str:
        return f"{found[1]}{int(found[2]) - seconds * 1000}"

    for path in [path for path in copy.rglob("*") if path.is_file()]:
        if path.suffix == ".crc":
            # They would not fit any more; nothing needs them.
            path.unlink()
            continue
        if path.suffix == ".json":
            text = re.sub(r'("(?:deletionTimestamp|timestamp)":)(\d{13})', earlier, path.read_text())
            path.write_text(text.replace(str(lake), str(copy)))
        os.utime(path, (time.time() - seconds, time.time() - seconds))
    return copy


@pytest.mark.deep
def test_small_files_become_one_and_old_ones_go_and_neither_the_next_run_nor_late_events_mind(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    for number in range(1, 5):
        write_records(
            archive / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after=person(number, "new"))], first=10 + number)
        )
    write_records(archive / "5.jsonl", numbered([sqlserver("d", commit=9, before=person(1, "new"))], first=15))
    apply(archive, lake, flows=ONE_FILE_EACH)
    lake = aged(lake, days=20)
    # The newest transaction's version stays readable for the next microbatch, so what that one dropped stays too.
    write_records(archive / "6.jsonl", numbered([sqlserver("u", commit=10, before=person(2, "new"), after=person(2, "newer"))], first=16))
    apply(archive, lake, flows=ONE_FILE_EACH)
    held = rows(spark, lake)
    target = f"{lake}/{TOPIC}"
    version = latest_version(spark, target)
    files = {path for path in Path(target).rglob("*.parquet") if "_delta_log" not in path.parts}

    planned = of(keep(lake, replace(SETTINGS, dry_run=True)), TableKind.TARGET)
    assert (planned.actions, planned.files_after, planned.version_after) == ((Action.COMPACT, Action.VACUUM), planned.files_before, version)
    assert latest_version(spark, target) == version

    done = of(keep(lake), TableKind.TARGET)
    assert done.actions == (Action.COMPACT, Action.VACUUM)
    assert (done.files_before, done.files_after, done.version_before, done.retention_hours) == (3, 1, version, 168)
    left = {path for path in Path(target).rglob("*.parquet") if "_delta_log" not in path.parts}
    assert len(files - left) == done.files_vacuumed > 0
    assert rows(spark, lake) == held == [person(2, "newer"), person(3, "new"), person(4, "new")]

    version = latest_version(spark, target)
    again = keep(lake)
    assert [table.actions for flow in again.flows for table in flow.tables] == [(), ()]
    assert latest_version(spark, target) == version == of(again, TableKind.TARGET).version_after

    # Late events find the newer row and the delete marker.
    stale = [sqlserver("u", commit=3, after=person(2, "older")), sqlserver("u", commit=4, after=person(1, "gone"))]
    write_records(archive / "0.jsonl", numbered([*stale, sqlserver("c", commit=5, after=person(5, "late"))], first=0))
    report = apply(archive, lake, flows=ONE_FILE_EACH)
    assert report.flows[0].events.stale == 2
    assert rows(spark, lake) == [*held, person(5, "late")]


@pytest.mark.deep
def test_a_merge_whose_commit_marker_is_lost_is_found_behind_whatever_maintenance_committed(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    def crash(effect: str) -> None:
        if effect == "merge":
            raise KeyboardInterrupt

    for number in range(1, 3):
        write_records(archive / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after=person(number, "new"))], first=number))
    apply(archive, lake, flows=ONE_FILE_EACH)
    write_records(archive / "4.jsonl", numbered([sqlserver("u", commit=9, before=person(1, "new"), after=person(1, "newer"))], first=9))
    with pytest.raises(KeyboardInterrupt):
        apply(archive, lake, after_effect=crash)
    merged = latest_version(spark, f"{lake}/{TOPIC}")

    assert of(keep(lake, replace(SETTINGS, compact_from=1)), TableKind.TARGET).actions == (Action.COMPACT,)
    for number in range(20):
        spark.sql(f"ALTER TABLE delta.`{lake}/{TOPIC}` SET TBLPROPERTIES ('a.week' = '{number}')")
    report = apply(archive, lake)

    (batch,) = report.flows[0].batches
    assert (batch.table_version, vars(batch.rows)) == (merged, {"inserted": 0, "updated": 1, "deleted": 0})
    assert rows(spark, lake) == [person(1, "newer"), person(2, "new")]


def test_expired_markers_are_removed_once(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=person(1, "stays"))]))
    for number, keys in ((2, (20,)), (3, (30, 31))):
        events = [sqlserver("d", commit=key, before=person(key, "gone")) for key in keys]
        write_records(archive / f"{number}.jsonl", numbered(events, first=number * 10))
    began = datetime.now(timezone.utc)
    apply(archive, lake, flows=ONE_FILE_EACH)
    done = FlowState(fsspec.filesystem("file"), str(lake), TOPIC).committed_at(3)
    assert done is not None
    assert began <= done <= datetime.now(timezone.utc)
    commit = lake / "_cdc" / "flows" / TOPIC / "commits" / "00000002.json"
    old = datetime.now(timezone.utc) - timedelta(days=31)
    commit.write_text(json.dumps({**json.loads(commit.read_text()), "committed_at": old.isoformat()}))
    few = replace(SETTINGS, keep_microbatches=1)

    for settings, removed in ((replace(few, dry_run=True), 1), (few, 1), (few, 0)):
        assert of(keep(lake, settings), TableKind.DELETE_MARKERS).markers_removed == removed
    markers = spark.read.format("delta").load(str(lake / "_cdc" / "flows" / TOPIC / "delete_markers"))
    assert sorted(row["id"] for row in markers.collect()) == [30, 31]


@pytest.mark.deep
def test_the_version_upon_which_an_open_transaction_began_outlives_the_retention(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    # UPDATE t SET id = id + 1, of which the last file holds the first half.
    old, new = (person(1, "a"), person(2, "b")), (person(2, "a"), person(3, "b"))
    moves = [
        event
        for number, (before, after) in enumerate(zip(old, new, strict=True))
        for event in (
            sqlserver("d", commit=50, change=51 + number, serial=1, before=before),
            sqlserver("c", commit=50, change=51 + number, serial=2, after=after),
        )
    ]
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=row) for row in old]))
    write_records(archive / "2.jsonl", numbered(moves[:2], first=2))
    apply(archive, lake, flows=ONE_FILE_EACH)
    lake = aged(lake, days=20)
    assert of(keep(lake), TableKind.TARGET).actions == ()
    vacuumed = copied(lake, "vacuumed")

    write_records(archive / "3.jsonl", numbered(moves[2:], first=4))
    apply(archive, lake, flows=ONE_FILE_EACH)
    assert rows(spark, lake) == list(new)

    # What everybody's VACUUM would have done: the flow says so, and does not try again for ever.
    spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    spark.sql(f"VACUUM delta.`{vacuumed}/{TOPIC}` RETAIN 168 HOURS")
    spark.conf.unset("spark.sql.sources.parallelPartitionDiscovery.parallelism")
    (flow,) = apply(archive, vacuumed, flows=ONE_FILE_EACH, may_fail=True).flows
    assert flow.error is not None
    assert (flow.error["type"], flow.error["transient"]) == ("TableHistoryGoneError", False)
    assert "its files were vacuumed" in flow.error["message"]


@pytest.mark.deep
@pytest.mark.parametrize("cluster_by", [(), "key"])
def test_rows_that_deletion_vectors_hide_are_purged_where_they_are_many(
    cluster_by: tuple[str, ...] | str, apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    # The native engine writes no deletion vectors.
    flows = {TOPIC: CdcFlow(TOPIC, cluster_by=cluster_by, engine=Engine.SPARK)}
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=key, after=person(key, "new")) for key in range(1, 41)]))
    apply(archive, lake, flows=flows)
    target = f"{lake}/{TOPIC}"
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    keep(lake, flows=flows)
    deletes = [sqlserver("d", commit=100 + key, before=person(key, "new")) for key in range(1, 11)]
    write_records(archive / "2.jsonl", numbered(deletes, first=40))
    apply(archive, lake, flows=flows)

    assert of(keep(lake, replace(SETTINGS, purge_from=0.5), flows=flows), TableKind.TARGET).actions == ()
    done = of(keep(lake, flows=flows), TableKind.TARGET)

    assert (done.actions[0], done.rows_purged) == (Action.PURGE, 10)
    detail = describe_table(spark, target)
    assert detail is not None
    assert detail["clusteringColumns"] == (["id"] if cluster_by else [])
    assert [row["id"] for row in rows(spark, lake)] == list(range(11, 41))
    assert of(keep(lake, flows=flows), TableKind.TARGET).actions == ()


def test_what_delta_rs_logs_of_its_files_is_corrected_whoever_let_it_write(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    amount = "9999999999999.9999"
    flow = CdcFlow(TOPIC, columns={"id": "BIGINT", "amount": "DECIMAL(20,4)"}, max_microbatch_bytes=1)
    for number in range(3):
        write_records(
            archive / f"{number}.jsonl", numbered([sqlserver("c", commit=1 + number, after={"id": number, "amount": amount})], number)
        )
    apply(archive, lake, flows={TOPIC: flow})
    as_of_delta_rs(lake / TOPIC)
    seldom = MaintenanceSettings(compact_from=100)

    def found(path: Path) -> int:
        return spark.read.format("delta").load(str(path / TOPIC)).filter(f"amount = {amount}BD").count()

    # Delta remembers what it read of a path.
    copy = copied(lake, "copy")
    assert found(copy) == 0
    assert of(keep(copy, seldom), TableKind.TARGET).actions == (Action.STATISTICS,)
    assert found(copy) == 3
    assert of(keep(copy, seldom), TableKind.TARGET).actions == ()

    DeltaTable(str(copy / TOPIC)).optimize.compact()
    assert found(copy) == 0
    assert of(keep(copy, replace(seldom, dry_run=True)), TableKind.TARGET).actions == (Action.STATISTICS,)
    assert of(keep(copy, seldom), TableKind.TARGET).actions == (Action.STATISTICS,)
    assert found(copy) == 3
    assert of(keep(copy, seldom), TableKind.TARGET).actions == ()


def test_only_folders_that_nobody_stages_in_any_more_are_cleared(tmp_path: Path) -> None:
    old, young = tmp_path / "00000001-latest-a", tmp_path / "00000002-latest-b"
    for folder in (old, young):
        folder.mkdir()
        (folder / "part.parquet").write_text("")
        os.utime(folder, (0, 0))
    os.utime(old / "part.parquet", (time.time() - 90_000, time.time() - 90_000))
    fs = fsspec.filesystem("file")
    assert clear_staging(fs, str(tmp_path), dry_run=True) == 1
    assert old.exists()
    assert clear_staging(fs, str(tmp_path), dry_run=False) == 1
    assert [path.name for path in tmp_path.iterdir()] == [young.name]
    assert clear_staging(fs, str(tmp_path / "none"), dry_run=False) == 0


def test_job_reports_that_nobody_took_go_after_seven_days_and_younger_ones_stay(tmp_path: Path) -> None:
    fs, folder = fsspec.filesystem("file"), tmp_path / "_cdc" / "reports"
    assert clear_reports(fs, str(tmp_path), dry_run=False) == 0
    folder.mkdir(parents=True)
    for name, days in (("old.json", 7.1), (".cut-off.tmp", 30), ("young.json", 6.9)):
        (folder / name).write_text("{}")
        os.utime(folder / name, (time.time() - days * 86400,) * 2)
    beside = tmp_path / "_cdc" / "old.json"
    beside.write_text("{}")
    os.utime(beside, (0, 0))

    assert clear_reports(fs, str(tmp_path), dry_run=True) == 2
    assert len(list(folder.iterdir())) == 3
    assert clear_reports(fs, str(tmp_path), dry_run=False) == 2
    assert [path.name for path in folder.iterdir()] == ["young.json"]
    assert clear_reports(fs, str(tmp_path), dry_run=False) == 0
    assert beside.exists()


def test_a_short_retention_must_be_asked_for_by_name() -> None:
    with pytest.raises(ConfigurationError, match="allow a short retention explicitly"):
        MaintenanceSettings(vacuum_after=timedelta(days=6))
    assert MaintenanceSettings(vacuum_after=timedelta(0), allow_short_retention=True).vacuum_after == timedelta(0)


@pytest.mark.deep
def test_files_are_bounded_over_a_hundred_microbatches_with_maintenance_beside_them(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    expected, offset = {}, 0
    for number in range(1, 101):
        changed = person(number // 2, f"changed {number}")
        events = [sqlserver("c", commit=number * 10, after=person(number, "new"))]
        events += [sqlserver("u", commit=number * 10 + 1, before=person(number // 2, "new"), after=changed)] if number > 1 else []
        write_records(archive / f"{number:04d}.jsonl", numbered(events, first=offset))
        offset += len(events)
        expected[number] = "new"
        expected |= {number // 2: changed["name"]} if number > 1 else {}
    target, most = f"{lake}/{TOPIC}", 0
    settings, ended = replace(SETTINGS, compact_from=8), threading.Event()

    def maintain_again_and_again() -> None:
        nonlocal most
        while not ended.wait(5):
            for flow in maintain(MaintenanceRun(spark, str(lake), settings=settings)).flows:
                # Merges that kept being first: reported, and nothing is lost.
                assert flow.error is None or flow.error["transient"], flow.error
                most = max([most, *(table.files_before for table in flow.tables)])

    beside = threading.Thread(target=maintain_again_and_again)
    beside.start()
    try:
        statuses = []
        while not statuses or statuses[-1] != "applied":
            (flow,) = apply(archive, lake, flows=ONE_FILE_EACH, may_fail=True).flows
            assert flow.error is None or flow.error["type"] == "ConcurrentRunError", flow.error
            statuses.append(flow.status.value)
    finally:
        ended.set()
        beside.join()
    assert {row["id"]: row["name"] for row in rows(spark, lake)} == expected
    detail = describe_table(spark, target)
    assert detail is not None
    # As many as a run tolerates, and what came while it was at work.
    assert max(most, detail["numFiles"]) < 50
