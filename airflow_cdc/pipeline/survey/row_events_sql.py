"""DuckDB's SQL of a survey of row events: Debezium's envelopes and tombstones."""

from __future__ import annotations

from airflow_cdc.model.archive.survey import RecordKind
from airflow_cdc.model.connectors.registry import entries, with_log_of_database, without_database
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.native.duckdb_sql import name, struct, text, texts
from airflow_cdc.pipeline.native.record_lines import IS_OF_LAYOUT, RecordLines
from airflow_cdc.pipeline.read.respell import MARKS

CONNECTORS = tuple(known for entry in entries() if entry.native for known in entry.names)
"""Connectors whose values are surveyed without Spark."""
_DOCUMENTS = tuple(entry for entry in entries() if entry.native and entry.values.columns)
_OPERATIONS = tuple(operation.value for operation in Operation)
_OTHERS = sorted({member for entry in entries() for member in (*entry.values.members, entry.values.image, entry.values.key) if member})
"""Members of values that are not Debezium's row envelope."""
_SOURCE = struct(dict.fromkeys(("connector", "name", "db", "schema", "table"), "VARCHAR"))
_PAYLOAD = {"op": "VARCHAR", "before": "JSON", "after": "JSON", "source": _SOURCE, **dict.fromkeys(_OTHERS, "JSON")}
_VALUE = {"schema": "JSON", "payload": struct(_PAYLOAD), **_PAYLOAD}
_INTEGER = "-?[0-9]{1,18}"

IS_PLACED = 'topic IS NOT NULL AND partition IS NOT NULL AND "offset" IS NOT NULL AND length(topic) > 0'
"""Condition of a whole record's place, behind :data:`NUMBERS`."""
NUMBERS = f"""REPLACE (
      if(regexp_full_match(partition, '{_INTEGER}'), TRY_CAST(partition AS INTEGER), NULL) AS partition,
      if(regexp_full_match("offset", '{_INTEGER}'), TRY_CAST("offset" AS BIGINT), NULL) AS "offset")"""
"""What follows ``SELECT *`` from lines of whole records: their numbers, read from text."""


def named_table(connector: str, parts: dict[str, str]) -> str:
    """Return the SQL of the source's table, named as in the connector's topic: with the database, the schema or both.

    :param parts: SQL (text) of ``source``'s members ``name``, ``db``, ``schema`` and ``table``.
    """
    database = f"if({connector} IN ({texts(without_database())}), NULL, {parts['db']})"
    named = f"concat_ws('.', {parts['name']}, {database}, {parts['schema']}, {parts['table']})"
    return f"if({parts['table']} IS NULL, NULL, {named})"


def named_log(connector: str, parts: dict[str, str]) -> str:
    """Return the SQL of the source's log (:attr:`airflow_cdc.model.archive.survey.TopicShape.log`).

    :param parts: as for :func:`named_table`.
    """
    database = f"if({connector} IN ({texts(with_log_of_database())}), {parts['db']}, NULL)"
    return f"if({parts['name']} IS NULL, NULL, concat_ws('.', {parts['name']}, {database}))"


def is_marked(*parts: str) -> str:
    """Return the condition that a part of a record (SQL of its JSON text) has a member of another shape than Debezium's."""
    # Only a member is a mark: connectors name a header so. DuckDB has written these texts anew, without white space.
    members = [text(f'"{mark}":') for mark in MARKS]
    return " OR ".join(f"coalesce(contains({part}, {member}), false)" for member in members for part in parts)


def row_events(read: RecordLines) -> str:
    """Return the query of the lines as a survey describes them (:data:`airflow_cdc.pipeline.survey.survey_natively.DESCRIBED`)."""
    tombstone = text(RecordKind.TOMBSTONE.value)
    others = " AND ".join(f"payload.{name(member)} IS NULL" for member in _OTHERS)
    # An image or a key is an object; a list, a text and a number have no members. A document is a text.
    image_begins = f"""if({_has_columns()}, '"', '{{')"""
    is_plain = f"""{IS_OF_LAYOUT} AND {"true" if read.are_values else IS_PLACED}
        AND (key_text IS NULL OR starts_with(key_text, '{{')) AND (image IS NULL OR starts_with(image::VARCHAR, {image_begins}))
        AND if(value IS NULL, NOT ({is_marked("key_text", "headers_text")}),
          payload.op IN ({texts(_OPERATIONS)}) AND payload.source.connector IN ({texts(CONNECTORS)}) AND {others}
          AND (NOT wrapped OR (json_type(value.schema) = 'OBJECT' AND value.payload IS NOT NULL)))"""
    parts = {member: f"payload.source.{name(member)}" for member in ("name", "db", "schema", "table")}
    return f"""
WITH lines AS (
  SELECT *, value.schema IS NOT NULL OR value.payload IS NOT NULL AS wrapped,
    if(value.schema IS NOT NULL OR value.payload IS NOT NULL, value.payload, {_bare()}) AS payload
  FROM ({read.read(_VALUE, "JSON", MARKS)})
), typed AS (
  SELECT * {"" if read.are_values else NUMBERS},
    coalesce(payload.after, payload.before) AS image, CAST(key AS VARCHAR) AS key_text, CAST(headers AS VARCHAR) AS headers_text
  FROM lines
), described AS (
  SELECT *, NOT coalesce({is_plain}, false) AS is_odd FROM typed
)
SELECT filename, is_odd, topic, partition, "offset", key, if(value IS NULL, {tombstone}, payload.op) AS kind,
  payload.source.connector AS connector, {named_table("payload.source.connector", parts)} AS "table",
  {named_log("payload.source.connector", parts)} AS log,
  if(wrapped, CAST(value.schema AS VARCHAR), NULL) AS value_schema,
  CASE WHEN value IS NULL OR wrapped OR is_odd THEN NULL {_fixed_columns()} ELSE json_keys(image) END AS value_names
FROM described"""


def _has_columns() -> str:
    """Return the condition that a value's connector gives all rows the same columns: a document's members are none."""
    names = [known for entry in _DOCUMENTS for known in entry.names]
    return f"coalesce(payload.source.connector IN ({texts(names)}), false)"


def _fixed_columns() -> str:
    return " ".join(f"WHEN payload.source.connector IN ({texts(entry.names)}) THEN [{texts(entry.values.columns)}]" for entry in _DOCUMENTS)


def _bare() -> str:
    members = ", ".join(f"{name(member)} := value.{name(member)}" for member in _PAYLOAD)
    return f"if(value IS NULL, NULL, struct_pack({members}))"
