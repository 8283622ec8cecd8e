"""Merge and append by delta-rs, with the transaction identifier and the metadata of Spark's commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.columns import (
    BEGAN,
    CHANGE_LOG_COLUMNS,
    COMMITTED_AT,
    DELETED,
    DELETED_AT,
    DEPENDS,
    MICROBATCH,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    VALUE_POSITIONS,
)
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.apply.native.fold_sql import MARKED_AT, OF_VERSIONS
from airflow_cdc.pipeline.native.arrow_rows import in_schema
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import name
from airflow_cdc.pipeline.target.commit_natively import CommitOf, one_commit
from airflow_cdc.pipeline.target.open_natively import reach, without_answers

_WRITTEN = (POSITION, OP, COMMITTED_AT, PARTITION, OFFSET, MICROBATCH, VALUE_POSITIONS)
FLAGS = (DELETED, DELETED_AT)
"""Columns of row changes of a table that keeps deleted rows."""
_SELDOM = {"delta.checkpointInterval": "100"}
WRITABLE_FEATURES = frozenset({"appendOnly", "invariants", "deletionVectors", "timestampNtz", "v2Checkpoint"})
"""Delta features of whose tables delta-rs commits a merge. It opens tables of others, such as type widening, and refuses the commit."""


def may_write(table: Any) -> bool:
    """Return whether delta-rs writes a table of these features."""
    return set(table.protocol().writer_features or ()) <= WRITABLE_FEATURES


def rows_for(table: Any, changes: Any, columns: Sequence[str], *, microbatch: int) -> Any:
    """Return row changes with the target's columns and types, and behind them those of row versions, where the changes have them
    (:data:`~airflow_cdc.pipeline.apply.native.fold_sql.OF_VERSIONS`).

    :param changes: Arrow table, see :class:`airflow_cdc.pipeline.apply.native.fold.NativeChanges`.
    """
    import pyarrow as pa

    ours = [*_WRITTEN, *(FLAGS if DELETED in changes.column_names else ())]
    rows = _in_columns_of(table, changes, [*columns, *ours], microbatch=microbatch)
    if OP_IF_ABSENT not in changes.column_names:
        return rows
    position = rows.schema.field(POSITION).type
    kinds = {OP_IF_ABSENT: pa.string(), BEGAN: position, DEPENDS: pa.bool_(), MARKED_AT: position}
    for each in OF_VERSIONS:
        rows = rows.append_column(each, changes.column(each).cast(kinds[each]))
    return rows


def events_for(table: Any, events: Any, columns: Sequence[str], *, microbatch: int) -> Any:
    """Return events with the columns and types of a change log.

    :param events: Arrow table, see :class:`airflow_cdc.pipeline.apply.native.all_events.NativeEvents`.
    """
    return _in_columns_of(table, events, [*columns, *CHANGE_LOG_COLUMNS], microbatch=microbatch)


def _in_columns_of(table: Any, rows: Any, names: Sequence[str], *, microbatch: int) -> Any:
    import pyarrow as pa

    schema = pa.schema(table.schema().to_arrow())
    constants: dict[str, Any] = {MICROBATCH: microbatch}
    if VALUE_POSITIONS not in rows.column_names:
        constants[VALUE_POSITIONS] = None
    return in_schema(rows, pa.schema([pa.field(each, schema.field(each).type) for each in names]), constants=constants)


def operations_of(rows: Any) -> tuple[str, str]:
    """Return what row changes do, in the SQL of DuckDB and delta-rs: to a key that the table holds, and to one that it does not hold.

    :param rows: from :func:`rows_for`. A deleted row that stays, flagged, is one that is written.
    """
    if DELETED in rows.column_names:
        return "'u'", "'u'"
    return OP, OP_IF_ABSENT if OP_IF_ABSENT in rows.column_names else OP


def is_upsert(operation: str) -> str:
    """Return the SQL, of DuckDB and delta-rs alike, that is true where a row is left; ``operation``: SQL."""
    return f"{operation} NOT IN ('d', '{KEEP}')"


def merge_rows(table: Any, rows: Any, keys: Sequence[str], *, of: CommitOf) -> Mapping[str, Any]:
    """Make one MERGE commit of row changes and return delta-rs's counts.

    :raises ConcurrentRunError: when another run committed first.
    :raises CommitFailedError: when delta-rs does not write the table's features (:func:`may_write`).
    """
    held, absent = (each if each.startswith("'") else f"s.{name(each)}" for each in operations_of(rows))
    values = {name(column): f"s.{name(column)}" for column in rows.column_names if column not in OF_VERSIONS}
    merge = table.merge(
        rows,
        " AND ".join(f"t.{name(key)} = s.{name(key)}" for key in keys),
        source_alias="s",
        target_alias="t",
        # Otherwise no file is skipped by the range of its keys.
        streamed_exec=False,
        **_written_with(of),
    )
    merge = merge.when_matched_delete(f"{held} = 'd'").when_matched_update(values, is_upsert(held))
    merge = merge.when_not_matched_insert(values, is_upsert(absent))
    with one_commit(table, of):
        counts: Mapping[str, Any] = merge.execute()
    return counts


def append_rows(table: Any, rows: Any, *, of: CommitOf) -> None:
    """Append rows to a table in one commit.

    :param rows: with the table's columns.
    :raises ConcurrentRunError: when another run committed first.
    """
    from deltalake import write_deltalake

    with one_commit(table, of):
        write_deltalake(table, rows, mode="append", **_written_with(of))


def _written_with(of: CommitOf) -> dict[str, Any]:
    """Return how delta-rs writes files, and the transaction identifier and metadata of its only attempt to commit."""
    from deltalake import CommitProperties, Transaction, WriterProperties

    properties = CommitProperties(
        custom_metadata={"userMetadata": of.metadata}, app_transactions=[Transaction(of.application, of.version)], max_commit_retries=0
    )
    return {"writer_properties": WriterProperties(compression="ZSTD"), "commit_properties": properties}


def _markers(rows: Any, keys: Sequence[str]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = rows.filter(pc.equal(rows.column(OP), "d"))
    count = deleted.num_rows
    markers = deleted.select([*keys, POSITION, OP, PARTITION, OFFSET])
    markers = markers.append_column(BEGAN, pa.nulls(count, deleted.schema.field(POSITION).type))
    markers = markers.append_column(DEPENDS, pa.repeat(pa.scalar(value=False), count))
    return markers.append_column(MICROBATCH, deleted.column(MICROBATCH))


def _markers_of_versions(rows: Any, keys: Sequence[str]) -> Any:
    stays = f"{OP} = '{KEEP}' OR ({OP} <> 'd' AND {POSITION}.commit < {MARKED_AT}.commit)"
    values = [*map(name, keys), f"{MARKED_AT} AS {POSITION}", f"if({stays}, '{KEEP}', 'd') AS {OP}", PARTITION, OFFSET, BEGAN]
    with connect_duckdb(threads=1) as connection:
        connection.register("changes", rows)
        markers = connection.sql(
            f"SELECT {', '.join(values)}, {DEPENDS} AND NOT ({stays}) AS {DEPENDS}, {MICROBATCH} FROM changes WHERE {OP} = 'd' OR {DEPENDS}"
        ).to_arrow_table()
        connection.unregister("changes")
    return markers.cast(rows.select(markers.column_names).schema)


def append_markers(uri: str, rows: Any, keys: Sequence[str]) -> None:
    """Append the delete markers of row changes (:func:`airflow_cdc.pipeline.record.delete_markers.markers_of`).

    :raises NotReached: where delta-rs is not used.
    """
    from deltalake import write_deltalake

    markers = _markers_of_versions(rows, keys) if OP_IF_ABSENT in rows.column_names else _markers(rows, keys)
    path, options = reach(uri)
    with without_answers(uri):
        write_deltalake(path, markers, mode="append", schema_mode="merge", configuration=_SELDOM, storage_options=options)
