"""``airflow-cdc key``: what it prints; no Spark starts for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.events import TOPIC as FLOW
from tests.support.events import lsn, numbered, sqlserver, write_records
from tests.unit.cli.conftest import CLOSED_LATE, Run
from tests.unit.pipeline.look.test_key_story import ANN, BOB, Lake

pytestmark = CLOSED_LATE


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    made = Lake(tmp_path)
    events = [sqlserver("c", commit=1, after=ANN), sqlserver("u", commit=3, before=ANN, after=BOB)]
    write_records(made.archive / "1.jsonl", numbered(events))
    made.applied("1.jsonl")
    made.has_row(BOB, 3, 1)
    return made.lake


def test_the_story_is_printed_with_positions_as_the_source_spells_them(lake: Path, run_alone: Run, no_spark: None) -> None:
    ended = run_alone("key", FLOW, "1", "--lake", lake)
    assert ended.code == 0
    words = " ".join(ended.stdout.replace("│", " ").split())
    assert f"{FLOW}, id=1: 2 archived events" in words
    assert f"2 {lsn(3)} update" in words
    assert "merged" in words
    assert "name: ann → bob" in words
    assert "row today: id=1, name=bob (microbatch 1)" in words
    document = run_alone("key", FLOW, "1", "--lake", lake, "--json").document
    assert [event["outcome"] for event in document["events"]] == ["superseded", "merged"]
    assert document["events"][0]["by"] == 1


def test_neither_pyspark_nor_pandas_is_imported(lake: Path, tmp_path: Path) -> None:
    program = """
import sys
from airflow_cdc.cli import app
try:
    app()
finally:
    print(sorted({"pyspark", "pandas", "airflow"} & {name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    command = [sys.executable, "-c", program, "key", FLOW, "1", "--lake", str(lake), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == "[]\n"


def test_a_key_without_events_has_no_row(lake: Path, run_alone: Run, no_spark: None) -> None:
    assert "row today: none" in run_alone("key", FLOW, "9", "--lake", lake).stdout


def test_an_unknown_flow_and_a_wrong_key_are_usage_errors(lake: Path, run_alone: Run, no_spark: None) -> None:
    assert run_alone("key", "unknown", "1", "--lake", lake).code == 2
    ended = run_alone("key", FLOW, "one", "--lake", lake)
    assert (ended.code, ended.stdout) == (2, "")
    assert "is no BIGINT" in ended.stderr
