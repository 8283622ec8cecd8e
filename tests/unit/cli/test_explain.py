"""``airflow-cdc explain``: what it prints; no Spark starts for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.events import TOPIC as FLOW
from tests.unit.cli.conftest import CLOSED_LATE, Run
from tests.unit.pipeline.look.test_explain_flow import Lake

pytestmark = CLOSED_LATE


def lake_of(root: Path) -> Path:
    made = Lake(root)
    made.surveyed((0, 1))
    made.plan(is_done=True)
    made.has_table()
    made.surveyed((2, 3), (6, 7))
    return made.lake


def test_the_plan_is_printed_with_its_reasons(tmp_path: Path, run_alone: Run, no_spark: None) -> None:
    ended = run_alone("explain", FLOW, "--lake", lake_of(tmp_path))
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == f"{FLOW}: 1 microbatches are committed"
    assert "lease: nobody writes the flow" in lines
    assert "  microbatch 2 would be next" in lines
    assert "  2 files, 20 bytes, 4 records (u:4)" in lines
    assert "  engine: native: nothing in the plan is against it" in lines
    assert any(line.startswith("  gap: topic") and "offsets 4–5 are missing" in line for line in lines)


def test_the_flows_file_and_the_archive_count(tmp_path: Path, run_alone: Run, no_spark: None) -> None:
    lake, flows = lake_of(tmp_path), tmp_path / "flows.yaml"
    flows.write_text(f"flows:\n- topic: {FLOW}\n  on_gap: wait\n  engine: spark\n")
    (plan,) = run_alone("explain", FLOW, "--lake", lake, "--flows", flows, "--archive", tmp_path / "archive", "--json").document["plans"]
    assert (plan["engine"], plan["waits_for_offsets"]) == ("spark", ["0006.jsonl"])
    assert run_alone("explain", "unknown", "--lake", lake).code == 2
    assert run_alone("explain", FLOW, "--lake", lake, "--archive", tmp_path).code == 2


def test_no_java_process_is_started(tmp_path: Path) -> None:
    program = "import subprocess; subprocess.Popen = None\nfrom airflow_cdc.cli import app; app()"
    command = [sys.executable, "-c", program, "explain", FLOW, "--lake", str(lake_of(tmp_path)), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("{")
