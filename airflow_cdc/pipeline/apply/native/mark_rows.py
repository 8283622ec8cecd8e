"""Merge without Spark: rows with the keys of changes are found, and leave the table; one file of new rows is added.

In a table with deletion vectors they are marked as deleted where they lie, as by Spark's MERGE. Other tables are small: what is left of
their files is copied into the new one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_cdc.model.columns import OP, OP_IF_ABSENT
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.apply.native.bounds import touched_files
from airflow_cdc.pipeline.apply.native.fold_sql import OF_VERSIONS
from airflow_cdc.pipeline.apply.native.merge import is_upsert, operations_of
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb, threads_for
from airflow_cdc.pipeline.native.duckdb_sql import name, texts
from airflow_cdc.pipeline.target.add_actions import Action, UnreadableLogError, adds_of, statistics_of
from airflow_cdc.pipeline.target.commit_natively import CommitOf, commit_rows
from airflow_cdc.pipeline.target.deletion_vectors import UnreadableVectorError, bitmap, has_vectors, numbers_of, read_vector, write_vectors
from airflow_cdc.pipeline.target.file_statistics import to_json
from airflow_cdc.pipeline.target.parquet_scan import PLACES, WITHOUT_DELETED, create_view, register_deleted
from airflow_cdc.pipeline.target.table_files import TableFiles, UnreadableError
from airflow_cdc.pipeline.target.write_rows import add_rows, rows_in

if TYPE_CHECKING:
    from pyroaring import BitMap64

_OF_REMOVED = ("path", "partitionValues", "size", "deletionVector", "tags")


class UnmarkableError(ValueError):
    """Raised before anything is written, where the rows of the changes' keys cannot be found here; its text is the reason."""


@dataclass(frozen=True, kw_only=True)
class MarkedFile:
    """A file some of whose rows leave the table."""

    action: Action
    """Its ``add``; of a table without deletion vectors, without statistics."""
    dead: BitMap64
    """All of its deleted rows, those of before included."""
    updated: int
    deleted: int

    @property
    def is_left(self) -> bool:
        """Whether any row of the file is left."""
        return len(self.dead) < int(statistics_of(self.action)["numRecords"])

    def actions(self, vector: Mapping[str, Any] | None = None) -> Iterator[dict[str, Action]]:
        """Yield the actions that give the file another deletion vector; None: that remove it."""
        old = {each: self.action[each] for each in _OF_REMOVED if each in self.action}
        yield {"remove": {**old, "deletionTimestamp": time.time_ns() // 1_000_000, "dataChange": True, "extendedFileMetadata": True}}
        if vector is not None:
            # The range of what is left may be narrower.
            statistics = to_json({**statistics_of(self.action), "tightBounds": False})
            yield {"add": {**self.action, "dataChange": True, "stats": statistics, "deletionVector": dict(vector)}}


@dataclass(frozen=True)
class Marks:
    """The rows of a table that row changes replace or delete."""

    of_version: int
    """The table's version that they were found in."""
    files: Mapping[str, MarkedFile]
    """By path below the table."""
    held: Any = None
    """Arrow table of the keys that the table holds, of those changes that leave a row only if it does, or only if it does not."""


OF_NEW_TABLE = Marks(-1, {})
"""Those of a table that is yet to be made."""


def find_marks(table: Any, uri: str, changes: Any, *, keys: Sequence[str]) -> Marks:
    """Return the rows that have the changes' keys.

    :param table: delta-rs's table (:func:`airflow_cdc.pipeline.target.writable.why_not_written`).
    :param changes: Arrow table with the keys and what :func:`airflow_cdc.pipeline.apply.native.merge.operations_of` asks for: ``d`` where
        the row is deleted, and ``k`` where it is kept. At most one row a key.
    :raises UnmarkableError: where the table's files are not read here, or hold a key twice.
    :raises OSError: when the store fails.
    """
    import duckdb

    touched = touched_files(table, changes, keys)
    paths = [unquote(str(file["path"])) for file in touched]
    if not paths:
        return Marks(int(table.version()), {})
    try:
        adds, files = adds_of(uri, table), TableFiles(uri, table)
        dead = {path: read_vector(uri, adds[path].get("deletionVector")) for path in paths}
        with _connected(changes, files_bytes=sum(file["size_bytes"] for file in touched)) as connection:
            files.register(connection)
            connection.execute(
                f"CREATE TEMP TABLE wanted AS SELECT {', '.join(map(name, keys))}, {operations_of(changes)[0]} AS {OP} FROM changes"
            )
            matched = _match(connection, {files.name_at(path): path for path in paths}, dead, keys=keys)
            held = _held(connection, changes, keys=keys)
    except (UnreadableError, UnreadableLogError, UnreadableVectorError, duckdb.Error) as error:
        raise UnmarkableError(first_line(error)) from error
    marked = {
        path: MarkedFile(action=adds[path], dead=dead[path] | each.rows, updated=each.updated, deleted=each.deleted)
        for path, each in matched.items()
    }
    if has_vectors(table) and any("numRecords" not in statistics_of(each.action) for each in marked.values()):
        raise UnmarkableError("a file of the table has no number of rows in the log")
    return Marks(int(table.version()), marked, held)


def mark_and_add(table: Any, uri: str, marks: Marks, *, rows: Any, keys: Sequence[str], of: CommitOf) -> None:
    """Make one MERGE commit of row changes, by which old rows are marked by deletion vectors.

    :param table: delta-rs's table, of the version of the marks, with deletion vectors.
    :param marks: of the same changes.
    :param rows: Arrow table with the table's columns and types; ``__cdc_op`` as in :func:`find_marks`.
    :raises ConcurrentRunError: when another run committed first.
    :raises duckdb.Error: when the rows cannot be written.
    :raises OSError: when the store fails.
    """
    with _connected(rows) as connection:
        added = add_rows(connection, table, uri, rows=_added(connection, marks, rows, keys=keys), keys=keys)
    vectors = write_vectors(uri, {path: each.dead for path, each in marks.files.items() if each.is_left})
    marked = [action for path, each in marks.files.items() for action in each.actions(vectors.get(path))]
    metrics = _counts(marks, added, sources=rows.num_rows, copied=0) | _counts_of_vectors(marks, vectors)
    commit_rows(uri, table, [*marked, *({"add": each} for each in added)], of=of, metrics=metrics)


def copy_and_add(table: Any, uri: str, marks: Marks, *, rows: Any, keys: Sequence[str], of: CommitOf) -> None:
    """Make one MERGE commit of row changes, by which the other rows of their files are written again.

    Parameters and errors are those of :func:`mark_and_add`, for any table.
    """
    files = marks.files
    with _connected(rows, files_bytes=sum(each.action["size"] for each in files.values())) as connection:
        new = _added(connection, marks, rows, keys=keys)
        if files:
            fields = json.loads(table.schema().to_json())["fields"]
            create_view(connection, uri, table, fields=fields, without={path: each.dead for path, each in files.items()})
            ((count,),) = connection.execute(f"SELECT count(*) FROM ({new})").fetchall()
            # The changes have the table's types, which an older file may lack.
            new = f"(SELECT * FROM cdc) UNION ALL BY NAME (SELECT * FROM ({new}))"
        added = add_rows(connection, table, uri, rows=new, keys=keys)
        copied = rows_in(added) - count if files else 0
    actions = [*(action for each in files.values() for action in each.actions()), *({"add": each} for each in added)]
    commit_rows(uri, table, actions, of=of, metrics=_counts(marks, added, sources=rows.num_rows, copied=copied))


@contextmanager
def _connected(rows: Any, *, files_bytes: int = 0) -> Iterator[Any]:
    """Connect to DuckDB, with the rows as ``changes``."""
    with connect_duckdb(threads=threads_for(rows.nbytes + files_bytes)) as connection:
        connection.register("changes", rows)
        try:
            yield connection
        finally:
            connection.unregister("changes")


@dataclass(frozen=True)
class _Matched:
    """The rows of a file that have a change's key."""

    rows: BitMap64
    updated: int
    deleted: int


def _match(connection: Any, files: Mapping[str, str], dead: Mapping[str, BitMap64], *, keys: Sequence[str]) -> dict[str, _Matched]:
    """Return by path the rows of files that have the key of a change (``wanted``).

    :param files: paths by DuckDB's name.
    :param dead: numbers of the deleted rows by path.
    :raises UnmarkableError: where a key has two rows.
    """
    scanned = f"read_parquet([{texts(files)}], union_by_name = true, hive_partitioning = false, {PLACES})"
    connection.execute(f"""
CREATE TEMP TABLE held AS
SELECT __cdc_file, file_row_number, wanted.rowid AS change, wanted.{OP} = 'd' AS deletes, wanted.{OP} = '{KEEP}' AS keeps
FROM {scanned} AS scanned JOIN wanted ON {" AND ".join(f"scanned.{name(key)} = wanted.{name(key)}" for key in keys)}""")
    _leave_out_dead(connection, files, dead)
    if connection.execute("SELECT 1 FROM live GROUP BY change HAVING count(*) > 1 LIMIT 1").fetchall():
        raise UnmarkableError("a key has several rows in the table")
    counts = "count(*) FILTER (NOT deletes) AS updated, count(*) FILTER (deletes) AS deleted"
    rows = connection.sql(f"SELECT __cdc_file, list(file_row_number) AS rows, {counts} FROM live WHERE NOT keeps GROUP BY ALL ORDER BY ALL")
    return {
        files[each["__cdc_file"]]: _Matched(bitmap(each["rows"]), each["updated"], each["deleted"])
        for each in rows.to_arrow_table().to_pylist()
    }


def _leave_out_dead(connection: Any, files: Mapping[str, str], dead: Mapping[str, BitMap64]) -> None:
    """Let ``live`` be the rows that were found (``held``) and are not marked as deleted."""
    if not any(dead.values()):
        connection.execute("CREATE TEMP VIEW live AS FROM held")
        return
    places = connection.sql("SELECT __cdc_file, list(file_row_number) AS rows FROM held GROUP BY ALL").to_arrow_table().to_pylist()
    # Only of rows that were found: a table has millions of deleted ones.
    found = ((each["__cdc_file"], bitmap(each["rows"]) & dead[files[each["__cdc_file"]]]) for each in places)
    register_deleted(connection, ((file, numbers_of(rows)) for file, rows in found if rows))
    connection.execute(f"CREATE TEMP TABLE live AS SELECT * FROM held{WITHOUT_DELETED}")


def _held(connection: Any, changes: Any, *, keys: Sequence[str]) -> Any:
    """Return :attr:`Marks.held`."""
    if OP_IF_ABSENT not in changes.column_names:
        return None
    quoted = ", ".join(map(name, keys))
    depends = f"SELECT {quoted} FROM changes WHERE {is_upsert(OP)} <> {is_upsert(OP_IF_ABSENT)}"
    live = "SELECT wanted.* FROM wanted JOIN live ON wanted.rowid = live.change"
    return connection.sql(f"SELECT {quoted} FROM ({live}) SEMI JOIN ({depends}) USING ({quoted})").to_arrow_table()


def _added(connection: Any, marks: Marks, rows: Any, *, keys: Sequence[str]) -> str:
    """Return the query of the rows that a merge leaves."""
    if OP_IF_ABSENT not in rows.column_names:
        return f"SELECT * FROM changes WHERE {is_upsert(operations_of(rows)[0])}"
    own = f"SELECT * EXCLUDE ({', '.join(OF_VERSIONS)}) FROM changes"
    if marks.held is None:
        return f"{own} WHERE {is_upsert(OP_IF_ABSENT)}"
    connection.register("kept", marks.held)
    connection.execute("CREATE TEMP TABLE held AS FROM kept")
    connection.unregister("kept")
    using = f"held USING ({', '.join(map(name, keys))})"
    return f"{own} SEMI JOIN {using} WHERE {is_upsert(OP)} UNION ALL {own} ANTI JOIN {using} WHERE {is_upsert(OP_IF_ABSENT)}"


def _counts(marks: Marks, added: Sequence[Action], *, sources: int, copied: int) -> dict[str, int]:
    """Return what Delta counts of a MERGE (``operationMetrics``)."""
    files = marks.files.values()
    updated, output = sum(each.updated for each in files), rows_in(added) - copied
    return {
        "numSourceRows": sources,
        "numOutputRows": output + copied,
        "numTargetRowsInserted": output - updated,
        "numTargetRowsUpdated": updated,
        "numTargetRowsDeleted": sum(each.deleted for each in files),
        "numTargetRowsCopied": copied,
        "numTargetFilesAdded": len(added),
        "numTargetFilesRemoved": len(files),
    }


def _counts_of_vectors(marks: Marks, vectors: Mapping[str, Any]) -> dict[str, int]:
    """Return what it counts otherwise where rows are marked."""
    replaced = [path for path, each in marks.files.items() if "deletionVector" in each.action]
    return {
        "numTargetFilesRemoved": len(marks.files) - len(vectors),
        "numTargetDeletionVectorsAdded": len(vectors),
        "numTargetDeletionVectorsUpdated": sum(path in vectors for path in replaced),
        "numTargetDeletionVectorsRemoved": len(replaced),
    }
