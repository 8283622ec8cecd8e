"""Row changes that are folded natively and merged by Spark: staged as Parquet, with the columns of Spark's own fold.

The frame is that of :func:`airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key`, in which no key has a hazard.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from airflow_cdc.model.columns import (
    ABSENT,
    BEGAN,
    COMMITTED_AT,
    DEPENDS,
    MOVED,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    PASSED,
    POSITION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.model.errors import first_line
from airflow_cdc.pipeline.apply.native.fold import NativeFold
from airflow_cdc.pipeline.apply.native.fold_sql import CHANGES, Fold
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.decode.decode_events import MOVED_TYPE, VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.microbatch.count_events import Staged
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.native.arrow_rows import in_schema
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import CONFLICTS, EVENTS, HAZARD, REACH, REACH_MEMBERS, READS, REDELIVERED
from airflow_cdc.pipeline.spark.sql import struct_type
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.delta_types import delta_field
from airflow_cdc.pipeline.target.key_range import key_ranges

_REACH = {
    "first": "first_position",
    "last": "last_position",
    "first_offset": "first_offset",
    "last_offset": "last_offset",
    # Of connectors whose positions do not distinguish transactions, which are Spark's.
    "first_transaction": "CAST(NULL AS VARCHAR)",
    "last_transaction": "CAST(NULL AS VARCHAR)",
    "began": f"if(false, {POSITION}, NULL)",
    "deletes": "deletes",
    "writes": "writes",
    "depends": "false",
    "expects": "expects",
    "passed": f"""if(false, [{{position: {POSITION}, "partition": {PARTITION}, "offset": {OFFSET}, began: {POSITION}}}], NULL)""",
}
"""SQL over the fold's rows, by member of ``__cdc_reach``."""
_PLACE = {"position": ("position", POSITION_TYPE), PARTITION: ("lane", "INT")}
_NEWEST = {
    **_PLACE,
    "last": ("last", "BOOLEAN"),
    "offset": ("offset", "BIGINT"),
    "initial": ("initial", "BOOLEAN"),
    "first": ("first", "BOOLEAN"),
}
"""Members of ``__cdc_reads``, alike; the SQL is a member of the fold's."""


def _struct(members: Mapping[str, tuple[str, str]]) -> str:
    return struct_type({member: kind for member, (_, kind) in members.items()})


_OURS = {
    POSITION: POSITION_TYPE,
    OP: "STRING",
    OP_IF_ABSENT: "STRING",
    COMMITTED_AT: "TIMESTAMP",
    PARTITION: "INT",
    OFFSET: "BIGINT",
    UNAVAILABLE: "ARRAY<STRING>",
    ABSENT: "ARRAY<STRING>",
    VALUE_POSITIONS: VALUE_POSITIONS_TYPE,
    MOVED: MOVED_TYPE,
    EVENTS: "BIGINT",
    REDELIVERED: "BIGINT",
    CONFLICTS: "INT",
    REACH: struct_type(REACH_MEMBERS),
    READS: f"STRUCT<newest: {_struct(_NEWEST)}, oldest: {_struct(_PLACE)}>",
    HAZARD: "INT",
}
_NULL = (UNAVAILABLE, ABSENT, VALUE_POSITIONS, MOVED, READS)
"""Columns that are NULL in all rows unless the query has them."""


@dataclass(frozen=True)
class StagedFold:
    """A fold's row changes, staged for Spark."""

    changes: DataFrame
    joins_events: bool
    """As :attr:`airflow_cdc.pipeline.apply.native.fold.NativeFold.joins_events`."""
    staged: Staged | None = None
    """Counts, if nothing voids any."""


def changes_for_spark(how: Fold) -> str:
    """Return the query of the fold's rows (:data:`~airflow_cdc.pipeline.apply.native.fold_sql.CHANGES`) for :func:`stage_changes`."""
    source = ", ".join(f"{of_source(column)} AS {name(column)}" for column in how.columns)
    found = _REACH | ({"began": BEGAN, "depends": DEPENDS, "passed": PASSED} if how.has_versions else {})
    reach = ", ".join(f"{name(member)} := {value}" for member, value in found.items())
    ours = [POSITION, OP, OP_IF_ABSENT if how.has_versions else f"{OP} AS {OP_IF_ABSENT}", COMMITTED_AT, PARTITION, OFFSET]
    ours += [UNAVAILABLE, VALUE_POSITIONS] if how.leaves_values else []
    ours += [f"events AS {EVENTS}", f"copies AS {REDELIVERED}", f"conflicts AS {CONFLICTS}", f"struct_pack({reach}) AS {REACH}"]
    ours += [f"struct_pack(newest := {_read('newest_read', _NEWEST)}, oldest := {_read('oldest_read', _PLACE)}) AS {READS}"] * how.has_reads
    return f"SELECT {source}, {', '.join(ours)}, 0 AS {HAZARD} FROM {CHANGES}"


def _read(found: str, members: Mapping[str, tuple[str, str]]) -> str:
    packed = ", ".join(f"{name(member)} := {found}.{name(value)}" for member, (value, _) in members.items())
    return f"CASE WHEN {found} IS NOT NULL THEN struct_pack({packed}) END"


def count_for_spark(fold: NativeFold, ranged: Mapping[str, str]) -> Staged:
    """Return the counts of a fold's rows as :func:`airflow_cdc.pipeline.microbatch.count_events.count_staged` gives them, where nothing is
    void.

    :param ranged: types of the key columns whose range is requested.
    """
    values = {f"{end} {key}": f"{end}({of_source(key)})" for key in ranged for end in ("min", "max")}
    if fold.how.leaves_values:
        values[UNAVAILABLE] = _distinct(UNAVAILABLE)
        values[VALUE_POSITIONS] = _distinct(f"list_transform({VALUE_POSITIONS}, lambda entry: entry.column)")
    if not values:
        return fold.staged
    selected = ", ".join(f"{value} AS {name(column)}" for column, value in values.items())
    (row,) = fold.read(f"SELECT {selected} FROM {CHANGES}").to_pylist()
    left_out, older = (tuple(row.get(column) or ()) for column in (UNAVAILABLE, VALUE_POSITIONS))
    return replace(fold.staged, left_out=left_out, from_older_events=older, ranges=key_ranges(ranged, [row]))


def _distinct(names: str) -> str:
    """Return the SQL of the distinct names over all rows, in order; ``names``: of a list in each row, NULL for none."""
    return f"list_sort(list_distinct(flatten(list({names}) FILTER ({names} IS NOT NULL))))"


def stage_changes(run: MicrobatchRun, rows: Iterable[Any], types: Mapping[str, str]) -> DataFrame:
    """Write row changes to the staging folder, and return them as Spark reads them there.

    :param rows: Arrow's record batches of :func:`changes_for_spark`.
    :param types: Spark SQL types of the source's columns.
    :raises HandedOver: for a type that only Spark parses, and where the folder cannot be written from here.
    """
    fields = fields_of(types)
    folder = run.new_staging_folder("latest")
    try:
        write_changes(rows, fields, folder=run.staged_at(folder), file="0.parquet")
    except OSError as error:
        raise HandedOver(f"the staging folder cannot be written from the driver: {first_line(error)}") from error
    return run.read_staged([folder], StructType.fromJson(fields))


def fields_of(types: Mapping[str, str]) -> dict[str, Any]:
    """Return the frame's columns in the JSON that Spark and delta-rs read alike.

    :raises HandedOver: for a type that only Spark parses.
    """
    try:
        return {"type": "struct", "fields": [delta_field(column, kind) for column, kind in {**types, **_OURS}.items()]}
    except ValueError as error:
        raise HandedOver(str(error)) from error


def write_changes(rows: Iterable[Any], fields: Mapping[str, Any], *, folder: str, file: str) -> None:
    """Write row changes as a Parquet file, each batch as a group.

    :param rows: Arrow's record batches of :func:`changes_for_spark`.
    :param fields: from :func:`fields_of`.
    :param folder: URI; made where it is not there.
    :raises OSError: where it cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from deltalake import Schema

    schema = pa.schema(Schema.from_json(json.dumps(fields)).to_arrow())
    fs, root = file_system(folder)
    fs.makedirs(root, exist_ok=True)
    # Read twice and then removed, as what Spark stages.
    with fs.open(f"{root}/{file}", "wb") as content, pq.ParquetWriter(content, schema, compression="lz4", use_dictionary=False) as writer:
        for batch in rows:
            absent = {column: None for column in _NULL if column not in batch.schema.names}
            writer.write_table(in_schema(batch, schema, constants=absent))
