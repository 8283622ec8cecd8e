"""Merge without Spark into a table with deletion vectors: changed rows are marked as deleted where they lie, and new ones are added.

delta-rs copies the files that it changes. Here only the keys are read of them, and one file of rows is written, as Spark's MERGE does with
deletion vectors.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from airflow_cdc.model.columns import OP, OP_IF_ABSENT
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.apply.native.bounds import touched_files
from airflow_cdc.pipeline.apply.native.fold_sql import OF_VERSIONS
from airflow_cdc.pipeline.apply.native.merge import is_upsert, operations_of
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import name, text, texts
from airflow_cdc.pipeline.spark.storage import file_system, is_local
from airflow_cdc.pipeline.target.add_actions import Action, UnreadableLogError, read_adds, statistics_of
from airflow_cdc.pipeline.target.commit_natively import CommitOf, commit_merge
from airflow_cdc.pipeline.target.deletion_vectors import UnreadableVectorError, bitmap, numbers_of, read_vector, write_vectors
from airflow_cdc.pipeline.target.file_statistics import are_by_default, statistics_of_rows, to_json
from airflow_cdc.pipeline.target.open_natively import native_path
from airflow_cdc.pipeline.target.parquet_scan import PLACES, WITHOUT_DELETED, register_deleted
from airflow_cdc.pipeline.target.table_files import TableFiles, UnreadableError

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MORE = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true", "delta.checkpoint.writeStatsAsJson": "false"}
"""Properties, with the values with which a commit would have to hold more, or its log could not be read here."""
_OF_REMOVED = ("path", "partitionValues", "size", "deletionVector", "tags")
_WRITTEN = "FORMAT parquet, COMPRESSION zstd"


class UnmarkableError(ValueError):
    """Raised before anything is written, where rows cannot be marked; its text is the reason."""


def may_mark(table: Any) -> bool:
    """Return whether rows of a table may be marked once it has deletion vectors: it asks nothing else of a writer.

    :param table: delta-rs's table, of features that it writes.
    """
    properties, metadata = table.metadata().configuration, table.metadata()
    fields = json.loads(table.schema().to_json())["fields"]
    asks_more = any(properties.get(each) == value for each, value in _MORE.items()) or metadata.partition_columns
    is_constrained = any(not each["nullable"] or "delta.invariants" in each["metadata"] for each in fields)
    return not asks_more and not is_constrained and are_by_default(properties)


@dataclass(frozen=True, kw_only=True)
class MarkedFile:
    """A file some of whose rows are marked."""

    action: Action
    """Its ``add``."""
    dead: BitMap64
    """All of its deleted rows, those of before included."""
    updated: int
    deleted: int

    @property
    def is_left(self) -> bool:
        """Whether any row of the file is left."""
        return len(self.dead) < int(statistics_of(self.action)["numRecords"])

    def actions(self, vector: Mapping[str, Any] | None) -> Iterator[dict[str, Action]]:
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

    :param table: delta-rs's table (:func:`may_mark`).
    :param changes: Arrow table with the keys and what :func:`airflow_cdc.pipeline.apply.native.merge.operations_of` asks for: ``d`` where
        the row is deleted, and ``k`` where it is kept. At most one row a key.
    :raises UnmarkableError: where the table's files are not read here, or hold a key twice.
    :raises OSError: when the store fails.
    """
    import duckdb

    paths = [unquote(str(file["path"])) for file in touched_files(table, changes, keys)]
    if not paths:
        return Marks(int(table.version()), {})
    try:
        adds, files = read_adds(uri, table), TableFiles(uri, table)
        dead = {path: read_vector(uri, adds[path].get("deletionVector")) for path in paths}
        with _connected(changes) as connection:
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
    if any("numRecords" not in statistics_of(each.action) for each in marked.values()):
        raise UnmarkableError("a file of the table has no number of rows in the log")
    return Marks(int(table.version()), marked, held)


def mark_and_add(table: Any, uri: str, marks: Marks, *, rows: Any, keys: Sequence[str], of: CommitOf) -> None:
    """Make one MERGE commit of row changes.

    :param table: delta-rs's table, of the version of the marks.
    :param marks: of the same changes.
    :param rows: Arrow table with the table's columns and types; ``__cdc_op`` as in :func:`find_marks`.
    :raises ConcurrentRunError: when another run committed first.
    :raises duckdb.Error: when the rows cannot be written.
    :raises OSError: when the store fails.
    """
    with _connected(rows) as connection:
        added = _add_rows(connection, table, uri, rows=_added(connection, marks, rows, keys=keys), keys=keys)
    vectors = write_vectors(uri, {path: each.dead for path, each in marks.files.items() if each.is_left})
    actions = [action for path, each in marks.files.items() for action in each.actions(vectors.get(path))]
    metrics = _metrics(list(marks.files.values()), added, sources=rows.num_rows)
    commit_merge(uri, table, [*actions, *({"add": each} for each in added)], of=of, metrics=metrics)


@contextmanager
def _connected(rows: Any) -> Iterator[Any]:
    """Connect to DuckDB, with the rows as ``changes``."""
    with connect_duckdb(threads=4) as connection:
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
    places = connection.sql("SELECT __cdc_file, list(file_row_number) AS rows FROM held GROUP BY ALL").to_arrow_table().to_pylist()
    # Only of rows that were found: a table has millions of deleted ones.
    found = ((each["__cdc_file"], bitmap(each["rows"]) & dead[files[each["__cdc_file"]]]) for each in places)
    register_deleted(connection, ((file, numbers_of(rows)) for file, rows in found if rows))
    connection.execute(f"CREATE TEMP TABLE live AS SELECT * FROM held{WITHOUT_DELETED}")
    if connection.execute("SELECT 1 FROM live GROUP BY change HAVING count(*) > 1 LIMIT 1").fetchall():
        raise UnmarkableError("a key has several rows in the table")
    counts = "count(*) FILTER (NOT deletes) AS updated, count(*) FILTER (deletes) AS deleted"
    rows = connection.sql(f"SELECT __cdc_file, list(file_row_number) AS rows, {counts} FROM live WHERE NOT keeps GROUP BY ALL ORDER BY ALL")
    return {
        files[each["__cdc_file"]]: _Matched(bitmap(each["rows"]), each["updated"], each["deleted"])
        for each in rows.to_arrow_table().to_pylist()
    }


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


def _add_rows(connection: Any, table: Any, uri: str, *, rows: str, keys: Sequence[str]) -> list[Action]:
    """Write rows into a new file of the table and return its ``add`` action; none where there are none.

    :param rows: query.
    """
    connection.execute(f"CREATE TEMP VIEW added AS {rows}")
    ((count,),) = connection.execute("SELECT count(*) FROM added").fetchall()
    if not count:
        return []
    file = f"part-00000-{uuid.uuid4()}-c000.zstd.parquet"
    size = _write_sorted(connection, uri, file, keys=keys)
    statistics = statistics_of_rows(connection, "added", json.loads(table.schema().to_json())["fields"])
    now = time.time_ns() // 1_000_000
    return [{"path": file, "partitionValues": {}, "size": size, "modificationTime": now, "dataChange": True, "stats": statistics}]


def _write_sorted(connection: Any, uri: str, file: str, *, keys: Sequence[str]) -> int:
    """Write ``added`` by key, so that later merges and readers pass over parts of the file; return its bytes."""
    rows = f"SELECT * FROM added ORDER BY {', '.join(map(name, keys))}"
    if is_local(uri):
        path = Path(native_path(uri), file)
        connection.execute(f"COPY ({rows}) TO {text(str(path))} ({_WRITTEN})")
        return path.stat().st_size
    with tempfile.TemporaryDirectory(prefix="airflow-cdc-") as folder:
        path = Path(folder, file)
        connection.execute(f"COPY ({rows}) TO {text(str(path))} ({_WRITTEN})")
        fs, root = file_system(uri)
        fs.put_file(str(path), f"{root.rstrip('/')}/{file}")
        return path.stat().st_size


def _metrics(marked: Sequence[MarkedFile], added: Sequence[Action], *, sources: int) -> dict[str, int]:
    """Return what Delta counts of a MERGE (``operationMetrics``)."""
    updated, deleted = sum(each.updated for each in marked), sum(each.deleted for each in marked)
    left = [each for each in marked if each.is_left]
    replaced = sum("deletionVector" in each.action for each in left)
    output = sum(int(json.loads(each["stats"])["numRecords"]) for each in added)
    return {
        "numSourceRows": sources,
        "numOutputRows": output,
        "numTargetRowsInserted": output - updated,
        "numTargetRowsUpdated": updated,
        "numTargetRowsDeleted": deleted,
        "numTargetRowsCopied": 0,
        "numTargetFilesAdded": len(added),
        "numTargetFilesRemoved": len(marked) - len(left),
        "numTargetDeletionVectorsAdded": len(left),
        "numTargetDeletionVectorsUpdated": replaced,
        "numTargetDeletionVectorsRemoved": sum("deletionVector" in each.action for each in marked),
    }
