"""Decode all events of a microbatch in this process (DuckDB), for a change log, with the counts that Spark makes of staged events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, PARTITION, POSITION, TRANSACTION, UNAVAILABLE
from airflow_cdc.model.errors import first_line
from airflow_cdc.pipeline.apply.native.fold import NativeReads, make_events, read_reads, staged_of
from airflow_cdc.pipeline.apply.native.fold_sql import EVENTS, find_reads, reads_of_events
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver, are_values
from airflow_cdc.pipeline.apply.native.left_out import HAS_BEFORE, LEFT_OUT
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.microbatch.count_events import Staged, count_surveyed
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, rows_by_name
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source, text
from airflow_cdc.pipeline.native.record_lines import START

_ROWS = f"FROM {EVENTS} WHERE NOT is_tombstone"
_STREAMED = f"CASE WHEN {OP} <> 'r' THEN {POSITION} END"


@dataclass(frozen=True, kw_only=True)
class NativeEvents:
    """The events of a microbatch, and their counts."""

    rows: Any
    """Arrow table: the source's columns, then operation, position, commit time, partition, offset, transaction, and the names of the
    columns that the event leaves out (``__cdc_unavailable``)."""
    staged: Staged
    reads: NativeReads


def read_all_events(decoder: Decoder, archive: str, *, threads: int = 1) -> NativeEvents:
    """Return each event of a microbatch.

    :param archive: URI of the root that the decoder's files lie below.
    :raises HandedOver: as :func:`airflow_cdc.pipeline.apply.native.fold.make_events`, and for an event that comes twice or was archived
        before one that it follows.
    """
    import duckdb

    with connect_duckdb(threads=threads) as connection:
        make_events(connection, decoder, archive)
        try:
            _check_order(connection, decoder)
            lanes = rows_by_name(connection.execute(_COUNT))
            rows = connection.sql(_rows(list(decoder.columns.types), _left_out(connection))).to_arrow_table()
            query = find_reads(f"({reads_of_events()})")
            reads = read_reads(connection, query) if count_surveyed(decoder.shapes).reads else NativeReads()
        except duckdb.Error as error:
            raise HandedOver(f"DuckDB failed: {first_line(error)}") from error
    return NativeEvents(rows=rows, staged=staged_of(lanes), reads=reads)


def _check_order(connection: Any, decoder: Decoder) -> None:
    keys = ", ".join(map(of_source, decoder.columns.keys))
    start = START if are_values(decoder.shapes) else OFFSET
    in_conflict = f"lag({PARTITION}) OVER k = {PARTITION} AND lag({start}) OVER k > {start}"
    before = f"""
SELECT lag({POSITION}) OVER k = {POSITION} AS is_copy, {in_conflict} AS in_conflict
{_ROWS} WINDOW k AS (PARTITION BY {keys} ORDER BY {POSITION})"""
    ((copies, conflicts),) = connection.execute(f"SELECT count_if(is_copy), count_if(in_conflict) FROM ({before})").fetchall()
    if copies:
        raise HandedOver("an event comes twice")
    if conflicts:
        raise HandedOver("an event was archived before one that it follows")


def _left_out(connection: Any) -> Mapping[str, str]:
    """Return the SQL of the columns that some events leave out.

    :raises HandedOver: where an image before may carry what the event leaves out.
    """
    found = connection.execute(f"SELECT unnest({LEFT_OUT}), bool_or({HAS_BEFORE}) {_ROWS} AND {LEFT_OUT} IS NOT NULL GROUP BY 1")
    columns = dict(found.fetchall())
    if any(columns.values()):
        raise HandedOver("a value that an event leaves out, with an image before")
    return {
        column: f"CASE WHEN NOT coalesce(list_contains({LEFT_OUT}, {text(column)}), false) THEN {of_source(column)} END"
        for column in columns
    }


def _rows(columns: Sequence[str], left_out: Mapping[str, str]) -> str:
    source = ", ".join(f"{left_out.get(column, of_source(column))} AS {name(column)}" for column in columns)
    ours = (OP, POSITION, COMMITTED_AT, PARTITION, OFFSET, TRANSACTION)
    return f"SELECT {source}, {', '.join(ours)}, {LEFT_OUT} AS {UNAVAILABLE} {_ROWS}"


_COUNT = f"""
SELECT {PARTITION} AS lane, count(*) AS events, count(*) AS keys, 0 AS redelivered, 0 AS conflicts, false AS spreads,
  bool_or({OP} = 'd') AS has_deletes, max({POSITION}) AS last, min({_STREAMED}) AS streamed_from, max({_STREAMED}) AS streamed_through,
  arg_max({_STREAMED}, {OFFSET}) FILTER ({OP} <> 'r') AS tail, min({OFFSET}) AS offset_from, max({OFFSET}) AS offset_through,
  epoch_ms(max({COMMITTED_AT})) AS committed_through
{_ROWS} GROUP BY {PARTITION}"""
"""The sums by lane, as :func:`airflow_cdc.pipeline.apply.native.fold_sql.count_changes`."""
