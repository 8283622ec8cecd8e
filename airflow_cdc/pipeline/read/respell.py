"""Respell: convert records in other shapes to Debezium envelopes, as text, before any other stage reads them.

A record is recognised by its members, in any archive: flattened by ``ExtractNewRecordState`` (:mod:`.flattened`), or wrapped by Debezium
as a CloudEvent (:mod:`.cloud_events`). Every other line keeps its text.
"""

from __future__ import annotations

from airflow_cdc.model.connectors import flattened_names
from airflow_cdc.pipeline.read import cloud_events, flattened
from airflow_cdc.pipeline.spark import sql

MARKS = (*flattened_names.MARKS, *cloud_events.MARKS)
"""Members, at least one of which a record in another shape has."""

_PLACE = ("topic", "partition", "offset", "timestamp", "headers", "key")
"""Members of a whole record besides its value."""
_IS_RECORD = f"line.topic IS NOT NULL AND coalesce({', '.join(f'line.`{name}`' for name in MARKS)}) IS NULL"
"""SQL that is true for a whole record. A row may have a column ``topic``: the marks are then beside it, not in ``value``."""


def respelled(raw: str) -> str:
    """Return the SQL of a line's text, with a record in another shape as an envelope in the same layout, whole record or value alone."""
    place = ", ',', ".join(f"'\"{name}\":', {_json(f'line.`{name}`')}" for name in _PLACE)
    record = f"if(NOT ({_IS_RECORD}), envelope, concat('{{', {place}, ',\"value\":', envelope, '}}'))"
    wrapped = "whole.payload LIKE '{%' AND whole.schema LIKE '{%'"
    schema_and_payload = f"named_struct('schema', if({wrapped}, whole.schema, NULL), 'payload', if({wrapped}, whole.payload, value))"
    envelope = f"coalesce({flattened.envelope('parts')}, {cloud_events.envelope('parts')})"
    members = ", ".join(f"`{name}` STRING" for name in (*_PLACE, "value", *MARKS))
    # Each step is named and computed once: as columns, a filter above would inline them into one another repeatedly.
    steps = {
        "line": _parse("text", members),
        "value": f"CASE WHEN {_IS_RECORD} THEN line.value WHEN line IS NOT NULL THEN {_compact('text')} END",
        "whole": _parse("value", "schema STRING, payload STRING"),
        "parts": schema_and_payload,
        "envelope": envelope,
    }
    found = record
    for name, value in reversed(steps.items()):
        found = sql.let(name, value, found)
    marked = sql.mentions("text", MARKS)
    # Respelling would turn invalid UTF-8 into characters.
    return sql.let("text", raw, f"if({marked} AND is_valid_utf8(text), coalesce({found}, text), text)")


def _parse(text: str, members: str) -> str:
    """Return the SQL of a JSON object's members, each as text; NULL for any other text."""
    parsed = f"from_json({text}, {sql.text(f'{members}, corrupt STRING')}, map('columnNameOfCorruptRecord', 'corrupt'))"
    return sql.let("parsed", parsed, "if(parsed.corrupt IS NULL, parsed, NULL)")


def _compact(text: str) -> str:
    """Return the SQL of a JSON text without whitespace between its tokens."""
    wrapped = f"concat('{{\"value\":', {text}, '}}')"
    return f"{_parse(wrapped, 'value STRING')}.value"


def _json(text: str) -> str:
    """Return the SQL of a member's text as JSON again: quoted, unless it is an object, an array or a number."""
    quoted = f"to_json(array({text}))"
    bare = rf"{text} RLIKE r'^([\[{{]|-?\d+$)'"
    return f"CASE WHEN {text} IS NULL THEN 'null' WHEN {bare} THEN {text} ELSE substr({quoted}, 2, length({quoted}) - 2) END"
