"""The archived records of one key, found by their text: a file's bytes are searched, and only lines that may hold the key are parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.survey import RecordLayout
from airflow_cdc.model.connectors.connector import NUMBER, Connector
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.position.position import NOT_STREAMED, Position
from airflow_cdc.pipeline.look.key_text import Key, lines_with
from airflow_cdc.pipeline.look.read_plainly import content_of
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import text

_ARRAY_COSTS = 16
_STEP = 64 * 1024


@dataclass(frozen=True)
class KeyRecord:
    """An archived record of a key."""

    file: str
    line: int
    """From 1; the place in the array where the file is one."""
    partition: int | None
    offset: int | None
    """None where the archive does not record it."""
    begins_at: int | None
    """Offset that its file's name gives to the first record: the record stands behind it."""
    op: str | None
    """None for a tombstone, and for a line that is no change event."""
    is_tombstone: bool
    source: Mapping[str, Any] = field(default_factory=dict)
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Connect fields by column, where the record carries its schema."""


def why_not_searched(file: ArchivedFile) -> str | None:
    """Return why a file's records are not found by their text; None where they are."""
    if file.format not in (FileFormat.LINES, FileFormat.ARRAY):
        return f"{file.format.value} files are read by Spark alone"
    return "its records have another shape than Debezium's envelope" if file.respelled else None


def find_records(
    fs: FileSystem, root: str, file: ArchivedFile, *, layout: RecordLayout, topic: str, key: Key, most: int
) -> list[KeyRecord]:
    """Return the records of a key in a file, in file order.

    :param layout: content of the file's lines.
    :param most: bytes of text that may be read of it, and as many of its companion.
    :raises OSError: when the file cannot be read.
    :raises TooMuchTextError: when it holds more.
    :raises ValueError: when it is not what its name shows.
    """
    of_record = topic if layout is RecordLayout.RECORD else None
    # An array is parsed whole: as objects of Python it is many times its text.
    content = content_of(fs, root, file.path, most // _ARRAY_COSTS if file.format is FileFormat.ARRAY else most)
    companion = content_of(fs, root, file.keys_path, most) if file.keys_path else None
    if file.format is FileFormat.ARRAY:
        documents: Iterator[tuple[int, Any]] = enumerate(json.loads(content, parse_float=Decimal), start=1)
        found = [_record(file, number, document, None, of_record) for number, document in documents]
    else:
        found = list(_lines(content, companion, file, topic=of_record, key=key))
    return [record for record, row_key in filter(None, found) if _has_key(record, row_key, key)]


_Found = tuple[KeyRecord, Any]


def _lines(content: bytes, companion: bytes | None, file: ArchivedFile, *, topic: str | None, key: Key) -> Iterator[_Found | None]:
    pattern = lines_with(key)
    numbers = {*_numbers(pattern, content), *(_numbers(pattern, companion) if companion else ())}
    if not numbers:
        return
    ordered = sorted(numbers)
    lines, keys = _lines_at(content, ordered), _lines_at(companion or b"", ordered)
    for number, line, row_key in zip(ordered, lines, keys, strict=True):
        # A companion may have lines that its file lacks: the keys of tombstones.
        yield _record(file, number, _parsed(line), _parsed(row_key) if companion else None, topic)


def _lines_at(content: bytes, numbers: Sequence[int]) -> Iterator[bytes]:
    """Yield the lines with these numbers, ascending from 1; empty where there are fewer. They are not split: empty lines cost nothing."""
    at, start = 1, 0
    for number in numbers:
        while at < number and start < len(content):
            ends = content.count(b"\n", start, start + _STEP)
            if at + ends < number:
                at, start = at + ends, start + _STEP
                continue
            while at < number:
                at, start = at + 1, content.index(b"\n", start) + 1
        end = content.find(b"\n", start)
        yield content[start : end if end >= 0 else len(content)] if at == number else b""


def _numbers(pattern: Any, content: bytes) -> Iterator[int]:
    number, counted, end = 1, 0, -1
    for match in pattern.finditer(content):
        start = match.start()
        if start > end:
            number += content.count(b"\n", counted, start)
            counted = start
            end = content.find(b"\n", start)
            end = len(content) if end < 0 else end
            yield number


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line, parse_float=Decimal)
    except ValueError:
        return None


def _record(file: ArchivedFile, number: int, document: Any, companion: Any, topic: str | None) -> _Found | None:
    """Return a record with its key; None for a line that is no JSON object, or of another topic.

    :param topic: of whole records; None where the document is a value alone.
    """
    value, row_key, partition, offset = document, companion, file.partition, None
    if topic is not None:
        # Without a value it is no tombstone, and was rejected.
        if not isinstance(document, dict) or document.get("topic") != topic or "value" not in document:
            return None
        value, row_key = document.get("value"), document.get("key")
        partition, offset = _whole(document.get("partition")), _whole(document.get("offset"))
    schema, payload = _unwrapped(value)
    place = (file.path, number, partition, offset, file.start_offset)
    if payload is None:
        return KeyRecord(*place, op=None, is_tombstone=True), _unwrapped(row_key)[1]
    if not isinstance(payload, dict):
        return None
    before, after, source = (member if isinstance(member := payload.get(name), dict) else None for name in ("before", "after", "source"))
    event = KeyRecord(
        *place,
        op=payload.get("op"),
        is_tombstone=False,
        source=source or {},
        before=before,
        after=after,
        fields=_fields(schema),
    )
    return event, _unwrapped(row_key)[1]


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.lstrip("-").isdigit()) else None


def _unwrapped(value: Any) -> tuple[Mapping[str, Any] | None, Any]:
    """Return a value's schema and payload; bare values have no schema."""
    if isinstance(value, dict) and value.keys() <= {"schema", "payload"} and "payload" in value:
        schema = value.get("schema")
        return (schema if isinstance(schema, dict) else None), value["payload"]
    return None, value


def _fields(schema: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    images = [each for each in (schema or {}).get("fields", ()) if each.get("field") in ("after", "before")]
    return {column["field"]: column for image in images for column in image.get("fields", ()) if "field" in column}


def _has_key(record: KeyRecord, row_key: Any, key: Key) -> bool:
    images = [image for image in (row_key, record.after, record.before) if isinstance(image, dict)]
    # A key column beside the record's own key, as a flow may declare it, is in the images alone.
    return any(all(value.is_at(image.get(name)) for name, value in key.items()) for image in images) or (
        not isinstance(row_key, dict) and row_key is not None and len(key) == 1 and next(iter(key.values())).is_at(row_key)
    )


@dataclass(frozen=True)
class Place:
    """Where a record stands in its source's log."""

    position: Position | None
    """In the first epoch; None where the record has none, or only Spark reads it."""
    transaction: str | None


def places_of(records: Sequence[KeyRecord], entry: Connector | None) -> list[Place]:
    """Return the place of each record.

    :param entry: the flow's connector; None where it is not known.
    """
    if entry is None or entry.native is None or not records:
        return [Place(None, None) for _ in records]
    members = entry.position.fields
    rows = [json.dumps({name: _text(record.source.get(name)) for name in members}) for record in records]
    rule = entry.native
    structure = text(json.dumps(dict.fromkeys(members, "VARCHAR")))
    with connect_duckdb() as connection:
        found = connection.execute(
            f"""
            SELECT CAST({rule.commit} AS {NUMBER}), CAST({rule.change} AS {NUMBER}), CAST({rule.serial} AS BIGINT), {rule.transaction}
            FROM (SELECT number, from_json(document, {structure}) AS source
                  FROM (SELECT unnest($rows::VARCHAR[]) AS document, unnest(range(len($rows))) AS number))
            ORDER BY number""",
            {"rows": rows},
        ).fetchall()
    return [_place(record, *row) for record, row in zip(records, found, strict=True)]


def _place(record: KeyRecord, commit: Any, change: Any, serial: int | None, transaction: str | None) -> Place:
    if commit is None or record.op is None:
        return Place(None, transaction)
    if record.op == "r":
        return Place(Position(int(commit), NOT_STREAMED, NOT_STREAMED), transaction)
    return Place(Position(int(commit), int(change), serial) if change is not None and serial is not None else None, transaction)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
