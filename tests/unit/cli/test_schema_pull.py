"""``airflow-cdc schema pull``: the file, what is shown, exit codes. tests/system/test_source_catalogues.py asks real databases."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import Result
from typer.testing import CliRunner

from airflow_cdc.cli import app
from airflow_cdc.model.errors import SourceFailedError
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema, from_document

DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "4", "connect.decimal.precision": "14"},
}
ORDERS = SourceSchema(
    "shop.inventory.orders",
    "postgresql",
    (
        SourceColumn("id", {"type": "int64"}, "bigint"),
        SourceColumn("total", DECIMAL, "numeric(14,4)"),
        SourceColumn("tags", {"type": "array", "items": {"type": "string"}}, "text[]"),
        SourceColumn("bits", {"type": "bytes", "name": "io.debezium.data.Bits", "parameters": {"length": "9"}}, "bit(9)"),
        SourceColumn("area", {}, "box"),
    ),
    ("id",),
    "catalogue of postgresql, connection shop, table inventory.orders",
    {"decimal.handling.mode": "precise"},
)


class Source:
    """Stands for the database."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.problem: Exception | None = None

    def pull(self, conn_id: str, flows: Any, properties: Mapping[str, str], **others: Any) -> tuple[SourceSchema, ...]:
        self.asked.append((conn_id, tuple(flows), dict(properties), others))
        if self.problem:
            raise self.problem
        return (ORDERS,)

    def of(self, archive_conn_id: str | None) -> str:
        return f"source of {archive_conn_id}"


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    found = Source()
    # Airflow is not needed for it.
    monkeypatch.setitem(sys.modules, "airflow_cdc.hooks.source_catalogue", SimpleNamespace(pull_schemas=found.pull, source_of=found.of))
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    return found


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["schema", "pull", *map(str, arguments), "--source-conn-id", "shop"])


@pytest.mark.parametrize("name", ["schemas.yaml", "schemas.yml", "schemas.json"])
def test_the_file_holds_what_the_source_declares(source: Source, tmp_path: Path, name: str) -> None:
    ran = run("shop.inventory.orders", "--out", tmp_path / name, "--time-precision-mode", "connect")

    assert ran.exit_code == 0, ran.output
    text = (tmp_path / name).read_text(encoding="utf-8")
    document = json.loads(text) if name.endswith("json") else yaml.safe_load(text)
    assert from_document(document) == (ORDERS,)
    assert source.asked == [("shop", ("shop.inventory.orders",), {"time.precision.mode": "connect"}, {"tables": {}, "connector": None})]


def test_people_see_each_column_what_is_not_known_and_the_next_step(source: Source, tmp_path: Path) -> None:
    out = tmp_path / "schemas.yaml"

    ran = run("shop.inventory.orders", "--out", out)

    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in ran.stdout.splitlines() if line.startswith("│")]
    assert rows == [
        ["id", "bigint", "int64", "BIGINT"],
        ["total", "numeric(14,4)", "bytes, Decimal(14,4)", "DECIMAL(14,4)"],
        ["tags", "text[]", "array of string", "ARRAY<STRING>"],
        ["bits", "bit(9)", "bytes, Bits(9)", "BINARY"],
        ["area", "box", "not known", ""],
    ]
    assert "not known how the connector spells: shop.inventory.orders.area; declare" in ran.stdout
    assert f"airflow-cdc schema import {out} --lake" in ran.stdout


def test_programs_get_one_document(source: Source, tmp_path: Path) -> None:
    ran = run("shop.inventory.orders", "--out", tmp_path / "schemas.json", "--json")
    assert from_document(json.loads(ran.stdout)) == (ORDERS,)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ([], "source of None"),
        (["--archive-conn-id", "mine"], "source of mine"),
        (["--archive-conn-id", "mine", "--source-conn-id", "shop"], "shop"),
    ],
)
def test_the_archives_connection_names_the_source_unless_it_is_given(source: Source, tmp_path: Path, given: list[str], asked: str) -> None:
    ran = CliRunner().invoke(app, ["schema", "pull", "shop.inventory.orders", "--out", str(tmp_path / "schemas.yaml"), *given])
    assert ran.exit_code == 0, ran.output
    assert [each[0] for each in source.asked] == [asked]


@pytest.mark.parametrize(
    ("given", "tables"),
    [
        (["shop.routed", "--table", "inventory.orders"], {"shop.routed": "inventory.orders"}),
        (["shop.routed", "--table", "shop.routed=inventory.orders"], {"shop.routed": "inventory.orders"}),
        (["a.b", "c.d", "--table", "c.d=inventory.orders"], {"c.d": "inventory.orders"}),
    ],
)
def test_a_table_can_be_given(source: Source, tmp_path: Path, given: list[str], tables: dict[str, str]) -> None:
    assert run(*given, "--out", tmp_path / "schemas.yaml").exit_code == 0
    assert source.asked[0][3]["tables"] == tables


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "schemas.txt"], "ends in '.txt'"),
        (["--out", "gone/schemas.yaml"], "There is no folder"),
        (["--out", "there.yaml"], "is there already"),
        (["--out", "s.yaml", "--decimal-handling-mode", "exact"], "expected one of precise"),
        (["--out", "s.yaml", "--table", "other=x.y"], "--table names other"),
        (["c.d", "--out", "s.yaml", "--table", "x.y"], "is not key=value"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_database_is_asked(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.yaml").write_text("reviewed", encoding="utf-8")

    ran = run("a.b", *arguments)

    assert ran.exit_code == 2
    assert message in " ".join(ran.stderr.split())
    assert source.asked == []
    assert (tmp_path / "there.yaml").read_text(encoding="utf-8") == "reviewed"


def test_a_file_that_is_there_is_replaced_when_asked(source: Source, tmp_path: Path) -> None:
    out = tmp_path / "there.yaml"
    out.write_text("reviewed", encoding="utf-8")
    assert run("shop.inventory.orders", "--out", out, "--overwrite").exit_code == 0
    assert from_document(yaml.safe_load(out.read_text(encoding="utf-8"))) == (ORDERS,)


def test_a_database_that_does_not_answer_is_exit_code_1(source: Source, tmp_path: Path) -> None:
    source.problem = SourceFailedError("It does not answer.", next_step="Try again.")

    ran = run("shop.inventory.orders", "--out", tmp_path / "schemas.yaml")

    assert ran.exit_code == 1
    assert "SourceFailedError: It does not answer." in ran.stderr
    assert not list(tmp_path.iterdir())
