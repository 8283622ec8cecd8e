"""The native engine without Spark: a decoder from records in memory, and an empty target table that delta-rs makes."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import ArrayType, PrimitiveType, StructType

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordKind, RecordLayout, TopicShape
from airflow_cdc.model.columns import COMMITTED_AT, MICROBATCH, OFFSET, OP, PARTITION, POSITION, VALUE_POSITIONS
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.pipeline.apply.native.mark_rows import copy_and_add, find_marks, mark_and_add
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.decode.types.connect_types import cast_to
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from airflow_cdc.pipeline.target.target_table import KEYS_PROPERTY
from tests.support.events import TOPIC, Record

_NUMBER, _LONG, _TEXT = PrimitiveType("decimal(38,0)"), PrimitiveType("long"), PrimitiveType("string")
_POSITION = StructType([Field("commit", _NUMBER), Field("change", _NUMBER), Field("serial", _LONG)])
_KNOWN = StructType([Field("column", _TEXT), Field("position", _POSITION), Field("known", PrimitiveType("boolean"))])
COLUMNS = Schema(
    [
        Field("id", _LONG),
        Field("name", _TEXT),
        Field(POSITION, _POSITION),
        Field(OP, _TEXT),
        Field(COMMITTED_AT, PrimitiveType("timestamp")),
        Field(MICROBATCH, _LONG),
        Field(PARTITION, PrimitiveType("integer")),
        Field(OFFSET, _LONG),
        Field(VALUE_POSITIONS, ArrayType(_KNOWN)),
    ]
)


def new_table(uri: str, options: dict[str, str] | None = None) -> DeltaTable:
    """Create a table of ``id`` and ``name``, with our columns."""
    properties = {KEYS_PROPERTY: '["id"]'}
    return DeltaTable.create(uri, COLUMNS, configuration=properties, raise_if_key_not_exists=False, storage_options=options)


def merge_rows(uri: str, rows: Any, keys: Sequence[str], *, of: CommitOf) -> None:
    """Merge row changes into the table as it is now: by deletion vectors, where it has them."""
    table = DeltaTable(uri)
    write = mark_and_add if table.metadata().configuration.get("delta.enableDeletionVectors") == "true" else copy_and_add
    write(table, uri, find_marks(table, uri, rows, keys=keys), rows=rows, keys=keys, of=of)


def rows_in(table: DeltaTable) -> dict[int, str]:
    """Return the names by id."""
    found = pa.table(table.to_pyarrow_table()).to_pylist()
    assert len(found) == len({row["id"] for row in found})
    return {row["id"]: row["name"] for row in found}


def bytes_of(path: str, records: Sequence[Record]) -> bytes:
    """Return records as JSON lines, compressed as the file's name says."""
    text = "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records).encode()
    if path.endswith(".zst"):
        return pa.compress(text, codec="zstd", asbytes=True)  # type: ignore[no-any-return]
    return gzip.compress(text) if path.endswith(".gz") else text


def decoder_of(
    files: Mapping[str, Sequence[Record]], columns: Mapping[str, str] | None = None, *, keys: tuple[str, ...] = ("id",)
) -> Decoder:
    """Return the decoder of files of SQL Server's events.

    :param files: by path below the archive's root.
    :param columns: Spark SQL types by name; none: of ``id`` and ``name``.
    """
    types = columns or {"id": "BIGINT", "name": "STRING"}
    return Decoder(
        TOPIC,
        [ArchivedFile(path, 1, TOPIC) for path in files],
        [shape for path, records in files.items() for shape in _shapes(path, records)],
        SourceColumns({name: cast_to(kind) for name, kind in types.items()}, keys),
        CONNECTORS["sqlserver"],
    )


def _shapes(path: str, records: Sequence[Record]) -> list[TopicShape]:
    kinds = Counter(record["value"]["op"] if record["value"] else RecordKind.TOMBSTONE.value for record in records)
    shapes = {kind: '["id","name"]' if kind != RecordKind.TOMBSTONE.value else None for kind in kinds}
    return [
        TopicShape(path, TOPIC, RecordLayout.RECORD, kind, "sqlserver", 0, '["id"]', shapes[kind], True, count, 0, 0)
        for kind, count in kinds.items()
    ]


def entries_of(row: Mapping[str, Any]) -> list[tuple[str, int | None, bool]]:
    """Return column, commit and whether the value is known, of each value that is older than its row."""
    # The commit's number is the last part of an LSN.
    return [
        (each["column"], each["position"] and int(each["position"]["commit"]) % 2**32, each["known"])
        for each in row.get(VALUE_POSITIONS) or ()
    ]


def changes_of(rows: Any) -> list[tuple[int, str | None, str]]:
    """Return id, name and operation of folded rows, by id."""
    return sorted((row["id"], row["name"], row[OP]) for row in rows.to_pylist())
