"""The files of a Delta table as a relation of DuckDB, with the table's column names and types.

delta-rs reads the log alone. Its own query engine takes an INT96 timestamp, which is what Spark writes, for nanoseconds in 64 bits: years
before 1677 and after 2262 come out as other years. DuckDB reads them right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import name, text, texts
from airflow_cdc.pipeline.target.add_actions import UnreadableLogError, read_adds
from airflow_cdc.pipeline.target.deletion_vectors import UnreadableVectorError, has_vectors, numbers_of, read_vector
from airflow_cdc.pipeline.target.delta_types import physical_name
from airflow_cdc.pipeline.target.table_files import TableFiles, UnreadableError

if TYPE_CHECKING:
    from pyroaring import BitMap64

_TYPES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp_ntz": "TIMESTAMP",
}
"""DuckDB's types by Delta's. A file may hold a narrower one. An instant stays as its file has it: with a zone, or in UTC without one."""
_DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
PLACES = "filename = '__cdc_file', file_row_number = true"
"""Options of a scan whose rows have their places."""
WITHOUT_DELETED = " ANTI JOIN deleted ON __cdc_file = deleted.file AND file_row_number = deleted.row"
"""SQL that leaves the deleted rows (:func:`register_deleted`) out of such a scan."""


def query(uri: str, delta: Any, fields: Sequence[Mapping[str, Any]], statement: str) -> Any:
    """Return the result of a query as an Arrow table.

    :param uri: of the table.
    :param delta: delta-rs's table, with at least one file.
    :param fields: columns, in the JSON of its schema.
    :param statement: SQL over ``cdc``, the rows of the table.
    :raises UnreadableError: where DuckDB would read other rows.
    :raises duckdb.Error: where it cannot read them.
    """
    with connect_duckdb(threads=4) as connection:
        create_view(connection, uri, delta, fields=fields)
        return connection.sql(statement).to_arrow_table()


def create_view(
    connection: Any, uri: str, delta: Any, *, fields: Sequence[Mapping[str, Any]], without: Mapping[str, BitMap64] | None = None
) -> None:
    """Let a connection of DuckDB read the rows of a table as ``cdc``, in place of another one that it has read so. Parameters and errors
    are those of :func:`query`.

    :param without: some of the files, by path, with the numbers of the rows that are left out; None: all rows of the table.
    """
    files = TableFiles(uri, delta)
    if delta.metadata().partition_columns:
        raise UnreadableError("it is partitioned, and its files lack the columns of the partitions")
    # Files with and without a zone make one column: DuckDB takes those without as of the session's.
    connection.execute("SET TimeZone = 'UTC'")
    files.register(connection)
    lacks_rows = without is not None or has_vectors(delta)
    options = "union_by_name = true, hive_partitioning = false" + (f", {PLACES}" if lacks_rows else "")
    listed = files.names if without is None else [files.name_at(path) for path in without]
    connection.execute(f"CREATE OR REPLACE TEMP VIEW files AS SELECT * FROM read_parquet([{texts(listed)}], {options})")
    held = {row[0] for row in connection.execute("DESCRIBE files").fetchall()}
    columns = ", ".join(f"{_column(field, held)} AS {name(field['name'])}" for field in fields)
    if lacks_rows:
        register_deleted(connection, _deleted(uri, delta, files) if without is None else _named(files, without))
    connection.execute(f"CREATE OR REPLACE TEMP VIEW cdc AS SELECT {columns} FROM files{WITHOUT_DELETED if lacks_rows else ''}")


def _column(field: Mapping[str, Any], held: set[str]) -> str:
    """Return the SQL of a column. A file of before the column was added lacks it; all of them may."""
    physical, kind = physical_name(field), field["type"]
    if physical not in held:
        return f"CAST(NULL AS {_cast_to(kind) or 'TIMESTAMP'})" if isinstance(kind, str) else "NULL"
    value = _renamed(name(physical), kind)
    target = _cast_to(kind)
    return f"CAST({value} AS {target})" if target else value


def _cast_to(kind: Any) -> str | None:
    return _TYPES.get(kind, kind if _DECIMAL.fullmatch(kind) else None) if isinstance(kind, str) else None


def _renamed(value: str, kind: Any, depth: int = 0) -> str:
    """Return the SQL of a value whose structs have the table's names; with column mapping the files have others."""
    if isinstance(kind, str) or not _is_mapped(kind):
        return value
    item = f"item{depth}"
    if kind["type"] == "array":
        return f"[{_renamed(item, kind['elementType'], depth + 1)} FOR {item} IN {value}]"
    if kind["type"] == "map":
        raise UnreadableError("a map of structs has mapped columns")
    parts = (
        f"{name(part['name'])} := {_renamed(f'struct_extract({value}, {text(physical_name(part))})', part['type'], depth)}"
        for part in kind["fields"]
    )
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(parts)}) END"


def _is_mapped(kind: Any) -> bool:
    """Return whether a type has a struct with other names in the files."""
    if isinstance(kind, str):
        return False
    if kind["type"] == "struct":
        return any(physical_name(part) != part["name"] or _is_mapped(part["type"]) for part in kind["fields"])
    return any(_is_mapped(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind)


def register_deleted(connection: Any, deleted: Iterable[tuple[str, Any]]) -> None:
    """Make the table of deleted rows, which :data:`WITHOUT_DELETED` leaves out.

    :param deleted: names of files, each with the Arrow array of the numbers of its deleted rows, from 0 on.
    """
    import pyarrow as pa

    connection.execute("CREATE OR REPLACE TEMP TABLE deleted (file VARCHAR, row BIGINT)")
    for file, rows in deleted:
        connection.register("of_file", pa.table({"row": rows}))
        connection.execute("INSERT INTO deleted SELECT ?, row FROM of_file", [file])
        connection.unregister("of_file")


def _deleted(uri: str, delta: Any, files: TableFiles) -> Iterator[tuple[str, Any]]:
    """Yield the names of files with the numbers of their deleted rows."""
    try:
        vectors = {path: read_vector(uri, action.get("deletionVector")) for path, action in read_adds(uri, delta).items()}
    except (UnreadableLogError, UnreadableVectorError):
        yield from _deleted_by_delta_rs(delta, files)
        return
    yield from _named(files, vectors)


def _named(files: TableFiles, rows_by_path: Mapping[str, BitMap64]) -> Iterator[tuple[str, Any]]:
    yield from ((files.name_at(path), numbers_of(rows)) for path, rows in rows_by_path.items() if rows)


def _deleted_by_delta_rs(delta: Any, files: TableFiles) -> Iterator[tuple[str, Any]]:
    # It does not find those of a table on an object store whose name it has to encode.
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in pa.table(delta.deletion_vectors()).to_batches():
        for file, kept in zip(batch.column("filepath").to_pylist(), batch.column("selection_vector"), strict=True):
            yield files.name_of(file), pc.indices_nonzero(pc.invert(kept.values))
