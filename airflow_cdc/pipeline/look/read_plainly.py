"""Read archived text in plain Python: what the native survey leaves out, as long as it is little. Rows are those of a survey."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.survey import OffsetHoles, RecordKind
from airflow_cdc.model.columns import FILE
from airflow_cdc.model.connectors.registry import CONNECTORS, with_log_of_database, without_database
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.native.decompress import ANY, TooMuchTextError, decompressed
from airflow_cdc.pipeline.read.respell import MARKS

_OPERATIONS = frozenset(each.value for each in Operation)
_BINARY = {b"Obj\x01": "avro", b"PAR1": "parquet"}


class NotPlainError(ValueError):
    """Raised where only Spark reads a file; its text is the reason."""


@dataclass
class PlainSurvey:
    """What a file's lines hold."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """As those of the survey, one per shape."""
    offsets: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    """By topic and partition, of records that carry them."""

    def holes(self, path: str) -> list[OffsetHoles]:
        """Return the offsets that the file skips."""
        found = []
        for (topic, partition), numbers in self.offsets.items():
            known = sorted(set(numbers))
            holes = tuple((left + 1, right - 1) for left, right in pairwise(known) if right > left + 1)
            if holes:
                found.append(OffsetHoles(path, topic, partition, holes))
        return found


def content_of(fs: FileSystem, root: str, path: str, most: int = ANY) -> bytes:
    """Return an archived file's text, uncompressed.

    :param most: bytes that may be read, archived and of text: the file may be another one by now than the one that was surveyed.
    :raises OSError: when it cannot be read.
    :raises TooMuchTextError: when it holds more.
    :raises ValueError: when it is not compressed as its name shows, or cut off.
    """
    place = f"{root.rstrip('/')}/{path}"
    content = fs.cat_file(place) if most == ANY else _beginning(fs, place, most + 1)
    if most != ANY and len(content) > most:
        raise TooMuchTextError(f"it is larger than {most:,} bytes")
    try:
        return decompressed(content, path, most)
    except TooMuchTextError:
        raise
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(f"it is not compressed as its name shows, or cut off ({error})") from error


def _beginning(fs: FileSystem, path: str, size: int) -> bytes:
    try:
        return fs.cat_file(path, 0, size)
    except Exception:
        # Object stores refuse any range of an empty object.
        if fs.info(path).get("size") == 0:
            return b""
        raise


def read_plainly(fs: FileSystem, root: str, file: ArchivedFile) -> PlainSurvey:
    """Return what a file of JSON lines, or one JSON array, holds.

    :raises NotPlainError: where only Spark reads it.
    :raises OSError: when it cannot be read.
    """
    if file.format not in (FileFormat.LINES, FileFormat.ARRAY):
        raise NotPlainError(f"it is {file.format.value}")
    try:
        content = content_of(fs, root, file.path)
        keys = content_of(fs, root, file.keys_path).split(b"\n") if file.keys_path else None
    except ValueError as error:
        raise NotPlainError(str(error)) from error
    if content[:4] in _BINARY:
        raise NotPlainError(f"it is {_BINARY[content[:4]]}")
    counts: Counter[tuple[Any, ...]] = Counter()
    spans: dict[tuple[Any, ...], tuple[int, int]] = {}
    found = PlainSurvey()
    for number, document in _documents(content):
        row_key = _parsed(keys[number]) if keys and number < len(keys) else None
        topic, offset, shape = _shape(document, row_key, file)
        counts[shape] += 1
        if offset is not None:
            first, last = spans.get(shape, (offset, offset))
            spans[shape] = (min(first, offset), max(last, offset))
            if topic is not None and shape[2] is not None:
                found.offsets.setdefault((topic, shape[2]), []).append(offset)
    names = ("topic", "kind", "partition", "connector", "table", "log", "key_shape", "value_shape")
    for shape, records in counts.items():
        lowest, greatest = spans.get(shape, (None, None))
        span = {"first_offset": lowest, "last_offset": greatest}
        found.rows.append({FILE: file.path, **dict(zip(names, shape, strict=True)), "records": records, **span})
    return found


def first_event(fs: FileSystem, root: str, file: ArchivedFile, topic: str) -> str | None:
    """Return the text of a topic's first event in a file that was read before; None where it holds none."""
    for _, document in _documents(content_of(fs, root, file.path)):
        named, _, shape = _shape(document, None, file)
        if named in (None, topic) and shape[1] in _OPERATIONS:
            return json.dumps(document, ensure_ascii=False)
    return None


_BROKEN = object()


def _documents(content: bytes) -> Iterator[tuple[int, Any]]:
    if content.lstrip()[:1] == b"[":
        whole = _parsed(content)
        if isinstance(whole, list):
            yield from enumerate(whole)
            return
    for number, line in enumerate(content.split(b"\n")):
        if line.strip():
            yield number, _parsed(line)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _BROKEN


def _shape(document: Any, companion: Any, file: ArchivedFile) -> tuple[str | None, int | None, tuple[Any, ...]]:
    """Return a line's topic, offset and shape: topic, kind, partition, connector, table, log, shapes of key and value."""
    if document is _BROKEN or not isinstance(document, dict | None):
        return None, None, (None, RecordKind.MALFORMED.value, *[None] * 6)
    topic, partition, offset, row_key, value = None, file.partition, None, companion, document
    if document and isinstance(document.get("topic"), str) and ("value" in document or _has_place_alone(document)):
        if "value" not in document:
            raise NotPlainError("a record has no value")
        topic, value, row_key = document["topic"], document["value"], document.get("key")
        partition, offset = _number(document.get("partition")), _number(document.get("offset"))
    schema, payload = _unwrapped(value)
    if isinstance(value, dict) and any(mark in value or (isinstance(payload, dict) and mark in payload) for mark in MARKS):
        raise NotPlainError("its records have another shape than Debezium's envelope")
    kind = _kind(payload)
    source = payload.get("source") if isinstance(payload, dict) else None
    source = source if isinstance(source, dict) else {}
    connector = source.get("connector")
    if kind == RecordKind.UNKNOWN.value or (kind in _OPERATIONS and connector is not None and connector not in CONNECTORS):
        raise NotPlainError("a record is no change event of a known connector")
    key_schema, key_payload = _unwrapped(row_key)
    value_shape = None
    if kind in _OPERATIONS:
        image = payload.get("after") or payload.get("before")
        value_shape = _text(schema) if schema else _names(image)
    key_shape = _text(key_schema) if key_schema else _names(key_payload)
    return topic, offset, (topic, kind, partition, connector, _table(source), _log(source), key_shape, value_shape)


def _has_place_alone(document: Mapping[str, Any]) -> bool:
    """Return whether a document has a record's place and is no envelope into which a transform put it."""
    return {"partition", "offset"} <= document.keys() and not {"op", "source"} <= document.keys()


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdigit()) else None


def _unwrapped(value: Any) -> tuple[Any, Any]:
    if isinstance(value, dict) and "payload" in value and value.keys() <= {"schema", "payload"}:
        return value.get("schema"), value["payload"]
    return None, value


def _kind(payload: Any) -> str:
    if payload is None:
        return RecordKind.TOMBSTONE.value
    if not isinstance(payload, dict):
        return RecordKind.UNKNOWN.value
    if payload.get("op") in _OPERATIONS:
        return str(payload["op"])
    if payload.get("status") in ("BEGIN", "END") and "id" in payload:
        return RecordKind.TRANSACTION.value
    if "ddl" in payload and ("tableChanges" in payload or "databaseName" in payload):
        return RecordKind.SCHEMA_CHANGE.value
    return RecordKind.HEARTBEAT.value if payload.keys() == {"ts_ms"} else RecordKind.UNKNOWN.value


def _text(schema: Any) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _names(image: Any) -> str | None:
    return json.dumps(list(image), ensure_ascii=False, separators=(",", ":")) if isinstance(image, dict) else None


def _table(source: Mapping[str, Any]) -> str | None:
    if not source.get("table"):
        return None
    database = None if source.get("connector") in without_database() else source.get("db")
    return ".".join(str(part) for part in (source.get("name"), database, source.get("schema"), source["table"]) if part)


def _log(source: Mapping[str, Any]) -> str | None:
    if source.get("name") is None:
        return None
    database = source.get("db") if source.get("connector") in with_log_of_database() else None
    return ".".join(str(part) for part in (source["name"], database) if part is not None)
