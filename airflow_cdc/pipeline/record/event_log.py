"""Event log: all events of a flow that keeps versions, with the columns needed to cut a key's versions anew.

A Delta table beside the flow's state, appended to before the merge. A crash between the two is harmless: the log holds what the archive
holds, and the resumed microbatch finds its events there.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    ABSENT,
    CARRIED,
    COMMITTED_AT,
    CUT,
    LEFT_OUT,
    MICROBATCH,
    OFFSET,
    OLD_KEY,
    OP,
    ORDINAL,
    PARTITION,
    POSITION,
    RAW,
    RAW_KEY,
    TABLE,
    TRANSACTION,
    UNAVAILABLE,
)
from airflow_cdc.model.operation import VOID
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE, ORDINAL_TYPE, Decoder
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.reconcile.trace_moved_rows import FROM, numbered
from airflow_cdc.pipeline.record.append_once import append_once, read_appended
from airflow_cdc.pipeline.spark import sql

CUT_TYPE = f"STRUCT<snapshot: {POSITION_TYPE}, last_offsets: MAP<INT, BIGINT>>"
"""For the mark (operation ``v``) of a complete snapshot: the snapshot, and the offset of its last read by Kafka partition."""
NO_PARTITION = -1
"""Stands in ``last_offsets`` for an unknown partition."""
_HEADER = "__cdc_header"
_NO_NAMES = "CAST(array() AS ARRAY<STRING>)"


def logged_rows(events: DataFrame, decoder: Decoder, types: Mapping[str, str], microbatch: int) -> DataFrame:
    """Return good events that were decoded with images as rows of the log.

    :param types: Spark SQL types of the target's columns.
    """
    values = [F.col(sql.name(name)).cast(types[name]).alias(name) for name in decoder.columns.types]
    others = [name for name in decoder.columns.types if name not in decoder.columns.keys]
    names = sql.texts(others)
    left_out = f"coalesce({UNAVAILABLE}, {_NO_NAMES})"
    # A read belongs to no transaction. Without a transaction identifier, each commit is one.
    commit = f"CAST({POSITION}.commit AS STRING)"
    transaction = f"if({OP} = 'r', concat('read ', {commit}), coalesce({TRANSACTION}, {commit}))"
    ours: dict[str, Column] = {
        POSITION: F.col(POSITION),
        OP: F.col(OP),
        TRANSACTION: F.expr(transaction),
        COMMITTED_AT: F.col(COMMITTED_AT),
        PARTITION: F.col(PARTITION),
        OFFSET: F.col(OFFSET),
        ORDINAL: F.col(ORDINAL),
        CARRIED: F.expr(f"array_except({names}, {left_out})"),
        LEFT_OUT: F.expr(f"array_except({left_out}, coalesce({ABSENT}, {_NO_NAMES}))"),
        BEFORE: _image(decoder, BEFORE),
        AFTER: _image(decoder, AFTER),
        MICROBATCH: F.lit(microbatch).cast("bigint"),
        CUT: F.lit(None).cast(CUT_TYPE),
        TABLE: F.col(TABLE) if TABLE in events.columns else F.lit(None).cast("string"),
    }
    if decoder.columns.types:
        ours[OLD_KEY] = _old_key(decoder, types)
        ddl = ", ".join(f"{sql.name(key)} STRING" for key in decoder.columns.keys)
        # A decimal's rule inspects the record's text for the encoding; here that text is the header's.
        events = events.withColumns({RAW: F.col(OLD_KEY), RAW_KEY: F.col(OLD_KEY), _HEADER: F.from_json(OLD_KEY, ddl)})
    return events.select(*values, *[column.alias(name) for name, column in ours.items()])


def _image(decoder: Decoder, name: str) -> Column:
    """Return the hashes of an image by column, as later events may have other columns."""
    return F.expr(f"map_from_arrays({sql.texts(decoder.hashed_columns)}, {name})")


def _old_key(decoder: Decoder, types: Mapping[str, str]) -> Column:
    keys = decoder.columns.keys
    in_header = [
        F.expr(decoder.columns.types[key].read(f"{_HEADER}.{sql.name(key)}")).cast(types[key]).alias(name)
        for key, name in zip(keys, numbered(FROM, keys), strict=True)
    ]
    return F.when(F.col(_HEADER).isNotNull(), F.struct(*in_header))


def mark_of(snapshot: Snapshot, reads: DataFrame, microbatch: int) -> DataFrame:
    """Return the marks of a proven snapshot, one per table that it read: earlier rows that it did not read are gone.

    :param reads: its reads: their newest commit time is the latest at which these rows can have gone.
    """
    last = {NO_PARTITION if name == UNKNOWN_PARTITION else int(name): offset for name, offset in (snapshot.last_offsets or {}).items()}
    offsets = ", ".join(f"{partition}, {offset}L" for partition, offset in last.items())
    cut = position_literal(snapshot.cut) if snapshot.cut else "NULL"
    marked = f"named_struct('snapshot', {position_literal(snapshot.position)}, 'last_offsets', map({offsets}))"
    return reads.agg(F.max(COMMITTED_AT).alias(COMMITTED_AT)).selectExpr(
        f"{cut} AS {POSITION}",
        f"'{VOID}' AS {OP}",
        f"'snapshot {snapshot.position}' AS {TRANSACTION}",
        COMMITTED_AT,
        f"CAST({microbatch} AS BIGINT) AS {MICROBATCH}",
        f"CAST({marked} AS {CUT_TYPE}) AS {CUT}",
        f"explode({sql.texts(snapshot.tables) if snapshot.tables else 'array(CAST(NULL AS STRING))'}) AS {TABLE}",
    )


def is_read_of(snapshot: Snapshot) -> str:
    """Return the SQL that is true for the reads of a snapshot."""
    return f"({OP} = 'r' AND {POSITION} = {position_literal(snapshot.position)})"


def read_log(spark: SparkSession, uri: str, *, files_are_in_order: bool) -> DataFrame | None:
    """Return the log's rows, None if there are none yet.

    Rows of earlier versions lack members of their ordinal; new ones stand last in the log's own type, and would not order events.

    :param files_are_in_order: whether the names of files without offsets give their order, by now.
    """
    log = read_appended(spark, uri)
    if log is None or ORDINAL not in log.columns:
        return log
    held = log.select(f"{ORDINAL}.*").columns
    found = {name: f"{ORDINAL}.{name}" if name in held else "NULL" for name in ("offset", "file", "block", "row")}
    run = "NULL" if files_are_in_order else found["file"]
    members = f"'offset', {found['offset']}, 'run', {run}, 'file', {found['file']}, 'block', {found['block']}, 'row', {found['row']}"
    return log.withColumn(ORDINAL, F.expr(f"CAST(if({ORDINAL} IS NULL, NULL, named_struct({members})) AS {ORDINAL_TYPE})"))


def append_to_log(spark: SparkSession, uri: str, rows: DataFrame, *, application: str, microbatch: int) -> None:
    """Append a microbatch's rows to the log, once."""
    append_once(spark, rows, uri, application=f"events:{application}", version=microbatch)
