"""The command line: exit codes, one JSON document on stdout, errors on stderr with the next step.

Most commands run in this process and join the tests' Spark; where stdout and stderr themselves are the question, or no Spark
may start, they run in a process of their own.
"""

from __future__ import annotations

import base64
import json
import os
import re
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

from airflow_cdc import __version__
from airflow_cdc.cli import app
from airflow_cdc.flows_file import read_flows
from airflow_cdc.pipeline.apply_archive import ArchiveRun, apply_archive
from tests.events import TOPIC, lsn, numbered, sqlserver, write_records

# The console of a command that ran in this process is closed when it is collected; in its own it ends with it.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")

ORDERS, TEAPOT = "server1.testDB.dbo.orders", "x.y.teapot"
ANN, BEN, CAT = ({"id": number, "name": name} for number, name in ((1, "ann"), (2, "ben"), (3, "cat")))
NAMELESS = {"id": None, "name": "nobody"}
ORDER = {
    "nr": 7,
    "amount": "12.50",
    "day": "2026-11-20",
    "at": "2026-11-20T05:00:00.5Z",
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


@pytest.fixture(scope="module")
def scene(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Scene:
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
def run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
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

    monkeypatch.setattr("airflow_cdc.pipeline.session.start_session", refuse)


def process(*arguments: object, cwd: Path) -> Ended:
    """Run a command as a user does, in a process of its own."""
    command = [sys.executable, "-c", "from airflow_cdc.cli import app; app()", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TMPDIR": str(cwd)}
    ended = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def logs(folder: Path) -> list[Path]:
    return list(folder.glob("airflow-cdc-*.log"))


# apply


def test_apply_prints_one_json_document_on_stdout_and_the_rest_on_stderr(scene: Scene, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ended = process(
        "apply", "--archive", scene.archive, "--lake", lake, "--flows", scene.flows, "--json", "--master", "local[2]", cwd=tmp_path
    )

    assert ended.code == 0, ended.stderr
    document = ended.document
    assert set(document) == {"ok", "archive", "lake", "flows", "control_topics", "ignored_files", "error", "transactions"}
    assert (document["ok"], document["error"], document["ignored_files"]) == (True, None, ["README.md"])
    assert (document["archive"], document["lake"]) == (str(scene.archive), str(lake))
    customers, orders = document["flows"]
    assert set(customers) == {"flow", "status", "table", "events", "rows", "batches", "error", "waiting_for", "waiting_files"}
    assert (customers["flow"], customers["status"], customers["table"]) == (TOPIC, "applied", f"{lake}/{TOPIC}")
    assert {name: count for name, count in customers["events"].items() if count} == {"read": 3, "merged": 2, "rejected": 1}
    assert customers["rows"] == {"inserted": 2, "updated": 0, "deleted": 0}
    assert [batch["rejects"] for batch in customers["batches"]] == [{"missing_key": 1}]
    assert (orders["flow"], orders["rows"]["inserted"]) == (ORDERS, 1)
    # Progress is for people, and Spark's log for nobody who did not ask.
    assert f"{TOPIC}: microbatch 1" in ended.stderr
    assert "files left aside: README.md" in ended.stderr
    assert "WARN" not in ended.stderr
    assert logs(tmp_path) == []


def test_apply_says_so_when_nothing_is_pending(scene: Scene, run: Run) -> None:
    ended = run("apply", "--archive", scene.archive, "--lake", scene.lake, "--flows", scene.flows, "--json")
    assert ended.code == 0
    assert [(flow["flow"], flow["status"], flow["batches"]) for flow in ended.document["flows"]] == [
        (TOPIC, "up_to_date", []),
        (ORDERS, "up_to_date", []),
    ]
    for_people = run("apply", "--archive", scene.archive, "--lake", scene.lake, "--table", "*.orders")
    assert for_people.code == 0
    assert "up_to_date" in for_people.stdout
    assert ORDERS in for_people.stdout
    assert TOPIC not in for_people.stdout


def test_a_flow_that_fails_is_named_with_the_next_step_and_the_others_complete(run: Run, tmp_path: Path) -> None:
    foreign = sqlserver("c", commit=1, after=ANN, topic=TEAPOT)
    foreign["value"]["source"]["connector"] = "teapot"
    write_records(tmp_path / "archive" / "1.jsonl", numbered([foreign, sqlserver("c", commit=1, after=BEN)]))

    ended = run("apply", "--archive", tmp_path / "archive", "--lake", tmp_path / "lake", "--json")

    assert ended.code == 1
    document = ended.document
    assert document["ok"] is False
    outcomes = {flow["flow"]: flow for flow in document["flows"]}
    assert {name: flow["status"] for name, flow in outcomes.items()} == {TEAPOT: "failed", TOPIC: "applied"}
    error = outcomes[TEAPOT]["error"]
    assert set(error) == {"type", "message", "next_step", "transient"}
    assert (error["type"], error["transient"]) == ("UnsupportedConnectorError", False)
    assert outcomes[TOPIC]["error"] is None
    # The terminal has it too, and where Spark's log is.
    assert f"{TEAPOT}: UnsupportedConnectorError" in ended.stderr
    assert f"Next step: {error['next_step']}" in ended.stderr
    (log,) = logs(tmp_path)
    assert f"Spark's log: {log}" in ended.stderr

    for_people = run("apply", "--archive", tmp_path / "archive", "--lake", tmp_path / "lake")
    assert for_people.code == 1
    assert re.search(rf"{TEAPOT}.*failed", for_people.stdout)
    assert f"{TEAPOT}: UnsupportedConnectorError" in for_people.stderr


# usage


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["apply", "--archive", "a"], "--lake"),
        (["apply", "--lake", "l"], "--archive"),
        (["apply", "--archive", "a", "--lake", "l", "--unknown"], "--unknown"),
        (["tables"], "--lake"),
        (["show", "--lake", "l"], "FLOW"),
        (["diff", "a"], "LAKE_B"),
        (["quarantine", "show", "--lake", "l"], "FLOW"),
        (["show", "t", "--lake", "l", "--limit", "many"], "--limit"),
        (["unheard-of"], "unheard-of"),
    ],
)
def test_a_wrong_command_line_ends_with_2_before_spark_starts(arguments: list[str], told: str, run: Run, no_spark: None) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert told in ended.stderr
    assert ended.stdout == ""


def test_version_needs_no_spark(run: Run, no_spark: None) -> None:
    assert run("version") == Ended(0, f"{__version__}\n", "")


def test_an_archive_that_is_not_there_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    ended = run("apply", "--archive", tmp_path / "nowhere", "--lake", tmp_path / "lake", "--json")
    assert (ended.code, ended.stdout) == (2, "")
    assert "ArchiveNotFoundError" in ended.stderr
    assert f"{tmp_path}/nowhere" in ended.stderr.replace("\n", "")
    assert "Next step: Check the archive's root URI." in ended.stderr
    assert logs(tmp_path) == []
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read"),
        ("flows: [", "cannot be read"),
        ("flow: []", "list of flows"),
        ("[{topic: t, primary_key: id}]", "primary_key"),
    ],
)
def test_a_bad_flows_file_is_a_usage_error(content: str | None, told: str, scene: Scene, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flows.yaml"
    if content is not None:
        path.write_text(content)
    ended = run("apply", "--archive", scene.archive, "--lake", tmp_path / "lake", "--flows", path, "--json")
    assert (ended.code, ended.stdout) == (2, "")
    # Lines are folded to the terminal's width.
    seen = " ".join(ended.stderr.split())
    assert "ConfigurationError" in seen
    assert told in seen
    assert "Next step:" in seen
    assert not (tmp_path / "lake").exists()


def test_a_bad_flows_file_is_told_before_spark_starts(scene: Scene, run: Run, no_spark: None, tmp_path: Path) -> None:
    assert run("apply", "--archive", scene.archive, "--lake", tmp_path / "lake", "--flows", tmp_path / "none.yaml").code == 2


def test_a_spark_setting_that_is_none_is_told_on_the_terminal(tmp_path: Path) -> None:
    ended = process("tables", "--lake", tmp_path / "lake", "--conf", "spark.driver.memory", cwd=tmp_path)
    assert (ended.code, ended.stdout) == (2, "")
    assert "'spark.driver.memory' is not key=value" in ended.stderr
    assert logs(tmp_path) == []


# looking at lakes


def test_tables_tells_of_each_flow_where_it_stands(scene: Scene, run: Run) -> None:
    ended = run("tables", "--lake", scene.lake, "--json")
    assert ended.code == 0
    (customers, orders) = ended.document["tables"]
    number = int(lsn(2).replace(":", ""), 16)
    assert customers == {
        "flow": TOPIC,
        "table": f"{scene.lake}/{TOPIC}",
        "rows": 2,
        "applied_position": {"0": f"{number}/{number}/1"},
        "microbatches": 1,
        "pending_files": 0,
        "rejected": 1,
        "table_version": customers["table_version"],
    }
    assert isinstance(customers["table_version"], int)
    assert (orders["flow"], orders["rows"], orders["rejected"]) == (ORDERS, 1, 0)

    for_people = run("tables", "--lake", scene.lake)
    assert for_people.code == 0
    assert re.search(rf"{TOPIC}.*│ +2 │ 0: {number}/{number}/1 +│ +0 │ +1 │", for_people.stdout)


def test_show_prints_rows_in_the_order_of_keys_and_every_value_without_loss(scene: Scene, run: Run) -> None:
    columns = {"nr": "BIGINT", "amount": "DECIMAL(10,2)", "day": "DATE", "at": "TIMESTAMP", "photo": "BINARY", "rate": "DOUBLE"}
    orders = {
        "flow": ORDERS,
        "columns": columns,
        "keys": ["nr"],
        "rows": [{"nr": 7, "amount": "12.50", "day": "2026-11-20", "at": "2026-11-20T05:00:00.500000", "photo": "AAE=", "rate": "nan"}],
    }
    customers = {"flow": TOPIC, "columns": {"id": "BIGINT", "name": "STRING"}, "keys": ["id"], "rows": [ANN, BEN]}

    assert run("show", ORDERS, "--lake", scene.lake, "--json").document == orders
    assert run("show", TOPIC, ORDERS, "--lake", scene.lake, "--json").document == {"flows": [customers, orders]}
    assert run("show", TOPIC, "--lake", scene.lake, "--limit", 1, "--json").document == {**customers, "rows": [ANN]}

    for_people = run("show", TOPIC, "--lake", scene.lake)
    assert for_people.code == 0
    assert f"{TOPIC}(2rows)" in "".join(for_people.stdout.split())
    assert re.search(r"│ 1 +│ ann +│\n│ 2 +│ ben +│", for_people.stdout)
    assert "__cdc_" not in for_people.stdout

    everything = run("show", TOPIC, "--lake", scene.lake, "--history", "--json").document
    assert [(row["id"], row["__cdc_op"], row["__cdc_position"]["serial"]) for row in everything["rows"]] == [(1, "c", 1), (2, "c", 1)]
    assert {"__cdc_op": "STRING"}.items() <= everything["columns"].items()


def test_show_of_a_flow_that_the_lake_has_not_names_those_it_has(scene: Scene, run: Run) -> None:
    ended = run("show", "unknown", "--lake", scene.lake, "--json")
    assert (ended.code, ended.stdout) == (2, "")
    told = " ".join(ended.stderr.split())
    assert "ConfigurationError" in told
    assert f"holds no table of flow unknown; its flows are ['{TOPIC}', '{ORDERS}']" in told
    assert "Next step:" in told


def test_diff_of_equal_lakes_ends_with_0(scene: Scene, run: Run) -> None:
    ended = run("diff", scene.lake, scene.lake, "--json")
    assert ended.code == 0
    same = {"schema": [], "only_left": 0, "only_right": 0, "sample": [], "equal": True}
    assert ended.document == {
        "equal": True,
        "tables": [{"flow": TOPIC, **same}, {"flow": ORDERS, **same}],
        "only_left": [],
        "only_right": [],
    }


def test_diff_of_lakes_that_differ_ends_with_1_and_shows_the_keys(scene: Scene, run: Run, tmp_path: Path) -> None:
    ended = run("diff", scene.lake, scene.other, "--json")
    assert ended.code == 1
    document = ended.document
    sample = sorted(document["tables"][0].pop("sample"), key=lambda found: (found["id"], found["side"]))
    assert sample == [{"side": side, "id": number} for number, side in ((1, "left"), (1, "right"), (2, "left"), (3, "right"))]
    assert document == {
        "equal": False,
        "tables": [{"flow": TOPIC, "schema": [], "only_left": 2, "only_right": 2, "equal": False}],
        "only_left": [ORDERS],
        "only_right": ["server1.testDB.dbo.alone"],
    }
    # A difference is an answer and no failure: nobody needs Spark's log.
    assert logs(tmp_path) == []

    for_people = run("diff", scene.lake, scene.other)
    assert for_people.code == 1
    assert re.search(rf"{TOPIC} +│ DIFFERENT +│ +2 +│ +2 +│", for_people.stdout)
    assert f"{TOPIC}:keysthatdiffer" in "".join(for_people.stdout.split())
    assert {tuple(row) for row in re.findall(r"│ (left|right) +│ (\d) +│", for_people.stdout)} == {
        ("left", "1"),
        ("right", "1"),
        ("left", "2"),
        ("right", "3"),
    }
    assert f"only in A, not compared: {ORDERS}" in for_people.stderr


def test_diff_ends_with_1_when_there_is_nothing_to_compare(scene: Scene, run: Run) -> None:
    ended = run("diff", scene.lake, scene.other, "--table", "*.orders", "--json")
    assert (ended.code, ended.document) == (1, {"equal": False, "tables": [], "only_left": [ORDERS], "only_right": []})


def test_the_quarantine_is_listed_and_shown_with_reason_place_and_raw_text(scene: Scene, run: Run) -> None:
    ended = run("quarantine", "list", "--lake", scene.lake, "--json")
    assert ended.code == 0
    (record,) = ended.document["quarantine"]
    raw = json.loads(record.pop("raw"))
    assert (raw["value"]["after"], raw["key"]) == (NAMELESS, {"id": None})
    assert record == {
        "flow": TOPIC,
        "microbatch": 1,
        "reason": "missing_key",
        "detail": None,
        "topic": TOPIC,
        "partition": 0,
        "offset": 2,
        "file": "1.jsonl",
        "line": 3,
        "raw_key": '{"id":null}',
    }

    shown = run("quarantine", "show", TOPIC, "--lake", scene.lake, "--json").document
    assert (shown["flow"], [item["line"] for item in shown["quarantine"]]) == (TOPIC, [3])
    assert run("quarantine", "show", ORDERS, "--lake", scene.lake, "--json").document == {"flow": ORDERS, "quarantine": []}
    assert run("quarantine", "list", "--lake", scene.lake, "--table", "*.orders", "--json").document == {"quarantine": []}

    for_people = run("quarantine", "show", TOPIC, "--lake", scene.lake)
    assert for_people.code == 0
    assert "missing_key 1.jsonl:3 (microbatch 1)" in for_people.stdout
    # The text can be taken from the terminal as it was archived.
    assert '"after": {"id": null, "name": "nobody"}' in for_people.stdout.replace("\n", "")
    assert re.search(rf"{TOPIC} +│ +1 │ missing_key", run("quarantine", "list", "--lake", scene.lake).stdout)


def test_a_lake_that_holds_nothing_has_no_tables(run: Run, tmp_path: Path) -> None:
    assert run("tables", "--lake", tmp_path / "nowhere", "--json").document == {"tables": []}
    assert run("quarantine", "list", "--lake", tmp_path / "nowhere", "--json").document == {"quarantine": []}
