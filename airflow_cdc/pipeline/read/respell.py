"""Respell: convert records in other shapes to Debezium envelopes, as text, before any other stage reads them.

A record is recognised by its members, in any archive: flattened by ``ExtractNewRecordState`` (:mod:`.flattened`), wrapped by Debezium as
a CloudEvent (:mod:`.cloud_events`), as ``{"schema":null,"payload":…}``, or with its value as a text that holds JSON, also under the names
that other consumers give it. Every other line keeps its text.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.model.connectors import flattened_names
from airflow_cdc.pipeline.read import cloud_events, flattened
from airflow_cdc.pipeline.read.one_document import END, STRICT, has_lone_surrogate, sealed
from airflow_cdc.pipeline.spark import sql

MARKS = (*flattened_names.MARKS, *cloud_events.MARKS)
"""Members, at least one of which a record in another shape has."""

_PLACE = ("topic", "partition", "offset", "timestamp", "headers", "key")
"""Members of a whole record besides its value."""
_VALUES, _KEYS = ("message", "payload"), ("message_key",)
"""Other names of a whole record's value and key: Vector's source and ``kcat -J``."""
_NO_SCHEMA = r'"schema"\s*:\s*null|(?:^|"value"\s*:)\s*\{\s*"payload"\s*:'
_TEXT = r'"value"\s*:\s*"\s*\{'
_OTHER_NAMES = rf'"(?:{"|".join(_VALUES)})"\s*:\s*(?:"\s*\{{|null)'
_IS_RECORD = f"line.topic IS NOT NULL AND coalesce({', '.join(f'line.`{name}`' for name in MARKS)}) IS NULL"
"""SQL that is true for a whole record. A row may have a column ``topic``: the marks are then beside it, not in ``value``."""

_IS_PLACED = f"{_IS_RECORD} AND line.partition IS NOT NULL AND line.offset IS NOT NULL"
_LACKS_VALUE = "NOT array_contains(json_object_keys(text), 'value')"
_IS_NULL = f"""{_IS_PLACED} AND {_LACKS_VALUE} AND coalesce({", ".join(f"line.`{name}`" for name in _VALUES)}) IS NULL
    AND arrays_overlap(json_object_keys(text), {sql.texts(_VALUES)})"""
"""SQL that is true for a tombstone whose null stands under another name."""


def may_be_text(raw: str) -> str:
    """Return the SQL that is true for the line of a whole record that may have its value as text, or under another name."""
    return f"{raw} RLIKE {sql.text(f'{_TEXT}|{_OTHER_NAMES}')}"


def lacks_schema(document: str, names: str) -> str:
    """Return the SQL that is true for ``{"schema":null,"payload":…}``, as a converter with schemas writes data that has none.

    :param document: SQL of a struct with its members ``schema`` and ``payload``.
    :param names: SQL of the names of all its members.
    """
    others = f"array_size(array_except({names}, array('schema', 'payload'))) = 0"
    return f"coalesce({document}.schema IS NULL AND {document}.payload IS NOT NULL AND {others}, false)"


def respelled(raw: str) -> str:
    """Return the SQL of a line's text, with a record in another shape as an envelope in the same layout, whole record or value alone."""
    place = ", ',', ".join(f"'\"{name}\":', {_json('record_key' if name == 'key' else f'line.`{name}`')}" for name in _PLACE)
    record = f"if(NOT ({_IS_RECORD}), envelope, concat('{{', {place}, ',\"value\":', envelope, '}}'))"
    wrapped = "whole.payload LIKE '{%' AND whole.schema LIKE '{%'"
    unwrapped = f"whole.payload LIKE '{{%' AND {lacks_schema('whole', 'json_object_keys(value)')}"
    payload = f"if({wrapped} OR {unwrapped}, whole.payload, value)"
    schema_and_payload = f"named_struct('schema', if({wrapped}, whole.schema, NULL), 'payload', {payload})"
    bare = f"if({unwrapped}, whole.payload, NULL)"
    is_other = f"text_value IS NOT NULL AND whole IS NOT NULL OR {_IS_RECORD} AND NOT record_key <=> line.key"
    others = f"coalesce({bare}, if({is_other}, value, NULL), if({_IS_NULL}, 'null', NULL))"
    envelope = f"coalesce({flattened.envelope('parts')}, {cloud_events.envelope('parts')}, {others})"
    members = ", ".join(f"`{name}` STRING" for name in dict.fromkeys((*_PLACE, "value", *_VALUES, *_KEYS, *MARKS)))
    # Each step is named and computed once: as columns, a filter above would inline them into one another repeatedly.
    steps = {
        "line": _parse("text", members),
        "text_value": f"if({_IS_PLACED}, if({_LACKS_VALUE}, coalesce({_others(_VALUES)}), {_as_text('line.value')}), NULL)",
        "value": f"""CASE WHEN text_value IS NOT NULL THEN if({sql.mentions("text_value", MARKS)}, {_compact("text_value")}, text_value)
            WHEN {_IS_RECORD} THEN line.value WHEN line IS NOT NULL THEN {_compact("text")} END""",
        "record_key": f"coalesce({_bare_key('line.key')}, line.key, {_others(_KEYS)})",
        "whole": _parse("value", "schema STRING, payload STRING"),
        "parts": schema_and_payload,
        "envelope": envelope,
    }
    found = record
    for name, value in reversed(steps.items()):
        found = sql.let(name, value, found)
    marked = f"({sql.mentions('text', MARKS)} OR {may_be_text('text')} OR text RLIKE {sql.text(_NO_SCHEMA)})"
    # Respelling would turn invalid UTF-8 into characters, and half of a surrogate pair into a question mark.
    is_text = f"is_valid_utf8(text) AND NOT {has_lone_surrogate('text')}"
    return sql.let("text", raw, f"if({marked} AND {is_text}, coalesce({found}, text), text)")


def _others(names: Iterable[str]) -> str:
    return ", ".join(f"line.`{name}`" for name in names)


def _as_text(value: str) -> str:
    """Return the SQL of a member ``value`` that is a JSON text, NULL for any other: read as text, an object looks alike."""
    of_text = "schema_of_variant(from_json(text, 'value VARIANT').value) = 'STRING'"
    return f"if(text RLIKE {sql.text(_TEXT)} AND {of_text}, {value}, NULL)"


def _bare_key(key: str) -> str:
    """Return the SQL of the payload of a key without a schema, NULL for any other key."""
    found = f"if({lacks_schema('parsed_key', f'json_object_keys({key})')} AND {key} RLIKE '\"schema\"', parsed_key.payload, NULL)"
    return sql.let("parsed_key", _parse(key, "schema STRING, payload STRING"), found)


def _parse(text: str, members: str) -> str:
    """Return the SQL of a JSON object's members, each as text; NULL for any other text, and for one that goes on behind the object."""
    of_members = sql.text(f"{members}, {END} STRING, corrupt STRING")
    parsed = f"from_json({sealed(text)}, {of_members}, map('columnNameOfCorruptRecord', 'corrupt', {STRICT}))"
    return sql.let("parsed", parsed, f"if(parsed.corrupt IS NULL AND parsed.{END} IS NOT NULL, parsed, NULL)")


def _compact(text: str) -> str:
    """Return the SQL of a JSON text without whitespace between its tokens."""
    wrapped = f"concat('{{\"value\":', {text}, '}}')"
    return f"{_parse(wrapped, 'value STRING')}.value"


def _json(text: str) -> str:
    """Return the SQL of a member's text as JSON again: quoted, unless it is an object, an array or a number."""
    quoted = f"to_json(array({text}))"
    bare = rf"{text} RLIKE r'^([\[{{]|-?\d+$)'"
    return f"CASE WHEN {text} IS NULL THEN 'null' WHEN {bare} THEN {text} ELSE substr({quoted}, 2, length({quoted}) - 2) END"
