"""The native engine's SQL (DuckDB): lines to events, events to each key's last one, and the counts.

Each leaf of an image is read as JSON, whose text shows its type. A line that is not JSON, has a member twice, or a member of another kind
fails the whole statement; so does nothing that Spark would read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, PARTITION, POSITION, TRANSACTION
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.source_columns import is_schema
from airflow_cdc.pipeline.decode.types.connect_types import FIRST_DAY, LAST_DAY
from airflow_cdc.pipeline.decode.types.native_readings import read_instant
from airflow_cdc.pipeline.decode.unavailable_values import PLACEHOLDER_TEXTS, may_be_unavailable
from airflow_cdc.pipeline.native.duckdb_sql import name, read_members, struct, text, texts

EVENTS, CHANGES = "cdc_events", "cdc_changes"
_ROWS = "('c', 'u', 'd')"
_NUMBER = "DECIMAL(38,0)"


def decode(decoder: Decoder, paths: Sequence[str]) -> str:
    """Return the statement that makes :data:`EVENTS`: one row per record of the topic, with ``problem`` where the engine cannot read it."""
    columns, keys = list(decoder.columns.types), decoder.columns.keys
    key = "key.payload" if _has_wrapped_keys(decoder) else "key"
    leaves = {column: f"CAST({_leaf(column, keys, key)} AS VARCHAR)" for column in columns}
    read = ", ".join(f"{leaf} AS {name(f'leaf {column}')}" for column, leaf in leaves.items())
    native = decoder.dialect.native
    assert native is not None
    commit, change, serial, transaction = (
        part.replace("source.", "payload.source.") for part in (native.commit, native.change, native.serial, native.transaction)
    )
    values = {column: rule.native(name(f"leaf {column}")) for column, rule in decoder.columns.types.items() if rule.native}
    ours = texts(decoder.dialect.names)
    return f"""
CREATE OR REPLACE TEMP TABLE {EVENTS} AS
WITH lines AS (
  SELECT topic, partition, "offset", key, value IS NULL AS is_tombstone, {_payload(decoder)} AS payload
  FROM {read_members(paths, _members(decoder))}
), leaves AS (
  SELECT *, payload.op AS op, {read} FROM lines WHERE topic IS NULL OR topic = {text(decoder.topic)}
), staged AS (
  SELECT {", ".join(f"{value} AS {name(column)}" for column, value in values.items())},
    {", ".join(name(f"leaf {column}") for column in columns)},
    op AS {OP}, is_tombstone, topic, payload,
    TRY_CAST(partition AS INTEGER) AS {PARTITION}, TRY_CAST("offset" AS BIGINT) AS {OFFSET},
    {{'commit': CAST({commit} AS {_NUMBER}), 'change': CAST({change} AS {_NUMBER}), 'serial': CAST({serial} AS BIGINT)}} AS {POSITION},
    {transaction} AS {TRANSACTION},
    {read_instant(1_000, FIRST_DAY, LAST_DAY)("payload.source.ts_ms")} AS {COMMITTED_AT}
  FROM leaves
)
SELECT {", ".join(map(name, columns))}, {OP}, is_tombstone, {PARTITION}, {OFFSET}, {POSITION}, {TRANSACTION}, {COMMITTED_AT},
  CASE WHEN topic IS NULL THEN 'a line names no topic'
    WHEN is_tombstone THEN NULL
    WHEN {OP} IS NULL OR {OP} NOT IN {_ROWS} THEN 'a record is no change of a row'
    WHEN payload.source.connector IS NULL OR payload.source.connector NOT IN ({ours}) THEN 'a record names another connector'
    WHEN {PARTITION} IS NULL OR {OFFSET} IS NULL THEN 'a record has no offset'
    WHEN {POSITION}.commit IS NULL OR {POSITION}.change IS NULL OR {POSITION}.serial IS NULL THEN 'a position of another form'
    WHEN payload.source.ts_ms IS NOT NULL AND {COMMITTED_AT} IS NULL THEN 'a commit time of another form'
    WHEN {OP} <> 'd' AND payload.after IS NULL THEN 'an event without a row'
    {_misfits(decoder)} END AS problem
FROM staged"""


def _members(decoder: Decoder) -> dict[str, str]:
    """Return the members of a line that are read, with their types."""
    image, keys = struct(dict.fromkeys(decoder.columns.types, "JSON")), struct(dict.fromkeys(decoder.columns.keys, "JSON"))
    source = struct(dict.fromkeys(("connector", "ts_ms", *decoder.dialect.position.fields), "VARCHAR"))
    value = {"op": "VARCHAR", "before": keys, "after": image, "source": source}
    return {
        **dict.fromkeys(("topic", "partition", "offset"), "VARCHAR"),
        "key": struct({"payload": keys}) if _has_wrapped_keys(decoder) else keys,
        "value": struct({"payload": struct(value)} if _is_wrapped(decoder) else value),
    }


def _is_wrapped(decoder: Decoder) -> bool:
    return any(is_schema(shape.value_shape) for shape in decoder.shapes if shape.value_shape)


def _has_wrapped_keys(decoder: Decoder) -> bool:
    return any(is_schema(shape.key_shape) for shape in decoder.shapes if shape.key_shape)


def _payload(decoder: Decoder) -> str:
    return "value.payload" if _is_wrapped(decoder) else "value"


def _leaf(column: str, keys: Sequence[str], of_key: str) -> str:
    after, quoted = f"payload.after.{name(column)}", name(column)
    if column not in keys:
        return f"CASE WHEN payload.op <> 'd' THEN {after} END"
    in_key, before = f"{of_key}.{quoted}", f"payload.before.{quoted}"
    return f"CASE WHEN payload.op = 'd' THEN coalesce({in_key}, {before}) ELSE coalesce({after}, {in_key}) END"


def _misfits(decoder: Decoder) -> str:
    cases = []
    for column, rule in decoder.columns.types.items():
        leaf, value = name(f"leaf {column}"), name(column)
        if column in decoder.columns.keys:
            cases.append(f"WHEN {leaf} IS NULL THEN 'a record without key'")
        cases.append(f"WHEN {leaf} IS NOT NULL AND {value} IS NULL THEN {text(f'a value of column {column}')}")
        if may_be_unavailable(rule.sql_type):
            cases.append(f"WHEN contains({leaf}, '__debezium_unavailable') OR {leaf} IN ({_placeholders()}) THEN 'an unavailable value'")
    return " ".join(cases)


def _placeholders() -> str:
    return texts(map(json.dumps, PLACEHOLDER_TEXTS))


def count_kinds() -> str:
    """Return the query of the number of records by operation; NULL: tombstones; and of a problem, if there is any."""
    return f"SELECT CASE WHEN is_tombstone THEN 'tombstone' ELSE {OP} END, count(*), min(problem) FROM {EVENTS} GROUP BY ALL"


def fold(keys: Sequence[str], columns: Iterable[str]) -> str:
    """Return the statement that makes :data:`CHANGES`: each key's last event, with sums over all of the key's events.

    The rules are those of :func:`airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key`.
    """
    key = ", ".join(map(name, keys))
    same = f"before_transaction = {TRANSACTION}"
    that = f"(that_transaction = {TRANSACTION} OR that_op = 'r')"
    created = f"({same} AND before_op = 'c' AND NOT coalesce(that_transaction = {TRANSACTION} AND that_op = 'd', false))"
    behind_more = f"(({same} AND before_op = 'u') OR before_op = 'r') AND {that}"
    return f"""
CREATE OR REPLACE TEMP TABLE {CHANGES} AS
WITH near AS (
  SELECT *, lag({POSITION}) OVER k AS before_position, lag({POSITION}, 2) OVER k AS that_position,
    lag({OP}) OVER k AS before_op, lag({OP}, 2) OVER k AS that_op,
    lag({TRANSACTION}) OVER k AS before_transaction, lag({TRANSACTION}, 2) OVER k AS that_transaction,
    lag({PARTITION}) OVER k AS before_partition, lag({OFFSET}) OVER k AS before_offset
  FROM {EVENTS} WHERE NOT is_tombstone
  WINDOW k AS (PARTITION BY {key} ORDER BY {POSITION}, {OFFSET})
), flagged AS (
  SELECT *, coalesce(before_position = {POSITION}, false) AS is_copy,
    NOT coalesce(before_position = {POSITION}, false) AND NOT coalesce(that_position = before_position, false)
      AND before_partition = {PARTITION} AND before_offset > {OFFSET} AS in_conflict,
    {OP} = 'd' AND coalesce({created} OR {behind_more}, false) AS removes_another,
    ({PARTITION} - before_partition) % {LANES} <> 0 AS spreads
  FROM near
)
SELECT {", ".join(map(name, columns))}, {OP}, {POSITION}, {COMMITTED_AT}, {PARTITION}, {OFFSET},
  count(*) OVER w AS events, count_if(is_copy) OVER w AS copies, bool_or(coalesce(in_conflict, false)) OVER w AS conflicts,
  bool_or(removes_another) OVER w AS hazard, bool_or({OP} = 'd') OVER w AS deletes, bool_or(coalesce(spreads, false)) OVER w AS spreads,
  first_value({POSITION}) OVER w AS first_position, min({OFFSET}) OVER w AS first_offset, max({OFFSET}) OVER w AS last_offset
FROM flagged
WINDOW w AS (PARTITION BY {key} ORDER BY {POSITION}, {OFFSET} ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {POSITION} DESC, {OFFSET} DESC) = 1"""


def count_changes() -> str:
    """Return the query of the sums over :data:`CHANGES` by lane, as :func:`airflow_cdc.pipeline.microbatch.count_events.count_staged`."""
    return f"""
SELECT {PARTITION} AS lane, sum(events) AS events, count(*) AS keys, sum(copies) AS redelivered, count_if(conflicts) AS conflicts,
  count_if(hazard) AS hazards, bool_or(deletes) AS has_deletes, bool_or(spreads) AS spreads, max({POSITION}) AS last,
  min(first_position) AS streamed_from, max({POSITION}) AS streamed_through, arg_max({POSITION}, last_offset) AS tail,
  min(first_offset) AS offset_from, max(last_offset) AS offset_through, epoch_ms(max({COMMITTED_AT})) AS committed_through
FROM {CHANGES} GROUP BY {PARTITION}"""
