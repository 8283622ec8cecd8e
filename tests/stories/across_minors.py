"""A lake that two minors of Spark write in turns: state and tables of one go on under the other, both ways.

Run by ``make test-spark SPARK=4.0 WHAT=across``, in that Spark's environment; ``OTHER_PYTHON`` is one with another Spark. Its name keeps
this file out of other runs, which have one Spark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.golden.test_cases import CASES, rows_of, texts

OTHER = os.environ["OTHER_PYTHON"]
WAYS = {"this-first": (sys.executable, OTHER), "other-first": (OTHER, sys.executable)}
TURNS = [
    "x01-decimal-keys-beyond-53-bits",
    "x03-altered-key-moves-partition",
    "93-update-in-place-after-delete-marker",
    "y08-recreated-after-drop-flagged",
    "y15-truncate-late",
    "y05-records-without-offsets-at-one-position",
    "x14-time-key-becomes-finer",
    "z01-rows-of-a-compressed-transaction-in-three-files",
]
"""Each in two rounds or more: state of every kind is read by the other Spark."""


def run(python: str, *words: str | Path) -> Any:
    """Run a command of the project's with one of the two Pythons; return what it prints as JSON."""
    command = [python, "-m", "airflow_cdc", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout)


def minors_of(lake: Path, archive: Path, rounds: Path, pythons: tuple[str, str], *settings: str | Path) -> None:
    """Apply a case round by round, each with the next Python's Spark."""
    for number, python in zip(sorted(rounds.iterdir(), key=lambda path: int(path.name)), cycle(pythons), strict=False):
        shutil.copytree(number, archive, dirs_exist_ok=True)
        report = run(python, "apply", "--archive", archive, "--lake", lake, "--engine", "spark", *settings)
        assert {batch["engine"] for flow in report["flows"] for batch in flow["batches"]} <= {"spark"}


@pytest.mark.parametrize("way", WAYS)
def test_the_two_are_different(way: str) -> None:
    asks = ["-c", "import pyspark; print(pyspark.__version__)"]
    printed = [subprocess.run([python, *asks], check=True, capture_output=True) for python in WAYS[way]]
    assert len({version.stdout for version in printed}) == 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TURNS)
def test_state_goes_on_under_another_minor(archive: Path, lake: Path, name: str, way: str) -> None:
    case = CASES / name
    settings = ("--flows", case / "flows.yaml") if (case / "flows.yaml").exists() else ()
    minors_of(lake, archive, case / "rounds", WAYS[way], *settings)
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    assert {table: rows_of(lake / table) for table in expected} == {table: texts(rows) for table, rows in expected.items()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("keeps", [{"stored_as_scd_type": 2}, {"write_disposition": "append"}], ids=["versions", "change-log"])
def test_history_is_that_of_one_minor(archive: Path, lake: Path, tmp_path: Path, keeps: dict[str, Any], way: str) -> None:
    case, flows = CASES / "z05-part-of-an-earlier-transaction-again-postgresql-over-a-row", tmp_path / "flows.yaml"
    (topic,) = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    columns = {"v": "STRING", "id": "INT"}
    flows.write_text(json.dumps({"flows": [{"topic": topic, "columns": columns, **keeps}]}), encoding="utf-8")
    minors_of(lake, archive, case / "rounds", WAYS[way], "--flows", flows)
    alone = tmp_path / "alone"
    minors_of(alone, tmp_path / "archive-alone", case / "rounds", (OTHER, OTHER), "--flows", flows)
    assert rows_of(lake / topic) == rows_of(alone / topic) != []
    # Maintenance rewrites what both wrote.
    for python in WAYS[way]:
        run(python, "maintain", "--lake", lake)
    assert rows_of(lake / topic) == rows_of(alone / topic)
