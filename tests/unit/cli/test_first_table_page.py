"""docs/how-to/first-table.md, command by command; its part by Dag is run by tests/unit/airflow/test_pages_by_airflow.py."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.providers.common.compat.sdk import BaseHook
from pyspark.sql import SparkSession

from tests.golden.bare_archives import RecordedServer
from tests.stories.test_types_of_bare_json import AT, PLACED, row, with_schema
from tests.support.events import TOPIC, Record, sqlserver, write_records
from tests.support.pages import HOW_TO, blocks, commands
from tests.support.tables import read_rows
from tests.unit.cli.conftest import CLOSED_LATE, Ended, Run

pytestmark = CLOSED_LATE

PAGE = "first-table.md"
APPLY, LOOK, APPLY_WITH_FLOWS, PULL, HAND_OVER = commands(PAGE, "airflow-cdc")
KEYS, COLUMNS = (textwrap.dedent(block) for block in blocks(PAGE) if "flows:" in block)
CATALOGUE = {
    "dbo.customers": {
        "keys": ["id"],
        "columns": [
            ["id", "bigint", "bigint", 8, 19, 0],
            ["balance", "decimal", "decimal", 9, 12, 2],
            ["placed", "datetime2", "datetime2", 8, 26, 6],
        ],
    }
}


class Reader:
    """Who follows the page, with ``/data`` in a folder of the test's."""

    def __init__(self, run: Run, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._run, self._spark = folder, run, spark
        monkeypatch.chdir(folder)

    def land(self, *records: Record) -> None:
        archive = self.folder / "archive"
        archive.mkdir(exist_ok=True)
        write_records(archive / f"{len(list(archive.iterdir()))}.jsonl", records)

    def type(self, command: str) -> Ended:
        return self._run(*shlex.split(command.replace("/data/", f"{self.folder}/"))[1:])

    def types(self, block: list[str]) -> list[Ended]:
        """Type the commands of a block, of which each must succeed."""
        ended = [self.type(command) for command in block]
        assert [each.code for each in ended] == [0] * len(block), [each.stderr for each in ended]
        return ended

    def rows(self) -> list[dict[str, Any]]:
        return read_rows(self._spark, str(self.folder / "lake"), TOPIC).rows


@pytest.fixture
def reader(run: Run, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    return Reader(run, spark, tmp_path, monkeypatch)


def bare(number: int) -> Record:
    return sqlserver("c", commit=number, after={"id": number, "balance": "C2E=", "placed": PLACED}, offset=number)


def customer(number: int) -> dict[str, Any]:
    return {"id": number, "balance": Decimal("29.13"), "placed": AT}


def test_events_with_schemas_are_a_table_after_one_command(reader: Reader) -> None:
    reader.land(with_schema(1), with_schema(2))
    reader.types(APPLY)
    tables, shown, history, quarantine = reader.types(LOOK)
    assert TOPIC in tables.stdout
    assert "29.13" in shown.stdout
    assert "merge" in history.stdout
    assert TOPIC not in quarantine.stdout
    assert reader.rows() == [row(1), row(2)]
    (again,) = reader.types(APPLY)
    assert "up_to_date" in again.stdout


@pytest.mark.deep
def test_keys_that_no_event_carries_come_from_the_flows_file_of_the_page(reader: Reader) -> None:
    archive = reader.folder / "archive"
    archive.mkdir()
    values = [sqlserver("c", commit=number, after={"id": number, "name": "ann"})["value"] for number in (1, 2)]
    (archive / f"{TOPIC}+0+0000000000.json").write_text("".join(json.dumps(value) + "\n" for value in values))
    (apply,) = APPLY
    failed = reader.type(apply)
    assert failed.code == 1
    assert "KeysUnknownError" in failed.stderr + failed.stdout
    (reader.folder / "flows.yaml").write_text(KEYS)
    reader.types(APPLY_WITH_FLOWS)
    assert reader.rows() == [{"id": number, "name": "ann"} for number in (1, 2)]


def test_bare_json_stops_first_and_the_printed_entry_filled_in_makes_the_table(reader: Reader) -> None:
    reader.land(bare(1), bare(2))
    (apply,) = APPLY
    stopped = reader.type(apply)
    assert stopped.code == 1
    assert "TypesUnknownError" in stopped.stderr + stopped.stdout
    assert not (reader.folder / "lake" / TOPIC).exists()
    printed = re.search(r"^flows:\n(?:[ -].*\n?)+", stopped.stderr + stopped.stdout, re.MULTILINE)
    assert printed
    filled_in = printed[0].replace("DECIMAL(?,?)", "DECIMAL(12,2)")
    assert "?" not in filled_in
    assert yaml.safe_load(filled_in) == yaml.safe_load(COLUMNS)
    (reader.folder / "flows.yaml").write_text(filled_in)
    reader.types(APPLY_WITH_FLOWS)
    reader.types(LOOK)
    assert reader.rows() == [customer(1), customer(2)]
    shown = reader.type(schema_show())
    assert re.search(r"balance +│ DECIMAL\(12,2\) +│ base64 +│ flow", shown.stdout)


@pytest.mark.deep
def test_bare_json_is_right_at_the_first_try_where_its_types_were_pulled(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.land(bare(1), bare(2))
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_SOURCE", json.dumps({"conn_type": "mssql", "host": "server"}))
    server = RecordedServer(CATALOGUE, "sqlserver")
    monkeypatch.setattr(type(BaseHook.get_connection("shop_source")), "get_hook", lambda self: server)
    reader.types(PULL)
    reader.types(APPLY)
    assert reader.rows() == [customer(1), customer(2)]
    shown = reader.type(schema_show())
    assert re.search(r"balance +│ DECIMAL\(12,2\) +│ org.apache.kafka.connect.data.Decimal +│ schema", shown.stdout)


def test_an_event_with_its_schema_is_handed_over_as_on_the_page(reader: Reader) -> None:
    event = with_schema(1)
    event["value"]["schema"]["fields"].append({"field": "op", "type": "string"})
    (reader.folder / "orders.json").write_text(json.dumps(event))
    (done,) = reader.types(HAND_OVER)
    assert TOPIC in done.stdout
    assert "DECIMAL(12,2)" in reader.type(schema_show()).stdout


def schema_show() -> str:
    text = (HOW_TO / PAGE).read_text(encoding="utf-8")
    (command,) = re.findall(r"`(airflow-cdc schema show [^`]+)`", text)
    return str(command).replace("FLOW", TOPIC)
