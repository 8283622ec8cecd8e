"""Commands that only look: what they print, that no Spark starts for it, and how they say that one must."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc.console import sparkline
from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.position.position import Position
from tests.support.small_lakes import FLOW, field, our_properties, write_flow, write_quarantine, write_table
from tests.unit.cli.conftest import CLOSED_LATE, Run, logs

pytestmark = CLOSED_LATE

LSN = "00000027:00000758:0003"
ROWS = [{"id": 1, "name": "ann"}, {"id": 2, "name": "ben"}]
REJECT = {
    "microbatch": 1,
    "reason": "missing_key",
    "detail": None,
    "topic": FLOW,
    "partition": 0,
    "offset": 2,
    "file": "1.jsonl",
    "line": 3,
}
RAW = {"raw": '{"after": {"id": null}}', "raw_key": "null"}


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return lake_of(tmp_path / "lake", ROWS)


def lake_of(folder: Path, rows: list[dict[str, Any]]) -> Path:
    write_flow(folder, through=Position(sqlserver_lsn(LSN), 5, 1))
    fields = [field("id", "long"), field("name", "string")]
    write_table(folder / FLOW, fields, [pa.Table.from_pylist(rows)], properties=our_properties(["id"]))
    write_quarantine(folder, [{**REJECT, **RAW}])
    return folder


def test_keys_that_have_several_rows_are_found_and_the_way_out_is_named(tmp_path: Path, run: Run, no_start: None) -> None:
    sound, doubled = lake_of(tmp_path / "a", ROWS), lake_of(tmp_path / "b", [*ROWS, {"id": 2, "name": "old"}, {"id": 7, "name": "x"}] * 2)
    ended = run("verify", sound)
    stands = f"the table stands at version 0, microbatch 1, partition 0 through {sqlserver_lsn(LSN)}/5/1"
    assert (ended.code, ended.stdout.splitlines()[0]) == (0, f"{FLOW}: each key has one row of 2; {stands}")
    ended = run("verify", doubled, "--json")
    (table,) = ended.document["tables"]
    assert (ended.code, table["equal"], table["rows"], table["doubled"]) == (1, False, 8, 3)
    assert table["sample"] == [{"side": "doubled", "id": key} for key in ("1", "2", "7")]
    assert f'airflow-cdc rebuild "{FLOW}" --archive … --lake "{doubled}"' in run("verify", doubled).stdout


def test_rows_that_have_no_key_of_their_own_are_none_to_verify(tmp_path: Path, run: Run, no_start: None) -> None:
    write_flow(tmp_path)
    properties = our_properties(["id"], TableMode.CHANGE_LOG)
    write_table(tmp_path / FLOW, [field("id", "long")], [pa.table({"id": [1, 1]})], properties=properties)
    ended = run("verify", tmp_path)
    assert ended.code != 0
    assert "no table of these names with one row a key" in " ".join(ended.stderr.split())


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("airflow_cdc.pipeline.spark.session.start_session", refuse)


def test_tables_prints_positions_as_the_source_spells_them_and_numbers_in_json(lake: Path, run_alone: Run, no_start: None) -> None:
    number = sqlserver_lsn(LSN)
    (summary,) = run_alone("tables", "--lake", lake, "--json").document["tables"]
    assert summary == {
        "flow": FLOW,
        "table": f"{lake}/{FLOW}",
        "rows": 2,
        "applied_position": {"0": f"{number}/5/1"},
        "microbatches": 1,
        "pending_files": 0,
        "rejected": 1,
        "table_version": 0,
    }
    assert re.search(rf"{FLOW}.*│ +2 │ 0: {LSN} +│ +0 │ +1 │", run_alone("tables", "--lake", lake).stdout)


def test_show_prints_the_rows(lake: Path, run_alone: Run, no_start: None) -> None:
    columns = {"id": "BIGINT", "name": "STRING"}
    customers = {"flow": FLOW, "columns": columns, "keys": ["id"], "rows": ROWS, "total": 2}
    assert run_alone("show", FLOW, "--lake", lake, "--json").document == customers
    assert run_alone("show", FLOW, FLOW, "--lake", lake, "--json").document == {"flows": [customers, customers]}
    assert run_alone("show", FLOW, "--lake", lake, "--limit", 1, "--json").document == {**customers, "rows": ROWS[:1]}
    shown = run_alone("show", FLOW, "--lake", lake).stdout
    assert f"{FLOW} (2 rows)" in shown
    assert re.search(r"│ 1 +│ ann +│\n│ 2 +│ ben +│", shown)


def test_history_prints_a_line_for_each_of_the_newest_microbatches(tmp_path: Path, run_alone: Run, no_start: None) -> None:
    state = write_flow(tmp_path, microbatches=3)
    document = run_alone("history", FLOW, "--lake", tmp_path, "--limit", 2, "--json").document
    assert (document["flow"], document["total"], [each["number"] for each in document["microbatches"]]) == (FLOW, 3, [2, 3])
    report = state.report(3)
    assert report is not None
    assert document["microbatches"][1]["report"] == report.to_json()

    shown = run_alone("history", FLOW, "--lake", tmp_path, "--limit", 2).stdout
    assert f"{FLOW}, the newest 2 of 3 microbatches" in shown
    line = r"│ +3 │ \d{4}-\d\d-\d\d \d\d:\d\d:\d\d │ +1 │ +3 │ +2 │ +1 │ \+2 ~0 -0 │ +1\.2 │ spark +│ merge +│"
    assert re.search(line, shown)
    assert not re.search(r"│ +1 │ \d{4}-", shown)
    assert f"{FLOW}, 3 microbatches" in run_alone("history", FLOW, "--lake", tmp_path, "--all").stdout


def test_history_plots_more_than_one_microbatch(tmp_path: Path, run_alone: Run, no_start: None) -> None:
    state = write_flow(tmp_path, microbatches=3)
    marker = tmp_path / "_cdc/flows" / FLOW / "commits/00000003.json"
    document = json.loads(marker.read_text())
    document["report"]["events"] |= {"read": 24, "merged": 23}
    marker.write_text(json.dumps(document))
    state.checkpoint()
    lines = run_alone("history", FLOW, "--lake", tmp_path).stdout.splitlines()
    assert "    read ▁▁█  at most 24" in lines
    assert " seconds ███  at most 1.2" in lines
    assert not any("stale" in line for line in lines)
    (tmp_path / "_cdc/flows" / FLOW / "commits/00000001.json").unlink()
    assert "    read ·▁█  at most 24" in run_alone("history", FLOW, "--lake", tmp_path).stdout.splitlines()
    assert "at most" not in run_alone("history", FLOW, "--lake", tmp_path, "--limit", 1).stdout


@pytest.mark.parametrize(("values", "bars"), [([], ""), ([0, 0], "  "), ([0, 1, 4, 8], " ▁▄█"), ([1, 1000], "▁█")])
def test_a_value_above_zero_has_a_bar(values: list[float], bars: str) -> None:
    assert sparkline(values) == bars


def test_history_of_an_unknown_flow_is_a_usage_error(lake: Path, run_alone: Run, no_start: None) -> None:
    ended = run_alone("history", "unknown", "--lake", lake, "--json")
    assert (ended.code, ended.stdout) == (2, "")
    assert f"no flow unknown; its flows are ['{FLOW}']" in " ".join(ended.stderr.split())


def test_history_shows_a_microbatch_whose_marker_is_gone(tmp_path: Path, run_alone: Run, no_start: None) -> None:
    write_flow(tmp_path, microbatches=2).checkpoint()
    (tmp_path / "_cdc/flows" / FLOW / "commits/00000001.json").unlink()
    assert re.search(r"│ +1 │ - +│.*│ its commit marker is gone │", run_alone("history", FLOW, "--lake", tmp_path).stdout)


def test_diff_prints_what_differs_and_ends_with_1(lake: Path, run_alone: Run, no_start: None, tmp_path: Path) -> None:
    other = lake_of(tmp_path / "other", [{"id": 1, "name": "ann b."}, {"id": 2, "name": "ben"}])
    assert run_alone("diff", lake, lake).code == 0
    ended = run_alone("diff", lake, other, "--json")
    assert (ended.code, ended.document["tables"][0]["values"]) == (1, {"name": 1})
    shown = run_alone("diff", lake, other)
    assert re.search(rf"{FLOW} +│ DIFFERENT +│ 1 +│ 1 +│ name: 1 values differ", shown.stdout)
    assert f"only in A, not compared: {FLOW}" in run_alone("diff", lake, tmp_path / "none").stderr


def test_the_quarantine_is_listed_and_shown(lake: Path, run_alone: Run, no_start: None) -> None:
    example = {**REJECT, **RAW}
    group = {"flow": FLOW, "reason": "missing_key", "column": None, "records": 1, "example": example}
    assert run_alone("quarantine", "list", "--lake", lake, "--json").document == {
        "quarantine": [{"flow": FLOW, **example}],
        "groups": [group],
    }
    assert "(1 record, 1 group)" in run_alone("quarantine", "list", "--lake", lake).stdout
    assert re.search(rf"{FLOW} +│ +1 │ missing_key", run_alone("quarantine", "list", "--lake", lake, "--all").stdout)
    shown = run_alone("quarantine", "show", FLOW, "--lake", lake).stdout
    assert shown.startswith("missing_key 1.jsonl:3 (microbatch 1)\n")
    assert RAW["raw"] in shown


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables",),
        ("show", FLOW),
        ("history", FLOW),
        ("files",),
        ("quarantine", "list"),
        ("quarantine", "show", FLOW),
    ],
)
def test_a_look_imports_no_pyspark(arguments: tuple[str, ...], lake: Path, tmp_path: Path) -> None:
    program = """
import sys
from airflow_cdc.cli import app
try:
    app()
finally:
    heavy = {"pyspark", "py4j", "delta", "pandas", "airflow"}
    print(sorted(heavy & {name.split(".")[0] for name in sys.modules}), file=sys.stderr)
"""
    command = [sys.executable, "-c", program, *arguments, "--lake", str(lake), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == "[]\n"
    assert ended.stdout.startswith("{")


def test_a_table_that_only_spark_reads_starts_it_and_says_why(
    lake: Path, run_alone: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(*_: object, **__: object) -> None:
        raise ConfigurationError("Spark was asked for.", next_step="None.")

    monkeypatch.setattr("airflow_cdc.pipeline.spark.session.start_session", start)
    write_flow(lake, "odd")
    write_table(lake / "odd", [field("id", "long")], [], features=["variantType"])
    ended = run_alone("tables", "--lake", lake, "--connect", "sc://127.0.0.1:1")
    assert (ended.code, ended.stdout) == (2, "")
    assert f"Spark starts: {lake}/odd has the feature variantType" in ended.stderr.splitlines()
    assert "Spark was asked for." in ended.stderr
    assert logs(tmp_path) == []


def test_a_state_that_cannot_be_read_ends_with_1(lake: Path, run_alone: Run, no_start: None) -> None:
    (lake / "_cdc/flows" / FLOW / "checkpoint.json").write_text("{")
    for command in (("tables",), ("history", FLOW), ("show", FLOW)):
        ended = run_alone(*command, "--lake", lake)
        assert (ended.code, ended.stdout) == (1, "")
        assert "StateUnreadableError" in ended.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("apply",),
        ("rebuild", FLOW),
        ("reprocess", FLOW),
        ("retype", FLOW),
        ("quarantine", "replay", FLOW),
    ],
)
def test_an_archive_that_is_not_there_is_refused_before_spark_starts(
    command: tuple[str, ...], lake: Path, run_alone: Run, no_start: None, tmp_path: Path
) -> None:
    ended = run_alone(*command, "--archive", tmp_path / "nowhere", "--lake", lake)
    assert (ended.code, ended.stdout) == (2, "")
    assert "ArchiveNotFoundError" in ended.stderr
    assert f"{tmp_path}/nowhere" in ended.stderr.replace("\n", "")


def test_a_wrong_setting_of_spark_is_refused_though_spark_is_not_needed(lake: Path, run_alone: Run, no_start: None) -> None:
    ended = run_alone("tables", "--lake", lake, "--conf", "spark.driver.memory")
    assert (ended.code, ended.stdout) == (2, "")
    assert "is not key=value" in ended.stderr
