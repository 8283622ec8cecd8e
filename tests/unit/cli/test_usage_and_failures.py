"""Command lines that are wrong, archives and lakes that are not there, flows that fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_cdc import __version__
from airflow_cdc.runtime import JavaNotFoundError, own_minor
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.unit.cli.conftest import ANN, BEN, CLOSED_LATE, ORDERS, TEAPOT, Ended, Run, logs, process

pytestmark = CLOSED_LATE
ROOTS = ("--archive", "a", "--lake", "l")


# apply


def test_a_consistent_run_reports_where_it_cut_and_what_waits(run: Run, tmp_path: Path) -> None:
    ahead = [sqlserver("c", commit=commit, after={**ANN, "id": commit}) for commit in (1, 2)]
    write_records(tmp_path / "archive" / "1.jsonl", numbered([*ahead, sqlserver("c", commit=1, after=BEN, topic=ORDERS)]))

    ended = run("apply", "--archive", tmp_path / "archive", "--lake", tmp_path / "lake", "--consistent", "--json")

    assert ended.code == 0
    (cut,) = ended.document["cuts"]
    assert (cut["prefix"], cut["is_proven"], cut["waits_for"]) == (TOPIC.split(".", maxsplit=1)[0], False, [])
    assert f"{cut['prefix']}: cut before commit position {cut['before']}" in ended.stderr
    assert f"{TOPIC}: 1 records in 1 files wait behind the cut" in ended.stderr


def test_without_java_the_native_engine_applies_and_what_needs_spark_fails_with_the_next_step(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_java() -> Path:
        raise JavaNotFoundError

    write_records(tmp_path / "archive" / "1.jsonl", numbered([sqlserver("c", commit=1, after=BEN)]))
    monkeypatch.setattr("airflow_cdc.runtime.spark.require_java_home", no_java)

    ended = run("apply", "--archive", tmp_path / "archive", "--lake", tmp_path / "lake", "--json")
    assert ended.code == 0
    assert [batch["engine"] for flow in ended.document["flows"] for batch in flow["batches"]] == ["native"]

    ended = run("apply", "--archive", tmp_path / "archive", "--lake", tmp_path / "by-spark", "--engine", "spark")
    assert ended.code == 1
    assert f"JavaNotFoundError: Spark {own_minor().minor} needs Java {own_minor().java} and none was found" in ended.stderr
    assert "Next step: set JAVA_HOME" in " ".join(ended.stderr.split())


def test_a_java_that_ends_at_once_is_named_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path / "archive" / "1.jsonl", numbered([sqlserver("c", commit=1, after=BEN)]))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--no-such-option")
    # A process of its own: Spark runs in this one.
    ended = process("apply", "--archive", tmp_path / "archive", "--lake", tmp_path / "lake", "--engine", "spark", cwd=tmp_path)
    assert ended.code == 1
    assert "SparkFailedError: Spark did not start" in ended.stderr
    assert "JDK_JAVA_OPTIONS" in ended.stderr


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
    ("arguments", "message"),
    [
        (["apply", "--archive", "a"], "--lake"),
        (["apply", "--lake", "l"], "--archive"),
        (["apply", "--archive", "a", "--lake", "l", "--unknown"], "--unknown"),
        (["apply", *ROOTS, "--fail-on-rejects", "sometimes"], "fail_on_rejects is 'sometimes'"),
        (["tables"], "--lake"),
        (["show", "--lake", "l"], "FLOW"),
        (["diff", "a"], "LAKE_B"),
        (["quarantine", "show", "--lake", "l"], "FLOW"),
        (["show", "t", "--lake", "l", "--limit", "many"], "--limit"),
        (["rebuild", "--archive", "a", "--lake", "l"], "FLOW"),
        (["rebuild", "t", "--archive", "a"], "--lake"),
        (["rebuild", "t", "--archive", "a", "--lake", "l", "--as-of", "yesterday"], "'yesterday' is neither a position nor a time"),
        (["rebuild", "t", "--archive", "a", "--lake", "l", "--flows", "nowhere.yaml"], "nowhere.yaml"),
        (["reprocess", "--archive", "a", "--lake", "l"], "FLOW"),
        (["reprocess", "t", "--lake", "l"], "--archive"),
        (["reprocess", "t", "--archive", "a", "--lake", "l", "--from-position", "yesterday"], "neither a position nor a time"),
        (["reprocess", "t", "--archive", "a", "--lake", "l", "--to-position", "first"], "'first' is neither a position nor a time"),
        (["reprocess", "t", *ROOTS, "--from-position", "2026-11-21", "--to-position", "2026-11-20"], "Give the earlier time first"),
        (["quarantine", "replay", "t", "--lake", "l"], "--archive"),
        (["quarantine", "replay", "t", *ROOTS, "--reason", "bad_luck"], "No record is set aside for"),
        (["unheard-of"], "unheard-of"),
    ],
)
def test_a_wrong_command_line_ends_with_2_before_spark_starts(arguments: list[str], message: str, run: Run, no_spark: None) -> None:
    ended = run(*arguments)
    assert ended.code == 2
    assert message in ended.stderr
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


def test_a_wrong_spark_setting_is_reported_on_the_terminal(tmp_path: Path) -> None:
    ended = process("tables", "--lake", tmp_path / "lake", "--conf", "spark.driver.memory", cwd=tmp_path)
    assert (ended.code, ended.stdout) == (2, "")
    assert "'spark.driver.memory' is not key=value" in ended.stderr
    assert logs(tmp_path) == []


def test_a_spark_that_does_not_start_is_reported_on_the_terminal_too(tmp_path: Path) -> None:
    ended = process("maintain", "--lake", tmp_path / "lake", "--conf", "spark.driver.memory=much", cwd=tmp_path)
    assert (ended.code, ended.stdout) == (1, "")
    assert "SparkFailedError: Spark did not start" in ended.stderr
    (log,) = logs(tmp_path)
    assert f"Spark's log: {log}" in ended.stderr.replace("\n", "")
    assert "much" in log.read_text()


# looking at lakes


def test_a_lake_that_holds_nothing_has_no_tables(run: Run, tmp_path: Path) -> None:
    assert run("tables", "--lake", tmp_path / "nowhere", "--json").document == {"tables": []}
    assert run("quarantine", "list", "--lake", tmp_path / "nowhere", "--json").document == {"quarantine": [], "groups": []}
