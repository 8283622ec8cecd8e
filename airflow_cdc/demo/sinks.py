"""Archive files in the form of two kinds of Kafka sinks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_cdc.demo.events import Row, SourceTable

_TIMES = ("ts_ms", "ts_us", "ts_ns")


def write_connect_sink(archive: Path, table: SourceTable) -> Path:
    """Write a table's new events like the Connect sinks for S3: values as ``{schema, payload}``, keys beside them, no tombstones."""
    events = table.take_unarchived()
    file = archive / table.topic / "partition=0" / f"{table.topic}+0+{events[0].offset:010d}.json"
    changes = [event for event in events if event.value is not None]
    key_schema, value_schema = _key_schema(table), _envelope_schema(table)
    _write_lines(file, ({"schema": value_schema, "payload": event.value} for event in changes))
    _write_lines(file.with_suffix(".keys.json"), ({"schema": key_schema, "payload": event.key} for event in changes))
    return file


def write_whole_records(archive: Path, folder: str, table: SourceTable, *, half_written: int | None = None) -> Path:
    """Write a table's new events as whole Kafka records, one JSON object per line, compressed.

    :param half_written: index of a record that is written twice, the first time only its first half, as by a sink that crashed while
        writing.
    """
    file = archive / folder / f"{table.topic}.jsonl.gz"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, event in enumerate(table.take_unarchived()):
        headers = [{"key": name, "value": value} for name, value in event.headers]
        record = {"topic": event.topic, "partition": 0, "offset": event.offset, "timestamp": event.timestamp, "headers": headers}
        line = _line({**record, "key": event.key, "value": event.value})
        lines += [line[: len(line) // 2], line] if number == half_written else [line]
    with gzip.open(file, "wt", encoding="utf-8") as sink:
        sink.write("\n".join([*lines, ""]))
    return file


def _write_lines(file: Path, documents: Iterable[Row]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{_line(document)}\n" for document in documents), encoding="utf-8")


def _line(document: Row) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _key_schema(table: SourceTable) -> Row:
    fields = [column.schema for column in table.columns if column.name in table.keys]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{table.topic}.Key"}


def _envelope_schema(table: SourceTable) -> Row:
    rows = {"type": "struct", "fields": [column.schema for column in table.columns], "optional": True, "name": f"{table.topic}.Value"}
    fields = [
        {**rows, "field": "before"},
        {**rows, "field": "after"},
        {"type": "struct", "fields": _SQLSERVER_SOURCE, "optional": False, "name": _SOURCE_NAME, "version": 1, "field": "source"},
        {"type": "struct", "fields": _TRANSACTION, "optional": True, "name": "event.block", "version": 1, "field": "transaction"},
        _field("op", "string", optional=False),
        *(_field(name, "int64") for name in _TIMES),
    ]
    return {"type": "struct", "fields": fields, "optional": False, "name": f"{table.topic}.Envelope", "version": 2}


def _field(field: str, kind: str, /, *, optional: bool = True, **more: Any) -> Row:
    return {"type": kind, "optional": optional, **more, "field": field}


_SOURCE_NAME = "io.debezium.connector.sqlserver.Source"
_SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_SQLSERVER_SOURCE = [
    *(_field(name, "string", optional=False) for name in ("version", "connector", "name")),
    _field("ts_ms", "int64", optional=False),
    _field("snapshot", "string", name="io.debezium.data.Enum", version=1, parameters={"allowed": _SNAPSHOTS}, default="false"),
    _field("db", "string", optional=False),
    _field("sequence", "string"),
    *(_field(name, "int64") for name in _TIMES[1:]),
    *(_field(name, "string", optional=False) for name in ("schema", "table")),
    *(_field(name, "string") for name in ("change_lsn", "commit_lsn")),
    _field("event_serial_no", "int64"),
]
_TRANSACTION = [
    _field("id", "string", optional=False),
    *(_field(name, "int64", optional=False) for name in ("total_order", "data_collection_order")),
]
