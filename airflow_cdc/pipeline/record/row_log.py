"""Row log: all events of a table without a key, each with the contents of the row that it adds and of the row that it takes.

A Delta table beside the flow's state, with the same writes and crash safety as the event log.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    ADDED,
    COMMITTED_AT,
    IDENTITY,
    KIND,
    MICROBATCH,
    OFFSET,
    OP,
    PARTITION,
    POSITION,
    RAW,
    RAW_KEY,
    SENT_AT,
    SNAPSHOT,
    TAKEN,
)
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.whole_rows import BEFORE_ROW
from airflow_cdc.pipeline.spark import sql


def with_contents(events: DataFrame, decoder: Decoder, types: Mapping[str, str]) -> DataFrame:
    """Return decoded events with the hashes :data:`~airflow_cdc.model.columns.ADDED` and ``TAKEN``, and :data:`IDENTITY`.

    :param types: the target's Spark SQL types by column: the same value must have the same text in every event.
    """
    no_content = "CAST(NULL AS STRING)"
    values = {name: sql.name(name) for name in decoder.columns.types}
    added = content_of(values, types) if decoder.without_key else no_content
    taken = content_of({name: f"{BEFORE_ROW}.{value}" for name, value in values.items()}, types) if decoder.without_key else no_content
    hashed = events.withColumns(
        {ADDED: F.expr(f"if({OP} IN ('r', 'c', 'u'), {added}, NULL)"), TAKEN: F.expr(f"if({OP} IN ('u', 'd'), {taken}, NULL)")}
    )
    parts = [f"coalesce({OP}, {KIND})", f"coalesce({ADDED}, '')", f"coalesce({TAKEN}, '')"]
    shares = f"{OP} = 'c' AND {'true' if decoder.dialect.position.is_shared_by_rows else 'false'}"
    value = f"coalesce(get_json_object({RAW}, '$.value'), {RAW})"
    sent_at = f"try_cast(coalesce(get_json_object({value}, '$.payload.ts_ms'), get_json_object({value}, '$.ts_ms')) AS BIGINT)"
    place = (
        f"CASE WHEN {OP} = 'r' THEN concat_ws('+', {PARTITION}, {OFFSET}) WHEN {shares} THEN CAST(xxhash64({value}) AS STRING) ELSE '' END"
    )
    own = {IDENTITY: F.expr(f"concat_ws('|', {', '.join(parts)}, {place})"), SENT_AT: F.expr(f"if({shares}, {sent_at}, NULL)")}
    return hashed.withColumns(own).drop(BEFORE_ROW, RAW, RAW_KEY)


def content_of(values: Mapping[str, str], types: Mapping[str, str]) -> str:
    """Return the SQL of the hash of a row's values. It covers values that are not NULL, by name, so that a new column changes no hash.

    :param values: SQL by column.
    """
    members = []
    for name, value in sorted(values.items(), key=lambda item: item[0].lower()):
        typed = f"CAST({value} AS {types[name]})"
        text = f"hex({typed})" if types[name] == "BINARY" else f"CAST({typed} AS STRING)"
        members.append(f"if({value} IS NULL, NULL, named_struct('column', {sql.text(name.lower())}, 'value', {text}))")
    content = f"CAST(array_compact(array({', '.join(members)})) AS ARRAY<STRUCT<column: STRING, value: STRING>>)"
    return f"sha2(to_json({content}), 256)"


def logged_rows(events: DataFrame, decoder: Decoder, types: Mapping[str, str], microbatch: int) -> DataFrame:
    """Return events as rows of the log: the source's columns hold the after image.

    :param types: Spark SQL types by column.
    """
    values = [F.col(sql.name(name)).cast(types[name]).alias(name) for name in decoder.columns.types]
    ours = (POSITION, OP, COMMITTED_AT, PARTITION, OFFSET, SNAPSHOT, ADDED, TAKEN, IDENTITY, SENT_AT)
    return events.select(*values, *ours, F.lit(microbatch).cast("bigint").alias(MICROBATCH))


def without_known_rows(events: DataFrame, known: DataFrame, *, archived_before: bool) -> DataFrame:
    """Return the events that the log does not hold yet.

    :param archived_before: whether a copy that was archived before the known one counts as new: its first copy decides on which side of
        a snapshot an event lies.
    """
    same = f"s.{POSITION} = k.{POSITION} AND s.{IDENTITY} = k.{IDENTITY}"
    if archived_before:
        same += f" AND s.{PARTITION} <=> k.{PARTITION} AND coalesce(k.{OFFSET} <= s.{OFFSET}, true)"
    return events.alias("s").join(known.alias("k"), F.expr(same), "left_anti")
