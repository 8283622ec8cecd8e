"""Maintenance: small tables that hold what they held, and late events and crashes that find all they need afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow import CdcFlow
from airflow_cdc.model.lake import FlowState
from airflow_cdc.model.maintenance import Action, MaintenanceReport, MaintenanceSettings, TableKind, TableMaintenance
from airflow_cdc.pipeline.clear_staging import clear_staging
from airflow_cdc.pipeline.inspect_lake import read_rows
from airflow_cdc.pipeline.maintain import MaintenanceRun, maintain
from airflow_cdc.pipeline.merge import describe_table, latest_version
from tests.conftest import Apply
from tests.events import TOPIC, numbered, sqlserver, write_records

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


def test_small_files_become_one_and_old_ones_go_and_the_next_run_finds_nothing_to_do(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    for number in range(1, 5):
        write_records(archive / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after=person(number, "new"))], first=number))
    write_records(archive / "5.jsonl", numbered([sqlserver("d", commit=9, before=person(1, "new"))], first=5))
    apply(archive, lake, flows=ONE_FILE_EACH)
    lake = aged(lake, days=20)
    # The newest transaction's version stays readable for the next microbatch, so what that one dropped stays too.
    write_records(archive / "6.jsonl", numbered([sqlserver("u", commit=10, before=person(2, "new"), after=person(2, "newer"))], first=6))
    apply(archive, lake, flows=ONE_FILE_EACH)
    held = rows(spark, lake)
    target = f"{lake}/{TOPIC}"
    version = latest_version(spark, target)
    files = {path for path in Path(target).rglob("*.parquet") if "_delta_log" not in path.parts}

    told = of(keep(lake, replace(SETTINGS, dry_run=True)), TableKind.TARGET)
    assert (told.actions, told.files_after, told.version_after) == ((Action.COMPACT, Action.VACUUM), told.files_before, version)
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


def test_a_merge_whose_commit_marker_is_lost_is_found_behind_whatever_maintenance_committed(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    def crash(effect: str) -> None:
        if effect == "merge":
            raise KeyboardInterrupt

    for number in range(1, 4):
        write_records(archive / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after=person(number, "new"))], first=number))
    apply(archive, lake, flows=ONE_FILE_EACH)
    write_records(archive / "4.jsonl", numbered([sqlserver("u", commit=9, before=person(1, "new"), after=person(1, "newer"))], first=9))
    with pytest.raises(KeyboardInterrupt):
        apply(archive, lake, after_effect=crash)
    merged = latest_version(spark, f"{lake}/{TOPIC}")

    assert of(keep(lake), TableKind.TARGET).actions == (Action.COMPACT,)
    for number in range(20):
        spark.sql(f"ALTER TABLE delta.`{lake}/{TOPIC}` SET TBLPROPERTIES ('a.week' = '{number}')")
    report = apply(archive, lake)

    (batch,) = report.flows[0].batches
    assert (batch.table_version, vars(batch.rows)) == (merged, {"inserted": 0, "updated": 1, "deleted": 0})
    assert rows(spark, lake) == [person(1, "newer"), person(2, "new"), person(3, "new")]


def test_late_events_after_maintenance_neither_regress_a_row_nor_bring_a_deleted_one_back(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    newest = [
        sqlserver("u", commit=20, serial=2, before=person(1, "old"), after=person(1, "newest")),
        sqlserver("d", commit=21, before=person(2, "gone")),
        sqlserver("c", commit=22, after=person(4, "new")),
    ]
    for number, event in enumerate(newest):
        write_records(archive / f"b{number}.jsonl", numbered([event], first=10 + number))
    apply(archive, lake, flows=ONE_FILE_EACH)
    lake = aged(lake, days=20)
    keep(lake, replace(SETTINGS, compact_from=1))

    late = [sqlserver("c", commit=10, after=person(1, "old")), sqlserver("c", commit=11, after=person(2, "gone"))]
    write_records(archive / "a.jsonl", numbered([*late, sqlserver("c", commit=12, after=person(3, "late"))]))
    report = apply(archive, lake)

    assert report.flows[0].events.stale == 2
    assert rows(spark, lake) == [person(1, "newest"), person(3, "late"), person(4, "new")]


def test_markers_expire_by_the_flows_own_clock(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    for number in range(1, 4):
        events = [sqlserver("d", commit=number * 10 + key, before=person(number * 10 + key, "gone")) for key in range(number)]
        write_records(archive / f"{number}.jsonl", numbered(events, first=number * 10))
    # A delete in an empty table writes no marker: something must be there.
    write_records(archive / "0.jsonl", numbered([sqlserver("c", commit=1, after=person(1, "stays"))]))
    apply(archive, lake, flows=ONE_FILE_EACH)
    commits = lake / "_cdc" / "flows" / TOPIC / "commits"

    def done_at(number: int, days_ago: int) -> None:
        path = commits / f"{number:08d}.json"
        told = datetime.now(timezone.utc) - timedelta(days=days_ago)
        path.write_text(json.dumps({**json.loads(path.read_text()), "committed_at": told.isoformat()}))

    def expired(settings: MaintenanceSettings) -> int:
        return of(keep(lake, settings), TableKind.DELETE_MARKERS).markers_removed

    few = replace(SETTINGS, keep_microbatches=1)
    # The flow stood still: what is old by the calendar is not behind its newest microbatch.
    for number, days_ago in ((1, 93), (2, 92), (3, 91), (4, 90)):
        done_at(number, days_ago)
    assert expired(few) == 0
    for number, days_ago in ((1, 93), (2, 92), (3, 20), (4, 0)):
        done_at(number, days_ago)
    # A cut transaction may still be put together from these, however old they are.
    assert expired(SETTINGS) == 0
    assert expired(replace(few, dry_run=True)) == 1
    assert [expired(few), expired(few)] == [1, 0]
    markers = spark.read.format("delta").load(str(lake / "_cdc" / "flows" / TOPIC / "delete_markers"))
    assert sorted(row["id"] for row in markers.collect()) == [20, 21, 30, 31, 32]


@pytest.mark.parametrize("cluster_by", [(), "key"])
def test_rows_that_deletion_vectors_hide_are_purged_where_they_are_many(
    cluster_by: tuple[str, ...] | str, apply: Apply, spark: SparkSession, archive: Path, lake: Path, keep: Callable[..., MaintenanceReport]
) -> None:
    flows = {TOPIC: CdcFlow(TOPIC, cluster_by=cluster_by)}
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=key, after=person(key, "new")) for key in range(1, 41)]))
    apply(archive, lake)
    target = f"{lake}/{TOPIC}"
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    keep(lake, flows=flows)
    deletes = [sqlserver("d", commit=100 + key, before=person(key, "new")) for key in range(1, 11)]
    write_records(archive / "2.jsonl", numbered(deletes, first=40))
    apply(archive, lake)

    assert of(keep(lake, replace(SETTINGS, purge_from=0.5), flows=flows), TableKind.TARGET).actions == ()
    done = of(keep(lake, flows=flows), TableKind.TARGET)

    assert (done.actions[0], done.rows_purged) == (Action.PURGE, 10)
    detail = describe_table(spark, target)
    assert detail is not None
    assert detail["clusteringColumns"] == (["id"] if cluster_by else [])
    assert [row["id"] for row in rows(spark, lake)] == list(range(11, 41))
    assert of(keep(lake, flows=flows), TableKind.TARGET).actions == ()


def test_columns_that_delta_cannot_cluster_by_stop_the_flow_with_the_reason(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=person(1, "new"))]))
    apply(archive, lake)
    flows = {TOPIC: CdcFlow(TOPIC, cluster_by=("nmae",))}
    (outcome,) = maintain(MaintenanceRun(spark, str(lake), flows)).flows
    assert outcome.error is not None
    assert (outcome.error["type"], outcome.error["transient"]) == ("ConfigurationError", False)
    assert "nmae" in outcome.error["message"]


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


def test_a_short_retention_must_be_asked_for_by_name() -> None:
    with pytest.raises(ConfigurationError, match="allow a short retention explicitly"):
        MaintenanceSettings(vacuum_after=timedelta(days=6))
    assert MaintenanceSettings(vacuum_after=timedelta(0), allow_short_retention=True).vacuum_after == timedelta(0)


def test_a_commit_marker_tells_when_its_microbatch_was_done(apply: Apply, archive: Path, lake: Path) -> None:
    before = datetime.now(timezone.utc)
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=person(1, "new"))]))
    apply(archive, lake)
    done = FlowState(fsspec.filesystem("file"), str(lake), TOPIC).committed_at(1)
    assert done is not None
    assert before <= done <= datetime.now(timezone.utc)
