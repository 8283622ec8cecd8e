"""Merge: row changes become one Delta commit on the target."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from airflow_cdc.model.column_origin import ENCODED_COMMENT, GUESSED_COMMENT, TOPIC_COMMENT
from airflow_cdc.model.columns import (
    CHANGE_LOG_COLUMNS,
    COMMITTED_AT,
    CONTENT,
    COPY,
    DELETED,
    DELETED_AT,
    END_POSITION,
    FLAGGED_COLUMNS,
    IS_CURRENT,
    MICROBATCH,
    MULTISET_COLUMNS,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    TARGET_COLUMNS,
    TOLD_AT,
    TRANSACTION,
    UNAVAILABLE,
    VALID_FROM,
    VALID_TO,
    VERSION_COLUMNS,
    is_reserved,
)
from airflow_cdc.model.document_columns import DocumentColumn, definition_of
from airflow_cdc.model.operation import FILL, KEEP
from airflow_cdc.model.report import RowCounts
from airflow_cdc.model.table_mode import TableMode
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.decode.decode_events import TOLD_AT_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.decode.mongodb import DOCUMENT
from airflow_cdc.pipeline.reconcile.fold_row_versions import HELD
from airflow_cdc.pipeline.reconcile.told_at import HAS_UNKNOWN, may_fill, told_at, told_position
from airflow_cdc.pipeline.target.column_mapping import MODE_OF_MAPPING
from airflow_cdc.pipeline.target.flag_deletes import MADE_ROOM, Assigned, Vanishing, flagging_clauses, is_taken
from airflow_cdc.pipeline.target.key_range import KeyRange

KEYS_PROPERTY = "airflow_cdc.keys"
"""Table property: the key columns as JSON; they are frozen when the table is made."""
MODE_PROPERTY = "airflow_cdc.mode"
"""Table property: the table's :class:`~airflow_cdc.model.table_mode.TableMode`; frozen like the keys."""
DOCUMENT_COLUMNS_PROPERTY = "airflow_cdc.document_columns"
"""Table property: the definition of the document columns by which all rows were filled."""
RENAMED_PROPERTY = "airflow_cdc.renamed_columns"
"""Table property: the names of columns by the older ones under which late events may have them, as JSON."""

_OWN_COLUMN_TYPES = {
    POSITION: POSITION_TYPE,
    OP: "STRING",
    COMMITTED_AT: "TIMESTAMP",
    MICROBATCH: "BIGINT",
    OFFSET: "BIGINT",
    TOLD_AT: TOLD_AT_TYPE,
    DELETED: "BOOLEAN",
    DELETED_AT: "TIMESTAMP",
    PARTITION: "INT",
    TRANSACTION: "STRING",
    UNAVAILABLE: "ARRAY<STRING>",
    END_POSITION: POSITION_TYPE,
    VALID_FROM: "TIMESTAMP",
    VALID_TO: "TIMESTAMP",
    IS_CURRENT: "BOOLEAN",
    CONTENT: "STRING",
    COPY: "BIGINT",
}
_COLUMNS_OF = {
    TableMode.CURRENT: TARGET_COLUMNS,
    TableMode.MULTISET: MULTISET_COLUMNS,
    TableMode.FLAGGED: FLAGGED_COLUMNS,
    TableMode.CHANGE_LOG: CHANGE_LOG_COLUMNS,
    TableMode.VERSIONS: VERSION_COLUMNS,
}


@dataclass(frozen=True)
class TargetTable:
    """The target as it stands before a merge."""

    uri: str
    columns: Mapping[str, str]
    """Spark SQL types of the source's columns, in the table's order."""
    keys: tuple[str, ...]
    size: int
    """Bytes of the live files."""
    files: int
    """How many they are."""
    deletion_vectors: bool
    mode: TableMode = TableMode.CURRENT
    told: frozenset[str] = frozenset()
    """Columns that are read as a schema-change topic, a schema or the flow tells: the JSON text does not say what they are."""
    guessed: frozenset[str] = frozenset()
    """Columns that were made of what the JSON values look like."""
    document_columns: str = definition_of({})
    """Definition of the document columns by which all its rows were filled."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Names of columns by their older ones."""

    def under(self, renames: Mapping[str, str]) -> TargetTable:
        """Return the table as it is once its columns have the names of today."""
        columns = {renames.get(name, name): kind for name, kind in self.columns.items()}
        told, guessed = (frozenset(renames.get(name, name) for name in names) for names in (self.told, self.guessed))
        return replace(self, columns=columns, told=told, guessed=guessed)

    @property
    def flags_deletes(self) -> bool:
        """Whether deleted rows stay in it, flagged."""
        return self.mode is TableMode.FLAGGED


def describe_table(spark: SparkSession, uri: str) -> Row | None:
    """Return what Delta tells of a table (``DESCRIBE DETAIL``), None where there is none."""
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {sql.delta(uri)}").first()
    except AnalysisException as error:
        if (error.getCondition() or "").startswith(("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST")):
            return None
        raise
    return detail if detail is not None and detail["format"] == "delta" else None


def read_target(spark: SparkSession, uri: str) -> TargetTable | None:
    """Return the target table, None where there is none yet."""
    detail = describe_table(spark, uri)
    if detail is None:
        return None
    properties = detail["properties"] or {}
    fields = _source_fields(spark, uri)
    told, guessed = _remembered({field.name: field.metadata.get("comment") for field in fields})
    return TargetTable(
        uri=uri,
        columns=_types(fields),
        keys=tuple(json.loads(properties.get(KEYS_PROPERTY, "[]"))),
        size=int(detail["sizeInBytes"] or 0),
        files=int(detail["numFiles"] or 0),
        deletion_vectors=properties.get("delta.enableDeletionVectors") == "true",
        mode=TableMode(properties.get(MODE_PROPERTY, TableMode.CURRENT)),
        told=told,
        guessed=guessed,
        document_columns=properties.get(DOCUMENT_COLUMNS_PROPERTY, definition_of({})),
        renamed=json.loads(properties.get(RENAMED_PROPERTY, "{}")),
    )


def _remembered(comments: Mapping[str, str | None]) -> tuple[frozenset[str], frozenset[str]]:
    """Return :attr:`TargetTable.told` and :attr:`TargetTable.guessed`, by the columns' comments."""
    told, guessed = (
        frozenset(name for name, text in comments.items() if text in texts)
        for texts in ((TOPIC_COMMENT, ENCODED_COMMENT), (GUESSED_COMMENT,))
    )
    return told, guessed


def columns_of(spark: SparkSession, uri: str) -> dict[str, str]:
    """Return the Spark SQL types of the source's columns in a target table, in the table's order."""
    return _types(_source_fields(spark, uri))


def _source_fields(spark: SparkSession, uri: str) -> list[StructField]:
    fields = spark.sql(f"SELECT * FROM {sql.delta(uri)}").schema.fields
    return [field for field in fields if not is_reserved(field.name)]


def _types(fields: Sequence[StructField]) -> dict[str, str]:
    return {field.name: field.dataType.simpleString().upper() for field in fields}


def declare(name: str, kind: str, comment: str | None) -> str:
    """Return the definition of a column."""
    return f"{sql.name(name)} {kind}" + (f" COMMENT {sql.text(comment)}" if comment else "")


def latest_version(spark: SparkSession, uri: str) -> int:
    """Return the number of a Delta table's last commit."""
    return int(spark.sql(f"DESCRIBE HISTORY {sql.delta(uri)} LIMIT 1").collect()[0]["version"])


def create_target(
    spark: SparkSession,
    uri: str,
    columns: Mapping[str, str],
    keys: Sequence[str],
    mode: TableMode,
    *,
    comments: Mapping[str, str],
    document_columns: Mapping[str, DocumentColumn],
) -> TargetTable:
    """Make an empty target table with the source's columns and, behind them, ours.

    :param comments: of columns (:mod:`airflow_cdc.model.column_origin`).
    :param document_columns: those of the columns that are taken out of documents.
    """
    defined = definition_of(document_columns)
    key_type = f"STRUCT<{', '.join(f'{sql.name(key)}: {columns[key]}' for key in keys)}>"
    own = {name: _OWN_COLUMN_TYPES.get(name, key_type) for name in _COLUMNS_OF[mode]}
    declared = ", ".join(declare(name, kind, comments.get(name)) for name, kind in {**columns, **own}.items())
    # Copy-on-write until the table is large: on a small one deletion vectors double the merge's jobs.
    properties = {KEYS_PROPERTY: json.dumps(list(keys)), MODE_PROPERTY: mode.value, "delta.enableDeletionVectors": "false"}
    if document_columns:
        properties[DOCUMENT_COLUMNS_PROPERTY] = defined
    if sql.needs_column_mapping(columns):
        properties[MODE_OF_MAPPING] = "name"
    assigned = ", ".join(f"{sql.text(name)} = {sql.text(value)}" for name, value in properties.items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {sql.delta(uri)} ({declared}) USING delta TBLPROPERTIES ({assigned})")
    told, guessed = _remembered(comments)
    return TargetTable(
        uri,
        dict(columns),
        tuple(keys),
        size=0,
        files=0,
        deletion_vectors=False,
        mode=mode,
        told=told,
        guessed=guessed,
        document_columns=defined,
    )


def merge_row_changes(
    spark: SparkSession,
    *,
    target: TargetTable,
    row_changes: DataFrame,
    columns: Sequence[str],
    microbatch: int,
    late: bool,
    vanishing: Sequence[Vanishing] = (),
    unread: str = "false",
    untold: Collection[str] = (),
    document_columns: Collection[str] = (),
    within: Sequence[KeyRange] = (),
) -> None:
    """Make one MERGE commit of row changes: at most one a key.

    ``__cdc_op`` says what becomes of a key that the target holds (``d``: its row goes, ``k``: it stays, ``f``: it takes what it
    lacks), ``__cdc_op_if_absent`` of one that it does not.

    :param columns: the source's columns that the changes carry.
    :param late: whether some changes only fill values (``f``).
    :param vanishing: what takes rows that no change is about.
    :param unread: SQL over ``t`` and ``s``: whether the row is as good as none where it decides what a change means
        (:class:`~airflow_cdc.pipeline.find_voids.Unread`).
    :param untold: columns whose value some change does not tell (``__cdc_unavailable``): the target's stays.
    :param document_columns: columns that are told with the document and only with it.
    :param within: ranges in which the keys of all changes lie, where that is known and nothing vanishes.
    """
    row_changes.createOrReplaceTempView("cdc_row_changes")
    if target.flags_deletes:
        # A delete leaves all of them to the row.
        untold = [name for name in columns if name not in target.keys]
    elif DOCUMENT in untold:
        untold = [*untold, *document_columns]
    told_with = {name: DOCUMENT if name in document_columns else name for name in columns}
    assigned = {sql.name(name): f"s.{sql.name(name)}" for name in (*columns, POSITION, OP, COMMITTED_AT, PARTITION, OFFSET)}
    number = _opaque_number(microbatch)
    assigned |= {MICROBATCH: number, TOLD_AT: told_at("s", None) if untold else f"s.{TOLD_AT}"}
    kept = {
        sql.name(name): f"if(array_contains(s.{UNAVAILABLE}, {sql.text(told_with[name])}), t.{sql.name(name)}, s.{sql.name(name)})"
        for name in untold
    }
    updated = {**assigned, **kept, TOLD_AT: told_at("s", "t") if untold else f"s.{TOLD_AT}"}
    on_keys = sql.same_key("t", "s", target.keys)
    # Delta passes over files by what is said of the target alone.
    on_keys = " AND ".join([on_keys, *(keys.of_rows("t") for keys in within)])
    filled = _filled(told_with, number)
    values = Assigned(assigned, updated, filled)
    if target.flags_deletes:
        clauses = flagging_clauses(values, vanishing=vanishing, late=late, microbatch=microbatch, unread=unread)
    else:
        clauses = _removing_clauses(values, vanishing=vanishing, late=late, unread=unread)
    spark.sql(f"MERGE INTO {sql.delta(target.uri)} AS t USING cdc_row_changes AS s ON {on_keys} {' '.join(clauses)}")


def _removing_clauses(values: Assigned, *, vanishing: Sequence[Vanishing], late: bool, unread: str) -> list[str]:
    """Return the clauses of a MERGE that removes deleted rows."""
    inserted, updated, filled = values.inserted, values.updated, values.filled
    insert = f"INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})"
    taken = is_taken(vanishing)
    clauses = []
    if vanishing:
        # Whatever lived there is gone: the change is one of a key that the target does not hold.
        clauses += [
            f"WHEN MATCHED AND {taken} AND s.{OP_IF_ABSENT} IN ('d', '{KEEP}') THEN DELETE",
            f"WHEN MATCHED AND {taken} THEN UPDATE SET {sql.assign(inserted)}",
        ]
    clauses += [f"WHEN MATCHED AND {MADE_ROOM} AND {unread} THEN DELETE"] if unread != "false" else []
    clauses += [f"WHEN MATCHED AND s.{OP} = '{FILL}' THEN UPDATE SET {sql.assign(filled)}"] if late else []
    clauses += [
        f"WHEN MATCHED AND s.{OP} = 'd' THEN DELETE",
        f"WHEN MATCHED AND s.{OP} <> '{KEEP}' THEN UPDATE SET {sql.assign(updated)}",
        f"WHEN NOT MATCHED AND s.{OP_IF_ABSENT} NOT IN ('d', '{KEEP}') THEN {insert}",
    ]
    return clauses + ([f"WHEN NOT MATCHED BY SOURCE AND {taken} THEN DELETE"] if vanishing else [])


def count_row_changes(
    spark: SparkSession, *, target: TargetTable, row_changes: DataFrame, vanishing: Sequence[Vanishing] = ()
) -> RowCounts:
    """Return what :func:`merge_row_changes` would make of the target's rows; nothing is written."""
    rows = spark.sql(f"SELECT *, true AS {HELD} FROM {sql.delta(target.uri)}")
    on_keys = F.expr(sql.same_key("t", "s", target.keys))
    told = F.expr(f"if({is_taken(vanishing)}, if(s.{OP_IF_ABSENT} = '{KEEP}', 'd', s.{OP_IF_ABSENT}), s.{OP})").alias(OP)
    judged = row_changes.alias("s").join(rows.alias("t"), on_keys, "left").select(f"t.{HELD}", told, f"s.{OP_IF_ABSENT}")
    counts = judged.agg(
        F.count_if(F.expr(f"{HELD} IS NULL AND {OP_IF_ABSENT} NOT IN ('d', '{KEEP}')")).alias("inserted"),
        F.count_if(F.expr(f"{HELD} AND {OP} NOT IN ('d', '{KEEP}')")).alias("updated"),
        F.count_if(F.expr(f"{HELD} AND {OP} = 'd'")).alias("deleted"),
    ).collect()[0]
    found = RowCounts(*(int(counts[name]) for name in ("inserted", "updated", "deleted")))
    if not vanishing:
        return found
    left = rows.alias("t").join(row_changes.alias("s"), on_keys, "left_anti")
    return found + RowCounts(deleted=left.filter(" OR ".join(each.takes for each in vanishing)).count())


def _opaque_number(number: int) -> str:
    """Return the SQL of a number that Spark does not write into the code it generates.

    With the microbatch's number in it the code would differ from one microbatch to the next, and be compiled and warmed up anew each time.
    """
    # An operation is one letter, and no text of a statement stands in that code.
    return f"CAST(concat('{number}', substr(s.{OP}, 2)) AS BIGINT)"


def _filled(told_with: Mapping[str, str], microbatch: str) -> dict[str, str]:
    """Return the assignments of a change that is late: it fills only what the row's newer events did not tell.

    :param told_with: by column, the one under whose name ``__cdc_told_at`` says who told it.
    :param microbatch: SQL of its number.
    """
    values = {}
    for name, teller in told_with.items():
        fills = f"exists(t.{TOLD_AT}, entry -> entry.column = {sql.text(teller)} AND {may_fill('s', 'entry')})"
        values[sql.name(name)] = f"if({fills}, s.{sql.name(name)}, t.{sql.name(name)})"
    better = f"named_struct('column', entry.column, 'position', {told_position('s', 'entry.column')}, 'known', true)"
    values[TOLD_AT] = f"transform(t.{TOLD_AT}, entry -> if({may_fill('s', 'entry')}, {better}, entry))"
    values[MICROBATCH] = microbatch
    return values


def count_unresolved(spark: SparkSession, uri: str, microbatch: int) -> int:
    """Return how many rows a microbatch merged without a value that nothing tells."""
    # A flagged row is nobody's to read.
    lives = f"{OP} NOT IN ('d', 't')"
    return spark.sql(f"SELECT 1 FROM {sql.delta(uri)} WHERE {MICROBATCH} = {microbatch} AND {lives} AND {HAS_UNKNOWN}").count()
