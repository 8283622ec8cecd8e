"""The command line: exit codes, one JSON document on stdout, errors on stderr with the next step.

Most commands run in this process and join the tests' Spark; where stdout and stderr themselves are the question, or no Spark
may start, they run in a process of their own.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from airflow_cdc.cli import app
from airflow_cdc.flows_file import read_flows
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from tests.support.events import numbered, sqlserver, write_records

# The console of a command that ran in this process is closed when it is collected; in its own it ends with it.
CLOSED_LATE = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

ORDERS, TEAPOT = "server1.testDB.dbo.orders", "x.y.teapot"
ANN, BEN, CAT = ({"id": number, "name": name} for number, name in ((1, "ann"), (2, "ben"), (3, "cat")))
NAMELESS = {"id": None, "name": "nobody"}
ORDER = {
    "nr": 7,
    "amount": "12.50",
    "day": "2026-11-20",
    # The day with which some programs say that there is none; Python's local times begin a day later.
    "at": "0001-01-01T00:00:00.5Z",
    "photo": base64.b64encode(b"\0\1").decode(),
    "rate": "NaN",
}
FLOWS = f"""
flows:
  - topic: {ORDERS}
    keys: [nr]
    columns: {{amount: "DECIMAL(10,2)", day: DATE, at: TIMESTAMP, photo: BINARY, rate: DOUBLE}}
"""


@dataclass(frozen=True)
class Scene:
    """Archives, the lakes they were applied to, and a flows file."""

    archive: Path
    lake: Path
    """Customers (one record in quarantine) and orders."""
    other: Path
    """Customers with a row changed, one more and one less; a table of its own."""
    flows: Path


@pytest.fixture(scope="session")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Made once, for the commands that only look; what applies an archive anew does so to a lake of its own."""
    root = tmp_path_factory.mktemp("cli")
    made = Scene(root / "archive", root / "lake", root / "other", root / "flows.yaml")
    made.flows.write_text(FLOWS)
    nameless = sqlserver("c", commit=3, after=NAMELESS, key={"id": None})
    order = sqlserver("c", commit=4, after=ORDER, key={"nr": 7}, topic=ORDERS)
    events = [sqlserver("c", commit=1, after=ANN), sqlserver("c", commit=2, after=BEN), nameless, order]
    write_records(made.archive / "1.jsonl", numbered(events))
    (made.archive / "README.md").write_text("not an event")
    changed = [{"id": 1, "name": "ann b."}, CAT]
    others = [sqlserver("c", commit=number, after=row) for number, row in enumerate(changed, start=1)]
    alone = sqlserver("c", commit=9, after=ANN, topic="server1.testDB.dbo.alone")
    write_records(root / "other archive" / "1.jsonl", numbered([*others, alone]))
    for archive, lake in ((made.archive, made.lake), (root / "other archive", made.other)):
        assert apply_archive(ArchiveRun(spark, str(archive), str(lake), read_flows(made.flows))).ok
    return made


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)


Run = Callable[..., Ended]


@pytest.fixture
def run(spark: SparkSession, run_alone: Run) -> Run:
    """Run a command in this process, with the tests' Spark."""
    return run_alone


@pytest.fixture
def run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command in this process; its logs go to ``tmp_path``, and this process gets its stderr back."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def invoke(*arguments: object) -> Ended:
        terminal, saved = tmp_path / "terminal", os.dup(2)
        with terminal.open("wb") as file:
            os.dup2(file.fileno(), 2)
        try:
            result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        return Ended(result.exit_code, result.stdout, terminal.read_text() + result.stderr)

    return invoke


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("Spark was started before the command line was looked at")

    monkeypatch.setattr("airflow_cdc.pipeline.spark.session.start_session", refuse)


def process(*arguments: object, cwd: Path) -> Ended:
    """Run a command as a user does, in a process of its own."""
    command = [sys.executable, "-c", "from airflow_cdc.cli import app; app()", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(cwd)}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def logs(folder: Path) -> list[Path]:
    return list(folder.glob("airflow-cdc-*.log"))
