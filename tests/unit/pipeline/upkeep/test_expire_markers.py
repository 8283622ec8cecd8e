"""Which delete markers are expired, by the flow's own clock; without Spark."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import fsspec
import pytest

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.maintenance import MaintenanceSettings
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.microbatch import HeldFile
from airflow_cdc.pipeline.upkeep.expire_markers import expired_through

FEW = MaintenanceSettings(keep_microbatches=1)
NOW = datetime.now(timezone.utc)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path


def expired(lake: Path, days_ago: list[int | None], settings: MaintenanceSettings = FEW, held: tuple[HeldFile, ...] = ()) -> int | None:
    """Return through which microbatch markers are expired; ``days_ago``: when each was done, None where its marker has no time."""
    fs = fsspec.filesystem("file")
    state = FlowState(fs, str(lake), "t")
    for number, days in enumerate(days_ago, start=1):
        state.write_commit(BatchReport("t", number, 1, 1), "table")
        path = lake / "_cdc" / "flows" / "t" / "commits" / f"{number:08d}.json"
        document = json.loads(path.read_text())
        at = {} if days is None else {"committed_at": (NOW - timedelta(days=days)).isoformat()}
        path.write_text(json.dumps({"table": document["table"], "report": document["report"], **at}))
    archive = ArchiveState(fs, str(lake), "/archive")
    checkpoint = FlowCheckpoint("t", number=len(days_ago), held={"/archive": held} if held else {})
    return expired_through(state, checkpoint, [archive], settings)


@pytest.mark.parametrize(
    ("days_ago", "through"),
    [
        ([], None),
        ([0], None),
        ([29, 0], None),
        ([31, 0], 1),
        ([90, 60, 31, 29, 0], 3),
        # The flow stood still: by the calendar all are old.
        ([93, 92, 91, 90], None),
        # Those without a time are older than the next one that does.
        ([None, None, 31, 0], 3),
        ([None, None, 29, 0], None),
        ([40, None], None),
        # The newest microbatch's markers stay.
        ([31], None),
    ],
)
def test_the_clock_is_the_newest_microbatchs(days_ago: list[int | None], through: int | None, lake: Path) -> None:
    assert expired(lake, days_ago) == through


def test_markers_of_the_last_microbatches_stay_however_old(lake: Path) -> None:
    assert expired(lake, [90] * 70 + [0], MaintenanceSettings()) == 7


def test_files_that_are_held_back_hold_the_clock(lake: Path) -> None:
    fs = fsspec.filesystem("file")
    ArchiveState(fs, str(lake), "/archive").add(Survey("/archive", 1, (), ()))
    (survey,) = lake.rglob("surveys/*.json")
    seen = (NOW - timedelta(days=20)).timestamp()
    os.utime(survey, (seen, seen))
    held = (HeldFile(1, "late.jsonl"),)
    assert expired(lake, [60, 45, 0], held=held) == 1
    assert expired(lake, [60, 45, 0]) == 2
