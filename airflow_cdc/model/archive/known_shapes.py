"""Shapes of archived records that are not read: what a line shows itself to be, and what to set so that the next ones are read."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import RejectReason

_LAYOUTS = "docs/reference/archive-layouts.md"
_MOST_NAMES = 12
_IS_PRINTED = re.compile(r'[{\[]|[}\]],?|"[^"]*"\s*:\s*([{\[]|.*[\w"}\]],?)')
"""One line of a document that is printed over several: a bracket, or a member."""


class KnownShape(NamedTuple):
    """What a record looks like."""

    seen: str
    """A phrase: "a … record"."""
    next_step: str


Document = Mapping[str, Any]

_ENVELOPE = f"have the sink write whole records, or Debezium's envelopes as values ({_LAYOUTS})"


def shape_of_line(line: str, reason: str) -> KnownShape:
    """Return the shape of a rejected line.

    :param reason: a :class:`~airflow_cdc.model.errors.RejectReason`: what was missing, where the line is an event.
    """
    try:
        document = json.loads(line)
    except ValueError:
        return _of_text(line)
    if not isinstance(document, dict):
        return KnownShape(f"a JSON {type(document).__name__}, no object", f"Check what the sink writes: {_ENVELOPE}.")
    value = document.get("value", document)
    inner = value if isinstance(value, dict) else document
    inner = inner["payload"] if isinstance(inner.get("payload"), dict) else inner
    if reason in _OF_EVENTS:
        return _OF_EVENTS[reason](inner)
    return next((shape for find in _FINDERS if (shape := find(document, inner))), _other(document, inner))


def _of_text(line: str) -> KnownShape:
    text = line.strip()
    if _IS_PRINTED.fullmatch(text):
        return KnownShape(
            "a part of a JSON document that is printed over several lines",
            "Write one document a line: `jq -c .` does so for files that exist, under the same names; they are read again.",
        )
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return KnownShape("no JSON", f"Check the file's format and compression ({_LAYOUTS}).")
    rest = printable(text[end:].strip()[:40])
    return KnownShape(
        f"a JSON document with other text behind it on its line ({rest})",
        "Have the writer end each document with a line end, and nothing else.",
    )


def _without_value(document: Document, _inner: Document) -> KnownShape | None:
    if {"topic", "partition", "offset"} <= document.keys() and "value" not in document:
        names = sorted(name for name in document if name not in ("topic", "partition", "offset", "key", "headers", "timestamp"))
        return KnownShape(
            f"a record without a member `value`; it has {_names(names)}",
            f"Have its writer name the Kafka value `value`, as JSON, and the key `key`: {_ENVELOPE}.",
        )
    return None


def _text_value(document: Document, _inner: Document) -> KnownShape | None:
    text = document.get("value")
    if not isinstance(text, str):
        return None
    if _is_base64_of_json(text):
        return KnownShape(
            "a record whose value is base64 of JSON",
            "Have the sink decode key and value, or decode the files: each value is one JSON object in its line.",
        )
    return KnownShape(
        "a record whose value is a text",
        "Give the sink the converter by which the topic is written: JsonConverter, with or without schemas, or Avro's.",
    )


def _is_base64_of_json(text: str) -> bool:
    try:
        return base64.b64decode(text, validate=True).lstrip()[:1] == b"{"
    except (ValueError, binascii.Error):
        return False


def _capture(_document: Document, inner: Document) -> KnownShape | None:
    if {"SequenceNumber", "Offset", "Body"} <= inner.keys():
        return KnownShape(
            "Azure Event Hubs' Capture: the Kafka value is in `Body`, as bytes",
            "Archive the topic with a Kafka Connect sink instead, which keeps key and value.",
        )
    return None


def _dms(_document: Document, inner: Document) -> KnownShape | None:
    if inner.get("Op") in ("I", "U", "D"):
        return KnownShape("a row of AWS DMS (`Op`)", "Capture the source with Debezium: DMS's files do not tell the order of changes.")
    return None


def _without_topic(document: Document, _inner: Document) -> KnownShape | None:
    if "value" not in document or not isinstance(document["value"], dict) or "topic" in document:
        return None
    if isinstance(document.get("metadata"), dict):
        found = "Lenses' envelope: topic, partition and offset are in `metadata`"
        step = "Set store.envelope=false, and the object key to topic+partition+offset, so that the value stands alone"
    else:
        found = "a record with key and value, and without a topic"
        step = "Have the sink write the topic into each line, or the value alone (Aiven: format.output.envelope=false)"
    return KnownShape(found, f"{step}; or add topic, partition and offset to the lines that are archived ({_LAYOUTS}).")


def _flattened(document: Document, inner: Document) -> KnownShape | None:
    prefixed = sorted(name for name in inner if name.startswith("_") and not name.startswith("__") and name.strip("_") in ("op", "deleted"))
    if prefixed:
        return KnownShape(
            f"a row by ExtractNewRecordState with another prefix ({_names(prefixed)})",
            "Leave add.fields.prefix as it is (two underscores): by another, metadata cannot be told from columns.",
        )
    if "op" in inner or "source" in inner or not inner:
        return None
    if document is not inner or all(not isinstance(value, dict | list) for value in inner.values()):
        return KnownShape(
            f"a row without its envelope ({_names(sorted(inner))}), as ExtractNewRecordState writes it with its defaults",
            "Remove the transform, or set delete.tombstone.handling.mode=rewrite and add.fields with op, source.ts_ms and the connector's"
            f" position ({_LAYOUTS}#other-shapes-of-a-value).",
        )
    return None


def _other(document: Document, inner: Document) -> KnownShape:
    return KnownShape(f"a document of {_names(sorted(inner or document))}", f"Check what the sink writes: {_ENVELOPE}.")


_FINDERS: tuple[Callable[[Document, Document], KnownShape | None], ...] = (
    _capture,
    _dms,
    _text_value,
    _without_value,
    _without_topic,
    _flattened,
)


def _missing_position(inner: Document) -> KnownShape:
    source = inner.get("source")
    block = source if isinstance(source, dict) else {}
    if "lsn" in block and not block.get("sequence"):
        return KnownShape(
            f"an event of Debezium {block.get('version', 'before 1.5')} without source.sequence, which orders events",
            "Upgrade the connector (1.5 or later) and take a new snapshot, into another folder or topic: older events do not tell their"
            " commit's position.",
        )
    if "source" not in inner or set(block) <= {"connector", "ts_ms", "snapshot"}:
        return KnownShape(
            "a row by ExtractNewRecordState without its position",
            f"Set add.fields with op, source.ts_ms and the connector's position ({_LAYOUTS}#other-shapes-of-a-value).",
        )
    return KnownShape(
        f"an event whose source block lacks its position (it has {_names(sorted(block))})",
        f"See what each connector's events carry ({_LAYOUTS.replace('archive-layouts', 'dialects')}).",
    )


def _missing_key(_inner: Document) -> KnownShape:
    return KnownShape("an event whose key columns are null or absent", "Set the flow's keys, or message.key.columns at the connector.")


_OF_EVENTS: Mapping[str, Callable[[Document], KnownShape]] = {
    RejectReason.MISSING_POSITION.value: _missing_position,
    RejectReason.MISSING_KEY.value: _missing_key,
}


def _names(names: list[str]) -> str:
    more = ", …" if len(names) > _MOST_NAMES else ""
    return printable(", ".join(names[:_MOST_NAMES])) + more if names else "no members"
