"""A run of which the native engine does all of the work starts no JVM: neither the command nor the job that Airflow submits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.events import TOPIC, record, sqlserver, tombstone, write_records

pytestmark = pytest.mark.slow
pytest.importorskip("duckdb")

FLOWS = {"flows": [{"topic": TOPIC, "columns": {"id": "BIGINT", "name": "STRING"}}]}
# Whatever starts Spark with these asks a gateway that is not there, as under spark-submit after its JVM died.
NO_GATEWAY = {"PYSPARK_GATEWAY_PORT": "1", "PYSPARK_GATEWAY_SECRET": "none"}


def run(module: str, *arguments: str | Path, env: Mapping[str, str] = NO_GATEWAY) -> subprocess.CompletedProcess[str]:
    """Run a module of ours in a process of its own."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **env}, timeout=120)


@pytest.fixture
def flows(archive: Path, tmp_path: Path) -> Path:
    """Two files of events, one with a heartbeat among them, and the flows file that declares their columns."""
    rows = {key: {"id": key, "name": f"name {key}"} for key in range(3)}
    write_records(archive / "1.jsonl", [sqlserver("c", commit=10 + key, after=row, offset=key) for key, row in rows.items()])
    renamed = sqlserver("u", commit=20, before=rows[0], after={"id": 0, "name": "other"}, offset=3)
    gone = [sqlserver("d", commit=21, before=rows[1], offset=4), tombstone({"id": 1}, offset=5)]
    heartbeat = record("__debezium-heartbeat.server1", {"serverName": "server1"}, {"ts_ms": 5}, 0)
    write_records(archive / "2.jsonl", [renamed, heartbeat, *gone])
    file = tmp_path / "flows.json"
    file.write_text(json.dumps(FLOWS), encoding="utf-8")
    return file


def rows_of(lake: Path) -> list[dict[str, object]]:
    shown = run("airflow_cdc", "show", TOPIC, "--lake", lake, "--json")
    assert shown.returncode == 0, shown.stderr
    found: list[dict[str, object]] = json.loads(shown.stdout)["rows"]
    return found


def test_the_command_applies_an_archive(archive: Path, lake: Path, flows: Path) -> None:
    applied = run("airflow_cdc", "apply", "--archive", archive, "--lake", lake, "--flows", flows)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert rows_of(lake) == [{"id": 0, "name": "other"}, {"id": 2, "name": "name 2"}]
    again = run("airflow_cdc", "apply", "--archive", archive, "--lake", lake, "--flows", flows)
    assert again.returncode == 0, again.stdout + again.stderr


def test_types_that_nobody_declared_are_no_reason_to_start_it(archive: Path, lake: Path, flows: Path) -> None:
    applied = run("airflow_cdc", "apply", "--archive", archive, "--lake", lake)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert rows_of(lake) == [{"id": 0, "name": "other"}, {"id": 2, "name": "name 2"}]


def test_so_does_the_job_and_reports_it(archive: Path, lake: Path, flows: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    job = ("airflow_cdc.jobs.apply", "--archive", archive, "--lake", lake, "--flows", flows, "--report", report)
    done = run(*map(str, job))
    assert done.returncode == 0, done.stdout + done.stderr
    batches = json.loads(report.read_text(encoding="utf-8"))["flows"][0]["batches"]
    assert [batch["engine"] for batch in batches] == ["native"]
    assert rows_of(lake) == [{"id": 0, "name": "other"}, {"id": 2, "name": "name 2"}]


def test_what_only_spark_does_asks_for_it(archive: Path, lake: Path, flows: Path) -> None:
    refused = run("airflow_cdc", "apply", "--archive", archive, "--lake", lake, "--flows", flows, "--engine", "spark")
    assert refused.returncode == 1
    assert "Connection refused" in refused.stdout + refused.stderr
