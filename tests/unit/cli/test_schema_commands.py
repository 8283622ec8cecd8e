"""``schema import`` and ``schema show``: no Spark starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from click.testing import Result
from typer.testing import CliRunner

from airflow_cdc.cli import app
from airflow_cdc.model.flow.column_origin import Origin, TypeReport
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema, SourceSchemas
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.schema_file import write_schema_file
from tests.support.scene import Scene
from tests.support.surveys import shape
from tests.unit.model.handed_over.spellings import as_avro
from tests.unit.model.handed_over.test_read_files import DECIMAL, ENVELOPE, KEY, ORDERS, ROW

FS = fsspec.filesystem("file")
pytestmark = pytest.mark.usefixtures("no_spark")


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)


def printed(ended: Result) -> str:
    """Return what stands on stderr, not folded to a terminal's width."""
    return " ".join(ended.stderr.split())


def written(folder: Path, document: Any, name: str = "orders.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(document))
    return file


def answers(*columns: int) -> list[dict[str, Any]]:
    """Return a registry's versions of a topic whose rows have some numbers of columns."""
    rows = [{**ROW, "fields": ROW["fields"][:number]} for number in columns]
    value = [{"subject": f"{ORDERS}-value", "version": at, "schema": json.dumps(as_avro(row))} for at, row in enumerate(rows, start=1)]
    return [*value, {"subject": f"{ORDERS}-key", "version": 1, "schema": json.dumps(as_avro(KEY))}]


def test_an_import_is_kept_by_flow_and_shown(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = run("schema", "import", written(tmp_path, [*answers(3), {"schema": "m", "schemaType": "PROTOBUF"}]), "--lake", lake)
    assert done.exit_code == 0
    assert f"{ORDERS} │ unknown   │       3 │     3 │ -       │ id  │ first one" in done.stdout
    assert "left aside: orders.json: it is Protobuf, which is not read" in done.stdout
    assert f'Next step: airflow-cdc apply --archive … --lake "{lake}"' in done.stdout
    kept = SourceSchemas(FS, str(lake)).of(FlowState(FS, str(lake), ORDERS).folder)
    assert kept is not None
    assert (kept.keys, [column.name for column in kept.columns]) == (("id",), ["id", "total", "placed"])

    shown = run("schema", "show", ORDERS, "--lake", lake)
    assert "total  │ -               │ bytes Decimal(scale=2)                │ DECIMAL(38,2)" in shown.stdout
    assert "placed │ -               │ int64 io.debezium.time.MicroTimestamp │ TIMESTAMP_NTZ" in shown.stdout
    assert f"from: orders.json, subject {ORDERS}-value version 1" in shown.stdout
    document = json.loads(run("schema", "show", ORDERS, "--lake", lake, "--json").stdout)["handed_over"]
    assert (document["flow"], document["keys"]) == (ORDERS, ["id"])
    decimal = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}
    assert document["columns"][1] == {"column": "total", "connect": decimal, "becomes": "DECIMAL(38,2)"}


def test_the_next_import_reports_what_changed(tmp_path: Path) -> None:
    def imported(document: Any) -> Any:
        ended = run("schema", "import", written(tmp_path, document), "--lake", tmp_path / "lake", "--json")
        (schema,) = json.loads(ended.stdout)["schemas"]
        return schema["changes"]

    assert imported(answers(2)) is None
    assert imported(answers(2)) == []
    assert imported(answers(3)) == ["placed: new, TIMESTAMP_NTZ"]
    decimal = {"field": "total", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}}
    millis = {"field": "placed", "type": "int64", "name": "io.debezium.time.Timestamp"}
    changed = imported({**ROW, "fields": [decimal, millis, {"field": "note", "type": "unheard-of"}]})
    assert changed == [
        "total: DECIMAL(38,2) → DECIMAL(12,2)",
        "placed: int64 io.debezium.time.MicroTimestamp → int64 io.debezium.time.Timestamp",
        "note: new, unknown",
        "id: gone",
        "key: id → unknown",
    ]


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    done = run("schema", "import", written(tmp_path, ENVELOPE), "--lake", tmp_path / "lake", "--dry-run")
    assert done.exit_code == 0
    assert "Schemas that would be handed over" in done.stdout
    assert "Nothing was written." in done.stdout
    assert not (tmp_path / "lake").exists()


def test_a_schema_comes_from_stdin_too_and_a_flow_names_it(tmp_path: Path) -> None:
    lake, row = tmp_path / "lake", json.dumps({**ROW, "name": "Order"})
    nameless = run("schema", "import", "-", "--lake", lake, stdin=row)
    assert (nameless.exit_code, nameless.stdout) == (2, "")
    assert "The topic of these schemas is not known: Connect schema, stdin." in printed(nameless)
    assert run("schema", "import", "-", "--lake", lake, "--flow", "a.b.c", stdin=row).exit_code == 0
    assert SourceSchemas(FS, str(lake)).flows() == ["a.b.c"]


def test_a_flow_that_has_a_table_or_no_topic_is_named(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.arrive("a.b.orders/1.jsonl")
    scene.survey()
    (topic,) = scene.state.ledger().topics
    file = written(tmp_path, {**ENVELOPE, "name": "elsewhere.t.Envelope"})
    done = run("schema", "import", file, "--lake", scene.lake)
    assert "elsewhere.t: no archive of this lake has a topic of that name; name another one by --flow." in done.stdout
    hint = f"{topic} has a table already: columns that would be read otherwise keep their types until airflow-cdc retype {topic}."
    done = run("schema", "import", file, "--lake", scene.lake, "--flow", topic)
    assert "no archive of this lake" not in done.stdout
    assert hint not in done.stdout
    scene.commit(topic)
    assert hint in run("schema", "import", file, "--lake", scene.lake, "--flow", topic).stdout


def test_what_cannot_be_taken_ends_with_2_and_changes_nothing(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    wrong = {
        "format": 1,
        "schemas": [
            {"flow": "t", "columns": [{"column": "n", "connect": {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "two"}}}]}
        ],
    }
    for document, message in (({"id": 1}, "expected a schema"), (wrong, "the Connect field of column n cannot be read")):
        ended = run("schema", "import", written(tmp_path, document), "--lake", lake)
        assert (ended.exit_code, ended.stdout) == (2, "")
        assert message in printed(ended)
    missing = run("schema", "import", tmp_path / "nowhere.json", "--lake", lake)
    assert missing.exit_code == 2
    assert "cannot be read: FileNotFoundError" in printed(missing)
    assert not lake.exists()
    unknown = run("schema", "show", "t", "--lake", lake)
    assert unknown.exit_code == 2
    assert "knows no flow t, and no schema of it was handed over" in printed(unknown)


def test_what_the_flow_s_runs_settled_is_shown_by_column(tmp_path: Path) -> None:
    state = FlowState(FS, str(tmp_path), ORDERS)
    first = {"id": TypeReport("BIGINT", Origin.VALUES), "total": TypeReport("STRING", Origin.VALUES, doubt="2 values were seen")}
    later = {"total": TypeReport("DECIMAL(12,2)", Origin.FLOW, "base64")}
    for number, types in enumerate((first, later, {}), start=1):
        state.write_intent(Microbatch(ORDERS, number, str(tmp_path / "archive"), (), PlanPosition(), ()))
        state.write_commit(BatchReport(ORDERS, number, files=0, bytes=0, types=types), str(tmp_path / ORDERS))
    document = json.loads(run("schema", "show", ORDERS, "--lake", tmp_path, "--json").stdout)
    assert document == {
        "flow": ORDERS,
        "types": {"id": {"type": "BIGINT", "from": "values"}, "total": {"type": "DECIMAL(12,2)", "from": "flow", "spelled": "base64"}},
        "handed_over": None,
    }
    shown = run("schema", "show", ORDERS, "--lake", tmp_path)
    assert "total  │ DECIMAL(12,2) │ base64  │ flow" in shown.stdout


@pytest.mark.parametrize("name", ["schemas.yaml", "schemas.YML", "schemas.json"])
def test_the_file_that_was_pulled_can_be_handed_over_in_each_of_its_formats(tmp_path: Path, name: str) -> None:
    """Regression: YAML was refused as "no JSON"."""
    total = SourceColumn("total", {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}})
    pulled = SourceSchema(ORDERS, "postgresql", (total, SourceColumn("größe", {"type": "int32"})), ("total",), "a catalogue", {"a": "b"})
    write_schema_file(tmp_path / name, [pulled])
    done = run("schema", "import", tmp_path / name, "--lake", tmp_path / "lake")
    assert done.exit_code == 0, done.stderr
    assert SourceSchemas(FS, str(tmp_path / "lake")).of(FlowState(FS, str(tmp_path / "lake"), ORDERS).folder) == pulled


def test_yaml_that_was_broken_by_a_review_is_named(tmp_path: Path) -> None:
    (tmp_path / "schemas.yaml").write_text("schemas: [")
    ended = run("schema", "import", tmp_path / "schemas.yaml", "--lake", tmp_path / "lake")
    assert ended.exit_code == 2
    # The terminal's width may break the path anywhere.
    assert "schemas.yamlcannotbereadasYAML" in "".join(printed(ended).split())


def test_columns_that_events_type_themselves_are_shown_and_what_a_run_settled_goes_over_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for number, columns in enumerate((2, 3), start=1):
        scene.arrive(f"a.b.orders/{number}.jsonl")
        row = {**ROW, "fields": ROW["fields"][:columns]}
        envelope = {**ENVELOPE, "fields": [{**row, "field": "after"}]}
        seen = {"value_shape": json.dumps(envelope), "connector": "postgresql"}
        scene.survey(lambda file, seen=seen: [replace(shape(file.path, ORDERS), **seen)])  # type: ignore[misc]
    scene.commit(ORDERS, types={"id": TypeReport("STRING", Origin.FLOW)})
    FlowState(FS, str(scene.lake), ORDERS).checkpoint()
    before = sorted(scene.lake.rglob("*"))

    document = json.loads(run("schema", "show", ORDERS, "--lake", scene.lake, "--json").stdout)

    assert document["types"] == {
        "id": {"type": "STRING", "from": "flow"},
        "total": {"type": "DECIMAL(38,2)", "from": "events", "spelled": DECIMAL},
        "placed": {"type": "TIMESTAMP_NTZ", "from": "events", "spelled": "io.debezium.time.MicroTimestamp"},
    }
    assert "placed │ TIMESTAMP_NTZ │ io.debezium.time.MicroTimestamp" in run("schema", "show", ORDERS, "--lake", scene.lake).stdout
    # Who only looks may not be allowed to write.
    assert sorted(scene.lake.rglob("*")) == before


def test_a_flow_of_which_nothing_is_known_yet_is_reported_as_such(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.arrive("a.b.orders/1.jsonl")
    scene.survey()
    (topic,) = scene.state.ledger().topics
    scene.commit(topic)
    assert "No run has settled a column yet" in run("schema", "show", topic, "--lake", scene.lake).stdout
