"""The members of an archived line, whatever wraps it.

A line is a whole Kafka record or the record's value alone. Value and key are, independently, bare or
``{schema, payload}``. These helpers locate a member, as SQL over one parsed struct column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from airflow_cdc.model.columns import FILE, RAW, RAW_KEY
from airflow_cdc.model.connectors.registry import entries
from airflow_cdc.pipeline.read.one_document import END, STRICT, has_lone_surrogate, is_one, sealed
from airflow_cdc.pipeline.spark import sql

LINE_STRUCT = "__cdc_parsed"
"""The parsed line."""
CORRUPT = "__cdc_corrupt"
"""Member of the parsed line: the line's text if it is not JSON or a member has the wrong shape."""


def whole_record(topic: str, value: str) -> str:
    """Return the SQL that is true for a raw line that is a whole Kafka record, rather than a row with a column ``topic``.

    A transform may put the record's place into an envelope, which is then a value.

    :param topic: SQL of the line's member of that name.
    :param value: SQL of its member ``value`` as a struct; NULL where it is null or not an object.
    """
    # Evaluated for tombstones only. The names of a truncated line cannot be listed.
    listed = _listed(f"array_intersect(json_object_keys({RAW}), array('offset', 'op', 'partition', 'source', 'value'))")
    found = f"{listed} RLIKE 'value|offset,partition|^offset,op,partition$'"
    has_members = f"coalesce({found}, {sql.mentions(RAW, ('value', 'partition'))})"
    return f"({topic} IS NOT NULL AND ({value} IS NOT NULL OR {has_members}))"


def lacks_value(value: str) -> str:
    """Return the SQL that is true for a raw line without a member ``value``: a whole record without one is no tombstone.

    Its value may stand under another name, or have been left out by its writer.

    :param value: SQL of its member ``value`` as a struct; NULL where it is null or not an object.
    """
    return f"({value} IS NULL AND NOT coalesce(array_contains(json_object_keys({RAW}), 'value'), true))"


def _listed(names: str) -> str:
    """Return the SQL of an array of names as one sorted text. A lambda instead would disable Spark's code generation for every line."""
    return f"array_join(sort_array({names}), ',')"


class ControlMembers(NamedTuple):
    """The members of a control event's payload: their sorted names, with commas between."""

    pattern: str
    """Regular expression, whole."""
    no_event: str
    """What matches and is a row of two columns."""


TRANSACTION = ControlMembers("(data_collections,)?(event_count,)?id,status(,ts_ms)?", "id,status")
SCHEMA_CHANGE = ControlMembers("databaseName(,ddl)?(,position)?(,schemaName)?,source(,tableChanges)?(,ts_ms)?", "databaseName,source")
HEARTBEAT_MEMBERS = "ts_ms"
NOTIFICATION_MEMBERS = "additional_data,aggregate_type,id,(timestamp,)?type"
"""Of Debezium's notifications in a topic of their own."""

_REPLACED = "'\ufffd'"
_READ_TOPIC = f"if({LINE_STRUCT}.{CORRUPT} IS NULL, {LINE_STRUCT}.topic, get_json_object({RAW}, '$.topic'))"
_IS_NONE = f"NOT {whole_record(_READ_TOPIC, f'{LINE_STRUCT}.value')} OR (NOT is_valid_utf8({RAW}) AND contains({_READ_TOPIC}, {_REPLACED}))"
# A name with replaced bytes names no topic: the line counts as one without a topic.
TOPIC = f"if({_IS_NONE}, NULL, {_READ_TOPIC})"
"""SQL of the topic that a line names. How much of a malformed line is parsed depends on the requested members."""

_UP_TO_NAME = r'(?s)^.*?"topic"\s*:\s*"[^"\\]*+(?:\\.[^"\\]*+)*+"'
# The beginning of a line, closed behind the name, is valid JSON only where the name is a member of the line itself.
_NAMED_IN_PART = f"get_json_object(concat(regexp_extract({RAW}, {sql.text(_UP_TO_NAME)}, 0), '}}'), '$.topic')"
_IS_BROKEN = f"{LINE_STRUCT}.{CORRUPT} IS NOT NULL AND get_json_object({RAW}, '$.topic') IS NULL"
_NAMED_TOPIC = f"""coalesce({TOPIC}, if({_IS_BROKEN} AND (is_valid_utf8({RAW}) OR NOT contains({_NAMED_IN_PART}, {_REPLACED})),
    {_NAMED_IN_PART}, NULL))"""

SCHEMA = f"coalesce(get_json_object({RAW}, '$.value.schema'), get_json_object({RAW}, '$.schema'))"
"""SQL of the schema of a raw line's value, NULL for a bare value."""

_CONNECTORS_MEMBERS = (name for entry in entries() for name in entry.values.members)
KIND_MEMBERS = dict.fromkeys(("op", "status", "databaseName", "tableChanges", "ts_ms", *_CONNECTORS_MEMBERS), "STRING")
"""Members of a value by which :func:`kind_of` classifies it."""


def named_topic(of_older_surveys: Sequence[str] = ()) -> str:
    """Return the SQL of the topic that a line names, even if the line is truncated behind the name.

    Valid in files of whole records only: a row may have a column ``topic``.

    :param of_older_surveys: paths of the files whose surveys counted a truncated line as one without a topic.
    """
    older = ", ".join(map(sql.text, of_older_surveys))
    return f"if({FILE} IN ({older}), {TOPIC}, {_NAMED_TOPIC})" if older else _NAMED_TOPIC


def parse_line(members: str) -> str:
    """Return the SQL that parses a line into a struct of ``members`` (DDL), all of whose leaves are text."""
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', {sql.text(CORRUPT)}, {STRICT})"
    # A bare null is an archived tombstone, which the parser would report as corrupt.
    return sql.once(f"from_json(nullif({sealed(RAW)}, 'null'), {sql.text(members + f', {CORRUPT} STRING, {END} STRING')}, {options})")


def is_broken(line: str) -> str:
    """Return the SQL that is true where a line from :func:`parse_line` is not one JSON object of the right shape, to its end."""
    return f"coalesce({line}.{CORRUPT} IS NOT NULL OR ({line} IS NOT NULL AND {line}.{END} IS NULL), false)"


def is_corrupt(line: str, key: str) -> str:
    """Return the SQL that is true for a line from :func:`parse_line` that is broken, is no UTF-8, or has such a key.

    :param key: SQL of the record's key (text): of the line, else of the companion.
    """
    return f"({is_broken(line)} OR {no_utf8(RAW_KEY)} OR NOT {is_one(key)})"


def no_utf8(key: str) -> str:
    """Return the SQL that is true where a raw line, or the key from its companion, is not valid UTF-8, or names what cannot be.

    The parser replaces such bytes by U+FFFD: a value that the source never had. A U+FFFD of the source itself is valid UTF-8. Half of a
    surrogate pair it replaces by a question mark.
    """
    are_utf8 = f"is_valid_utf8({RAW}) AND coalesce(is_valid_utf8({key}), true)"
    return f"(NOT ({are_utf8}) OR {has_lone_surrogate(RAW)} OR {has_lone_surrogate(key)})"


def kind_of(*, corrupt: str, value: str, payload: str, key: str) -> str:
    """Return the SQL of a raw line's kind: an operation code or a :class:`~airflow_cdc.model.archive.survey.RecordKind`.

    Any document may share a member's name with a control event. A control event has exactly its own members.

    :param corrupt: SQL that is true for a line that could not be parsed.
    :param value: SQL of the record's value, NULL for a tombstone.
    :param payload: SQL of the struct that holds :data:`KIND_MEMBERS`.
    :param key: SQL of the record's key (text).
    """
    others = [entry.values.kind.replace("payload.", f"{payload}.") for entry in entries() if entry.values.kind]
    others.append(f"if(coalesce({_IS_NULL}, false), 'tombstone', 'unknown')")
    of_server = f"coalesce(contains({key}, 'serverName'), true)"
    return f"""CASE
        WHEN {corrupt} THEN 'malformed'
        WHEN {value} IS NULL THEN 'tombstone'
        WHEN {payload}.op IN ('r', 'c', 'u', 'd', 't', 'm') THEN {payload}.op
        WHEN {payload}.op IS NOT NULL THEN 'unknown'
        WHEN {payload}.status IN ('BEGIN', 'END') AND {_IS_TRANSACTION} THEN 'transaction'
        WHEN ({payload}.tableChanges IS NOT NULL OR {payload}.databaseName IS NOT NULL)
            AND {_IS_SCHEMA_CHANGE} THEN 'schema_change'
        WHEN try_cast({payload}.ts_ms AS BIGINT) IS NOT NULL AND {_IS_HEARTBEAT} AND {of_server} THEN 'heartbeat'
        WHEN {sql.mentions(RAW, ("aggregate_type",))} AND {_IS_NOTIFICATION} THEN 'notification'
        ELSE coalesce({", ".join(others)}) END"""


def connector_of(payload: str) -> str:
    """Return the SQL of the connector that wrote a value: recognised by its marks, else as ``source`` names it.

    :param payload: SQL of a struct that holds :data:`KIND_MEMBERS` and ``source.connector``.
    """
    marks = [(name, condition) for entry in entries() for name, condition in entry.values.recognised.items()]
    found = " ".join(f"WHEN {condition.replace('payload.', f'{payload}.')} THEN {sql.text(name)}" for name, condition in marks)
    named = f"{payload}.source.connector"
    return f"CASE {found} ELSE {named} END" if found else named


def _member_of(path: str) -> str:
    return f"get_json_object({RAW}, '{path}')"


_PAYLOAD_MEMBERS = _listed(f"json_object_keys(coalesce({', '.join(map(_member_of, ('$.value.payload', '$.value', '$.payload')))}, {RAW}))")
MEMBERS_SEEN = f"coalesce({_PAYLOAD_MEMBERS}, 'no members')"
"""SQL of the names of a raw line's members, sorted: of the innermost document that wraps no other."""
_VALUE_MEMBERS = _listed(f"json_object_keys(coalesce({_member_of('$.value')}, {RAW}))")
_IS_TRANSACTION = f"{_PAYLOAD_MEMBERS} RLIKE '^(?!{TRANSACTION.no_event}$){TRANSACTION.pattern}$'"
_IS_SCHEMA_CHANGE = f"{_PAYLOAD_MEMBERS} RLIKE '^(?!{SCHEMA_CHANGE.no_event}$){SCHEMA_CHANGE.pattern}$'"
_IS_HEARTBEAT = f"{_PAYLOAD_MEMBERS} = '{HEARTBEAT_MEMBERS}'"
_IS_NOTIFICATION = f"{_PAYLOAD_MEMBERS} RLIKE '^{NOTIFICATION_MEMBERS}$'"
_IS_NULL = (
    f"{_VALUE_MEMBERS} IN ('payload', 'payload,schema') AND coalesce({_member_of('$.value.payload')}, {_member_of('$.payload')}) IS NULL"
)
"""SQL that is true for a null written by a converter with schemas: ``{schema, payload}`` without a payload."""


def key_shape_of(key: str) -> str:
    """Return the SQL of a key's shape (text): its schema, the names of its members as a JSON array, or :data:`SINGLE`."""
    names = f"json_object_keys({key})"
    return f"coalesce({schema_in(key, names)}, to_json({names}))"


SINGLE = '"single value"'
"""Shape of a bare key that is not an object, as ``ExtractField$Key`` makes it. It names no column."""


def schema_in(key: str, names: str) -> str:
    """Return the SQL of the schema in a key's text, NULL for the usual key without one; ``names`` is the SQL of its members' names."""
    in_object = f"if(array_contains({names}, 'schema'), get_json_object({key}, '$.schema'), NULL)"
    return f"if({names} IS NULL AND {key} IS NOT NULL, '{SINGLE}', {in_object})"


def in_line(member: str) -> str:
    """Return the SQL of a member of the envelope in a raw line (text), whatever wraps it."""
    paths = (f"$.{inside}{member}" for inside in ("value.payload.", "value.", "payload.", ""))
    return f"coalesce({', '.join(f'get_json_object({RAW}, {sql.text(path)})' for path in paths)})"
