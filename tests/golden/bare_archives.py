"""Captures without the schemas in their events, and the two ways to hand the schemas over once instead."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_cdc.cli import app
from airflow_cdc.model.catalogue.queries import in_style
from airflow_cdc.model.pull.settings import catalogues
from airflow_cdc.pipeline.upkeep.import_schemas import import_schemas
from tests.golden.connect_schemas import CATALOGUES

CONNECTION_TYPES = {"postgresql": "postgres", "mariadb": "mysql", "sqlserver": "mssql"}
_STYLE = "%s"


def strip(source: Path, to: Path) -> dict[str, bytes]:
    """Write a capture's records as a converter with ``schemas.enable=false`` does; return the last whole record of each topic."""
    last: dict[str, bytes] = {}
    for path in sorted(source.rglob("*.jsonl.gz")):
        target = to / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "rt", encoding="utf-8") as lines, gzip.open(target, "wt", encoding="utf-8") as bare:
            for line in lines:
                record = json.loads(line)
                if (record["value"] or {}).get("schema"):
                    last[record["topic"]] = line.encode()
                payloads = {name: record[name] and record[name]["payload"] for name in ("key", "value")}
                bare.write(json.dumps({**record, **payloads}, ensure_ascii=False) + "\n")
    return last


def hand_over_events(lake: str, last: Mapping[str, bytes]) -> None:
    """Hand over to a lake the schemas of one event of each topic."""
    import_schemas(lake, last.items())


@dataclass
class RecordedServer:
    """Answers a hook's questions with the rows that a real server's catalogue gave."""

    tables: Mapping[str, Any]
    connector: str
    placeholder: str = _STYLE
    log_sql: bool = True
    asked: list[str] = field(default_factory=list)

    def get_records(self, sql: str, parameters: Sequence[str] | None = None) -> list[list[Any]]:
        """Return the rows of a statement of ours; of no other."""
        queries = catalogues()[self.connector].queries
        if sql == in_style(queries.tables, _STYLE):
            return [["testDB", *name.split(".", 1)] for name in self.tables]
        if sql == "SELECT version()":
            return [["10.11.6-MariaDB"]]
        assert parameters
        self.asked.append(sql)
        rows = self.tables[".".join(parameters)]
        of_statement = {queries.columns: rows["columns"], queries.keys: [[key] for key in rows["keys"]]}
        return next(answer for asked, answer in of_statement.items() if in_style(asked, _STYLE) == sql)


def pull_and_import(lake: str, capture: str, flows: Sequence[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pull the types of flows from a capture's recorded catalogue, and hand the written file over to a lake, both by command."""
    from airflow.providers.common.compat.sdk import BaseHook

    catalogue = json.loads((CATALOGUES / f"{capture}.json").read_text(encoding="utf-8"))
    server = RecordedServer(catalogue["tables"], catalogue["connector"])
    with monkeypatch.context() as patch:
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
        patch.setenv("AIRFLOW__LOGGING__LOGGING_LEVEL", "ERROR")
        patch.setenv("AIRFLOW_CONN_CAPTURED", json.dumps({"conn_type": CONNECTION_TYPES[server.connector], "host": "server"}))
        archive = {"conn_type": "cdc_archive", "host": "/archive", "extra": {"source_conn_id": "captured"}}
        patch.setenv("AIRFLOW_CONN_CDC_ARCHIVE_DEFAULT", json.dumps(archive))
        patch.setattr(type(BaseHook.get_connection("captured")), "get_hook", lambda self: server)
        document = str(folder / f"{capture}.yaml")
        modes = [part for name, value in catalogue["settings"].items() for part in (f"--{name.replace('.', '-')}", value)]
        for command in (["pull", *flows, "--out", document, *modes], ["import", document, "--lake", lake]):
            ran = CliRunner().invoke(app, ["schema", *command])
            assert ran.exit_code == 0, ran.output
    assert len(server.asked) == 2 * len(flows)
