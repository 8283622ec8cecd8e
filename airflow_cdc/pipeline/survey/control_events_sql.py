"""DuckDB's SQL of a survey of control events: transactions' BEGIN and END, heartbeats, and schema changes.

They are recognised as in :func:`airflow_cdc.pipeline.decode.envelope.kind_of`: by exactly their own members.
"""

from __future__ import annotations

from airflow_cdc.model.archive.survey import RecordKind
from airflow_cdc.pipeline.decode.envelope import HEARTBEAT_MEMBERS, SCHEMA_CHANGE, TRANSACTION, ControlMembers
from airflow_cdc.pipeline.native.duckdb_sql import text, texts
from airflow_cdc.pipeline.native.record_lines import IS_OF_LAYOUT, RecordLines
from airflow_cdc.pipeline.read.respell import MARKS
from airflow_cdc.pipeline.survey.row_events_sql import CONNECTORS, IS_PLACED, NUMBERS, is_marked, named_log, named_table

_NAMED = ("name", "db", "schema", "table")
"""Members of ``source`` that name the table."""


def control_events(read: RecordLines) -> str:
    """Return the query of the lines as a survey describes them (:data:`airflow_cdc.pipeline.survey.survey_natively.DESCRIBED`).

    Any line that is no control event is odd.
    """
    parts = {member: f"source->>{text(member)}" for member in _NAMED}
    texts_of_source = " AND ".join(
        f"coalesce(json_type(source->{text(member)}) IN ('VARCHAR', 'NULL'), true)" for member in ("connector", *_NAMED)
    )
    is_server = "coalesce(contains(CAST(key AS VARCHAR), 'serverName'), true)"
    is_schema_change = f"""(payload->>'databaseName' IS NOT NULL OR payload->>'tableChanges' IS NOT NULL)
        AND source->>'connector' IN ({texts(CONNECTORS)}) AND {_has_own_names("source")} AND {texts_of_source}"""
    return f"""
WITH lines AS (
  SELECT *, list_sort(json_keys(value)) = ['payload', 'schema'] AS wrapped FROM ({read.read("JSON", "JSON", MARKS)})
), opened AS (
  SELECT * {"" if read.are_values else NUMBERS}, if(wrapped, value->'payload', value) AS payload FROM lines
), named AS (
  SELECT *, payload->'source' AS source, array_to_string(list_sort(json_keys(payload)), ',') AS members FROM opened
), known AS (
  SELECT *, CASE
    WHEN {_has(TRANSACTION)} AND json_type(payload->'status') = 'VARCHAR'
      AND payload->>'status' IN ('BEGIN', 'END') THEN {text(RecordKind.TRANSACTION.value)}
    WHEN {_has(SCHEMA_CHANGE)} AND {is_schema_change} THEN {text(RecordKind.SCHEMA_CHANGE.value)}
    WHEN members = {text(HEARTBEAT_MEMBERS)} AND json_type(payload->'ts_ms') IN ('BIGINT', 'UBIGINT') AND {is_server}
      THEN {text(RecordKind.HEARTBEAT.value)} END AS kind
  FROM named
)
SELECT filename, topic, partition, "offset", key, kind, source->>'connector' AS connector,
  {named_table("(source->>'connector')", parts)} AS "table", {named_log("(source->>'connector')", parts)} AS log,
  CAST(NULL AS VARCHAR) AS value_schema, CAST(NULL AS VARCHAR[]) AS value_names,
  NOT coalesce(kind IS NOT NULL AND {IS_OF_LAYOUT} AND {"true" if read.are_values else IS_PLACED} AND {_has_own_names("payload")}
    AND (key IS NULL OR json_type(key) = 'OBJECT') AND (NOT wrapped OR json_type(value->'schema') = 'OBJECT')
    AND NOT ({is_marked(*(f"CAST({part} AS VARCHAR)" for part in ("key", "headers", "value")))}), false) AS is_odd
FROM known"""


def _has(members: ControlMembers) -> str:
    return f"regexp_full_match(members, {text(members.pattern)}) AND members != {text(members.no_event)}"


def _has_own_names(document: str) -> str:
    """Return the condition that no member of a JSON document comes twice."""
    return f"json_type({document}) = 'OBJECT' AND len(json_keys({document})) = len(list_distinct(json_keys({document})))"
