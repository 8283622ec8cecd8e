"""Commands on an archive and the lakes that it and another were applied to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.events import TOPIC, lsn
from tests.unit.cli.conftest import ANN, BEN, CLOSED_LATE, NAMELESS, ORDERS, Run, Scene, logs, process

pytestmark = CLOSED_LATE


# apply


@pytest.mark.deep
def test_apply_prints_one_json_document_on_stdout_and_the_rest_on_stderr(scene: Scene, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ended = process(
        "apply", "--archive", scene.archive, "--lake", lake, "--flows", scene.flows, "--json", "--master", "local[2]", cwd=tmp_path
    )

    assert ended.code == 0, ended.stderr
    document = ended.document
    assert set(document) == {
        "ok",
        "nothing_pending",
        "archive",
        "lake",
        "flows",
        "control_topics",
        "ignored_files",
        "error",
        "transactions",
        "cuts",
        "set_aside_files",
        "held_topics",
    }
    assert (document["ok"], document["error"], document["ignored_files"]) == (True, None, ["README.md"])
    assert document["nothing_pending"] is False
    assert (document["archive"], document["lake"]) == (str(scene.archive), str(lake))
    customers, orders = document["flows"]
    waits = {"waiting_for", "waiting_files", "cut_files", "cut_records", "outside_files"}
    more = {"table_version", "columns", "document_columns", "foreign_changes", "is_new_table"}
    assert set(customers) == {"flow", "status", "table", "events", "rows", "batches", "error", *waits, *more}
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


def test_apply_ends_with_1_where_more_is_rejected_than_allowed_and_applies_the_rest(scene: Scene, run: Run, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ended = run("apply", "--archive", scene.archive, "--lake", lake, "--flows", scene.flows, "--fail-on-rejects", "any", "--json")
    assert ended.code == 1
    assert [flow["rows"]["inserted"] for flow in ended.document["flows"]] == [2, 1]
    assert f"too many rejects: {TOPIC}: 1 of 3 records are in the quarantine" in ended.stderr


def test_apply_reports_that_nothing_is_pending(scene: Scene, run: Run) -> None:
    ended = run("apply", "--archive", scene.archive, "--lake", scene.lake, "--flows", scene.flows, "--json")
    assert ended.code == 0
    assert ended.document["nothing_pending"] is True
    assert [(flow["flow"], flow["status"], flow["batches"]) for flow in ended.document["flows"]] == [
        (TOPIC, "up_to_date", []),
        (ORDERS, "up_to_date", []),
    ]
    for_people = run("apply", "--archive", scene.archive, "--lake", scene.lake, "--table", "*.orders")
    assert for_people.code == 0
    assert "up_to_date" in for_people.stdout
    assert ORDERS in for_people.stdout
    assert TOPIC not in for_people.stdout


# usage


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("flows: [", "cannot be read"),
        ("flow: []", "list of flows"),
        ("[{topic: t, primary_key: id}]", "primary_key"),
        # Brackets are no markup of the terminal's.
        ("routes: [{topic: '[/a-z](', table: t}]", "Route '[/a-z](': topic is no regular expression"),
    ],
)
def test_a_bad_flows_file_is_a_usage_error(content: str | None, message: str, scene: Scene, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "flows.yaml"
    if content is not None:
        path.write_text(content)
    ended = run("apply", "--archive", scene.archive, "--lake", tmp_path / "lake", "--flows", path, "--json")
    assert (ended.code, ended.stdout) == (2, "")
    # Lines are folded to the terminal's width.
    seen = " ".join(ended.stderr.split())
    assert "ConfigurationError" in seen
    assert message in seen
    assert "Next step:" in seen
    assert not (tmp_path / "lake").exists()


def test_a_bad_flows_file_is_refused_before_spark_starts(scene: Scene, run: Run, no_spark: None, tmp_path: Path) -> None:
    assert run("apply", "--archive", scene.archive, "--lake", tmp_path / "lake", "--flows", tmp_path / "none.yaml").code == 2


# looking at lakes


def test_tables_shows_of_each_flow_how_far_it_is_applied(scene: Scene, run: Run) -> None:
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
    assert re.search(rf"{TOPIC}.*│ +2 │ 0: {lsn(2)} +│ +0 │ +1 │", for_people.stdout)


def test_show_prints_rows_in_the_order_of_keys_and_every_value_without_loss(scene: Scene, run: Run) -> None:
    columns = {"nr": "BIGINT", "amount": "DECIMAL(10,2)", "day": "DATE", "at": "TIMESTAMP", "photo": "BINARY", "rate": "DOUBLE"}
    orders = {
        "flow": ORDERS,
        "columns": columns,
        "keys": ["nr"],
        "rows": [{"nr": 7, "amount": "12.50", "day": "2026-11-20", "at": "0001-01-01T00:00:00.500000", "photo": "AAE=", "rate": "nan"}],
        "total": 1,
    }
    customers = {"flow": TOPIC, "columns": {"id": "BIGINT", "name": "STRING"}, "keys": ["id"], "rows": [ANN, BEN], "total": 2}

    assert run("show", ORDERS, "--lake", scene.lake, "--json").document == orders
    assert run("show", TOPIC, ORDERS, "--lake", scene.lake, "--json").document == {"flows": [customers, orders]}
    assert run("show", TOPIC, "--lake", scene.lake, "--limit", 1, "--json").document == {**customers, "rows": [ANN]}

    for_people = run("show", TOPIC, "--lake", scene.lake)
    assert for_people.code == 0
    assert f"{TOPIC}(2rows)" in "".join(for_people.stdout.split())
    assert re.search(r"│ 1 +│ ann +│\n│ 2 +│ ben +│", for_people.stdout)
    assert "__cdc_" not in for_people.stdout
    assert f"{TOPIC} (rows 1 of 2)" in run("show", TOPIC, "--lake", scene.lake, "--limit", 1).stdout

    everything = run("show", TOPIC, "--lake", scene.lake, "--history", "--json").document
    assert [(row["id"], row["__cdc_op"], row["__cdc_position"]["serial"]) for row in everything["rows"]] == [(1, "c", 1), (2, "c", 1)]
    assert {"__cdc_op": "STRING"}.items() <= everything["columns"].items()


def test_show_of_a_flow_that_the_lake_has_not_names_those_it_has(scene: Scene, run: Run) -> None:
    ended = run("show", "unknown", "--lake", scene.lake, "--json")
    assert (ended.code, ended.stdout) == (2, "")
    message = " ".join(ended.stderr.split())
    assert "ConfigurationError" in message
    assert f"holds no table of flow unknown; its flows are ['{TOPIC}', '{ORDERS}']" in message
    assert "Next step:" in message


def test_diff_of_equal_lakes_ends_with_0(scene: Scene, run: Run) -> None:
    ended = run("diff", scene.lake, scene.lake, "--json")
    assert ended.code == 0
    same = {"schema": [], "only_left": 0, "only_right": 0, "sample": [], "values": {}, "equal": True}
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
        "tables": [{"flow": TOPIC, "schema": [], "only_left": 2, "only_right": 2, "values": {"name": 1}, "equal": False}],
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
    example = {name: part for name, part in record.items() if name != "flow"}
    group = {"flow": TOPIC, "reason": "missing_key", "column": None, "records": 1, "example": example}
    assert ended.document["groups"] == [group]
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
    assert run("quarantine", "list", "--lake", scene.lake, "--table", "*.orders", "--json").document == {"quarantine": [], "groups": []}

    for_people = run("quarantine", "show", TOPIC, "--lake", scene.lake)
    assert for_people.code == 0
    assert "missing_key 1.jsonl:3 (microbatch 1)" in for_people.stdout
    # The text can be taken from the terminal as it was archived.
    assert '"after": {"id": null, "name": "nobody"}' in for_people.stdout.replace("\n", "")
    assert f"{TOPIC}: 1 record in the quarantine" in for_people.stdout
    grouped = run("quarantine", "list", "--lake", scene.lake).stdout
    assert re.search(rf"{TOPIC} │ missing_key │ - +│ +1 │ 1.jsonl:3 │ -", grouped)
    assert "(1 record, 1 group)" in grouped
    every = run("quarantine", "list", "--lake", scene.lake, "--all").stdout
    assert re.search(rf"{TOPIC} +│ +1 │ missing_key", every)


def test_the_quarantine_of_a_flow_that_the_lake_does_not_know_is_a_usage_error(scene: Scene, run: Run) -> None:
    ended = run("quarantine", "show", "x.y.unknown", "--lake", scene.lake)
    assert (ended.code, ended.stdout) == (2, "")
    assert f"knows no flow x.y.unknown; it knows {TOPIC}, {ORDERS}." in " ".join(ended.stderr.split())


# rebuild


@pytest.mark.deep
def test_a_rebuild_prints_its_place_and_how_to_compare(scene: Scene, run: Run, tmp_path: Path) -> None:
    new = tmp_path / "new"
    flow = ("--archive", scene.archive, "--lake", scene.lake, "--flows", scene.flows)
    ended = run("rebuild", TOPIC, *flow, "--as-of", lsn(1), "--into", new, "--json")
    assert ended.code == 0, ended.stderr
    assert (ended.document["lake"], [item["flow"] for item in ended.document["flows"]]) == (str(new), [TOPIC])
    assert run("show", TOPIC, "--lake", new, "--json").document["rows"] == [ANN]
    assert f"rebuilt in {new}" in ended.stderr
    assert f'airflow-cdc diff "{scene.lake}" "{new}" --table "{TOPIC}"' in ended.stderr

    again = run("rebuild", TOPIC, *flow, "--into", new)
    assert (again.code, again.stdout) == (2, "")
    assert "holds a table or the state of flow" in " ".join(again.stderr.split())

    failed = run("rebuild", TOPIC, *flow, "--as-of", "0/16B3748", "--into", tmp_path / "other", "--json")
    assert (failed.code, failed.document["flows"][0]["error"]["type"]) == (1, "ConfigurationError")
    assert "rebuilt in" not in failed.stderr


# reprocess


@pytest.mark.deep
def test_reprocess_reports_what_it_finds_and_does_it_when_asked(scene: Scene, run: Run, spark: SparkSession, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    flow = ("--archive", scene.archive, "--lake", lake, "--flows", scene.flows)
    assert run("apply", *flow).code == 0
    spark.sql(f"DELETE FROM delta.`{lake}/{TOPIC}` WHERE id = 2")

    dry = run("reprocess", TOPIC, *flow, "--dry-run")
    assert (dry.code, dry.stdout) == (
        0,
        f"{TOPIC}: 1 inserts, 0 updates, 0 deletes, 1 older than the row (3 records in 1 files)\n",
    )
    assert run("show", TOPIC, "--lake", lake, "--json").document["rows"] == [ANN]

    ended = run("reprocess", TOPIC, *flow, "--from-position", lsn(2), "--to-position", lsn(2), "--json")
    assert ended.code == 0, ended.stderr
    document = ended.document
    assert set(document) == {"dry_run", "found", "report"}
    assert (document["dry_run"], document["found"]["events"]["read"]) == (False, 1)
    assert document["report"]["flows"][0]["rows"] == {"inserted": 1, "updated": 0, "deleted": 0}
    assert run("show", TOPIC, "--lake", lake, "--json").document["rows"] == [ANN, BEN]

    again = run("reprocess", TOPIC, *flow, "--json").document
    assert (again["report"], again["found"]["rows"]) == (None, {"inserted": 0, "updated": 0, "deleted": 0})

    foreign = run("reprocess", TOPIC, *flow, "--from-position", "0/16B3748", "--json")
    assert (foreign.code, foreign.stdout) == (2, "")
    assert "is no position of its connector sqlserver" in " ".join(foreign.stderr.split())


# files


def test_files_lists_what_cannot_be_read_without_spark_and_apply_ends_with_1(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    archive.mkdir()
    (archive / "carts.jsonl.gz").write_bytes(b"no gzip")
    applied = run("apply", "--archive", archive, "--lake", lake, "--master", "local[2]")
    assert applied.code == 1
    assert "carts: UnreadableFileError: Flow carts: 1 archived files cannot be read" in applied.stderr

    monkeypatch.setattr("airflow_cdc.pipeline.spark.session.start_session", None)
    ended = run("files", "--lake", lake, "--json")
    (file,) = ended.document["files"]
    assert ended.code == 0
    assert (file["archive"], file["path"], file["topic"]) == (str(archive), "carts.jsonl.gz", "carts")
    assert (file["reason"], file["detail"]) == ("unreadable_file", "it is no .gz file")
    assert "carts.jsonl.gz" in run("files", "--lake", lake).stdout
    assert run("files", "--lake", tmp_path / "none", "--json").document == {"files": []}
