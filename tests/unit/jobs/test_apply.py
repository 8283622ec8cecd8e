"""What the job's arguments ask the run for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_cdc.jobs import apply, run_job
from airflow_cdc.model.outcome import ApplyReport
from airflow_cdc.pipeline.apply_archive import ArchiveRun


@pytest.mark.parametrize(
    ("switches", "asked"),
    [([], (False, False)), (["--check-transactions"], (True, False)), (["--consistent"], (False, True))],
)
def test_the_job_looks_at_transactions_only_where_it_is_told_to(
    switches: list[str], asked: tuple[bool, bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[ArchiveRun] = []

    def record(run: ArchiveRun) -> ApplyReport:
        runs.append(run)
        return ApplyReport(run.archive, run.lake)

    monkeypatch.setattr(run_job, "start_session", lambda _: None)
    monkeypatch.setattr(run_job, "die_with_parent", lambda: None)
    monkeypatch.setattr(apply, "apply_archive", record)
    assert apply.main(["--archive", "/a", "--lake", "/l", "--report", str(tmp_path / "report.json"), *switches]) == 0
    assert [(run.check_transactions, run.consistent) for run in runs] == [asked]
    assert json.loads((tmp_path / "report.json").read_text())["ok"] is True
