"""The members of an archived line, whatever it is wrapped in.

A line is a whole Kafka record or the record's value alone; value and key are, each for itself, bare or
``{schema, payload}``. These helpers say where a member is found, as SQL over one parsed struct column.
"""

from __future__ import annotations

from airflow_cdc.model.columns import RAW
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.decode import huawei_cdl

LINE_STRUCT = "__cdc_parsed"
"""The parsed line."""
CORRUPT = "__cdc_corrupt"
"""Member of the parsed line: the line's text when it is not JSON or a member has the wrong shape."""

TOPIC = f"if({LINE_STRUCT}.{CORRUPT} IS NULL, {LINE_STRUCT}.topic, get_json_object({RAW}, '$.topic'))"
"""SQL of the topic that a line names. Of one that could not be parsed how much is parsed depends on the members that were asked for."""

SCHEMA = f"coalesce(get_json_object({RAW}, '$.value.schema'), get_json_object({RAW}, '$.schema'))"
"""SQL of the schema of a raw line's value, NULL for a bare one."""

KIND_MEMBERS = {**dict.fromkeys(("op", "status", "databaseName", "tableChanges", "ts_ms"), "STRING"), **huawei_cdl.KIND_MEMBERS}
"""Members of a value by which :func:`kind_of` tells what it is."""


def parse_line(members: str) -> str:
    """Return the SQL that parses a line into a struct of ``members`` (DDL), all of whose leaves are text."""
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', {sql.text(CORRUPT)}, 'allowNonNumericNumbers', 'true')"
    return sql.once(f"from_json({RAW}, {sql.text(members + f', {CORRUPT} STRING')}, {options})")


def kind_of(*, corrupt: str, value: str, payload: str, wrapped: str) -> str:
    """Return the SQL for what a record is: an operation code or a :class:`~airflow_cdc.model.survey.RecordKind`.

    :param corrupt: SQL that is true for a line that could not be parsed.
    :param value: SQL of the record's value, NULL for a tombstone.
    :param payload: SQL of the struct that holds :data:`KIND_MEMBERS`.
    :param wrapped: SQL that is true when the value is ``{schema, payload}``.
    """
    return f"""CASE
        WHEN {corrupt} THEN 'malformed'
        WHEN {value} IS NULL OR (({wrapped}) AND {payload} IS NULL) THEN 'tombstone'
        WHEN {payload}.op IN ('r', 'c', 'u', 'd', 't', 'm') THEN {payload}.op
        WHEN {payload}.op IS NOT NULL THEN 'unknown'
        WHEN {payload}.status IN ('BEGIN', 'END') THEN 'transaction'
        WHEN {payload}.tableChanges IS NOT NULL OR {payload}.databaseName IS NOT NULL THEN 'schema_change'
        WHEN {payload}.ts_ms IS NOT NULL THEN 'heartbeat'
        ELSE coalesce({huawei_cdl.kind(payload)}, 'unknown') END"""


def key_shape_of(key: str) -> str:
    """Return the SQL of a key's shape (text): its schema, or the names of its members as a JSON array."""
    names = f"json_object_keys({key})"
    return f"coalesce({schema_in(key, names)}, to_json({names}))"


def schema_in(text: str, names: str) -> str:
    """Return the SQL of the schema in a JSON text, which most have not; ``names`` is the SQL of its members' names."""
    return f"if(array_contains({names}, 'schema'), get_json_object({text}, '$.schema'), NULL)"


def in_line(member: str) -> str:
    """Return the SQL of a member of the envelope in a raw line (text), whatever it is wrapped in."""
    paths = (f"$.{inside}{member}" for inside in ("value.payload.", "value.", "payload.", ""))
    return f"coalesce({', '.join(f'get_json_object({RAW}, {sql.text(path)})' for path in paths)})"
