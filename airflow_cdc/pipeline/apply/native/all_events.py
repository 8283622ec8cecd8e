"""Decode all events of a microbatch in this process (DuckDB), for a change log, with the counts that Spark makes of staged events."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.survey import are_values
from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, PARTITION, POSITION, TRANSACTION, UNAVAILABLE
from airflow_cdc.model.errors import first_line
from airflow_cdc.pipeline.apply.native.decode_sql import EVENTS
from airflow_cdc.pipeline.apply.native.fold import NativeReads, make_events, read_reads, staged_of
from airflow_cdc.pipeline.apply.native.fold_sql import count_changes, each_event, find_reads
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.left_out import HAS_BEFORE, LEFT_OUT, if_carried
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.microbatch.count_events import Staged, count_surveyed
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, rows_by_name
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source
from airflow_cdc.pipeline.native.record_lines import START

_EACH = f"({each_event()})"
_ROWS = f"FROM {EVENTS} WHERE NOT is_tombstone"


@dataclass(frozen=True, kw_only=True)
class NativeEvents:
    """The events of a microbatch, and their counts."""

    decoder: Decoder
    """With what the updates show (:func:`airflow_cdc.pipeline.apply.native.fold.make_events`)."""
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
        decoder = make_events(connection, decoder, archive)
        try:
            _check_order(connection, decoder)
            lanes = rows_by_name(connection.execute(count_changes(_EACH)))
            rows = connection.sql(_rows(decoder.columns.types, _left_out(connection))).to_arrow_table()
            reads = read_reads(connection, find_reads(_EACH)) if count_surveyed(decoder.shapes).reads else NativeReads()
        except duckdb.Error as error:
            raise HandedOver(f"DuckDB failed: {first_line(error)}") from error
    return NativeEvents(decoder=decoder, rows=rows, staged=staged_of(lanes), reads=reads)


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


def _left_out(connection: Any) -> Collection[str]:
    """Return the columns that some events leave out.

    :raises HandedOver: where an image before may carry what the event leaves out.
    """
    found = connection.execute(f"SELECT unnest({LEFT_OUT}), bool_or({HAS_BEFORE}) {_ROWS} AND {LEFT_OUT} IS NOT NULL GROUP BY 1")
    columns = dict(found.fetchall())
    if any(columns.values()):
        raise HandedOver("a value that an event leaves out, with an image before")
    return columns


def _rows(columns: Iterable[str], left_out: Collection[str]) -> str:
    values = {column: of_source(column) for column in columns}
    values |= {column: if_carried(column, values[column]) for column in left_out}
    source = ", ".join(f"{value} AS {name(column)}" for column, value in values.items())
    ours = (OP, POSITION, COMMITTED_AT, PARTITION, OFFSET, TRANSACTION)
    return f"SELECT {source}, {', '.join(ours)}, {LEFT_OUT} AS {UNAVAILABLE} {_ROWS}"
