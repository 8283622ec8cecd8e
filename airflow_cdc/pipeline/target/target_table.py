"""The target table's current state, from Delta's metadata and the table's own properties."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from airflow_cdc.model.columns import END_POSITION
from airflow_cdc.model.flow.column_origin import ENCODED_COMMENT, GUESSED_COMMENT, TOPIC_COMMENT
from airflow_cdc.model.flow.document_columns import definition_of
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.decode.types.text_forms import TextForm
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import with_columns
from airflow_cdc.pipeline.spark.storage import is_local
from airflow_cdc.pipeline.target.open_natively import Description, describe_natively
from airflow_cdc.pipeline.target.read_commits import has_log
from airflow_cdc.pipeline.target.table_properties import (
    DOCUMENT_COLUMNS_PROPERTY,
    FORMS_PROPERTY,
    KEYS_PROPERTY,
    MODE_PROPERTY,
    RENAMED_PROPERTY,
    has_exact_statistics,
    is_ours,
    scd_columns_of,
)


@dataclass(frozen=True, kw_only=True)
class TargetTable:
    """The target before a merge."""

    uri: str
    columns: Mapping[str, str]
    """Spark SQL types of the source's columns, in the table's order."""
    keys: tuple[str, ...]
    size: int
    """Bytes of the live files."""
    files: int
    """Number of live files."""
    deletion_vectors: bool
    mode: TableMode = TableMode.CURRENT
    declared: frozenset[str] = frozenset()
    """Columns read by a schema-change topic, a schema or the flow's declaration: their JSON text alone is ambiguous."""
    guessed: frozenset[str] = frozenset()
    """Columns whose type was inferred from JSON values."""
    document_columns: str = definition_of({})
    """Document column definition by which all rows were filled."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Current column names by their older ones."""
    scd_columns: ScdColumns = field(default_factory=ScdColumns)
    """Names of the columns of a table that keeps versions."""
    forms: Mapping[str, TextForm] = field(default_factory=dict)
    """By column that identifies a row and is kept as text: the form of all its texts, where that is recorded."""
    exact_statistics: bool = True
    """Whether the table records that the statistics in its log are right."""
    opened: Any = field(default=None, compare=False, repr=False)
    """delta-rs's table that was read; None where Spark described it, or it has just been created."""

    def under(self, renames: Mapping[str, str]) -> TargetTable:
        """Return the table with current column names."""
        columns = {renames.get(name, name): kind for name, kind in self.columns.items()}
        declared, guessed = (frozenset(renames.get(name, name) for name in names) for names in (self.declared, self.guessed))
        return replace(self, columns=columns, declared=declared, guessed=guessed)

    def with_all_columns(self, log: DataFrame) -> DataFrame:
        """Return a log with all of the table's columns; columns that no event has carried yet are NULL."""
        held = {name.lower() for name in log.columns}
        return with_columns(log, {name: F.lit(None).cast(kind) for name, kind in self.columns.items() if name.lower() not in held})

    def is_ours(self, column: str) -> bool:
        """Return whether a column of the table is ours, not the source's."""
        return is_ours(column, self.scd_columns)

    def with_default_names(self, rows: DataFrame) -> DataFrame:
        """Return rows of the table with the default names of our columns, as the pipeline's frames have them."""
        defaults = {name: default for default, name in self.scd_columns.by_default.items() if name != default}
        return rows.select(*[F.col(sql.name(name)).alias(defaults.get(name, name)) for name in rows.columns]) if defaults else rows

    @property
    def flags_deletes(self) -> bool:
        """Whether deleted rows stay in the table, flagged."""
        return self.mode is TableMode.FLAGGED


def describe_table(spark: SparkSession, uri: str) -> Row | None:
    """Return Delta's description of a table (``DESCRIBE DETAIL``), None where there is none."""
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {sql.delta(uri)}").first()
    except AnalysisException as error:
        if (error.getCondition() or "").startswith(("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST")):
            return None
        raise
    return detail if detail is not None and detail["format"] == "delta" else None


def read_target(spark: SparkSession, uri: str) -> TargetTable | None:
    """Return the target table, None where there is none yet."""
    # Of another store only Spark may have the credentials.
    is_absent = is_local(uri) and not has_log(uri)
    found = describe_natively(uri) or (None if is_absent else _describe_in_spark(spark, uri))
    if found is None:
        return None
    properties = found.properties
    scd_columns = scd_columns_of(properties)
    fields = [field for field in found.fields if not is_ours(field.name, scd_columns)]
    declared, guessed = by_comment({field.name: field.metadata.get("comment") for field in fields})
    return TargetTable(
        uri=uri,
        columns=_types(fields),
        keys=tuple(json.loads(properties.get(KEYS_PROPERTY, "[]"))),
        size=found.size,
        files=found.files,
        deletion_vectors=properties.get("delta.enableDeletionVectors") == "true",
        mode=TableMode(properties.get(MODE_PROPERTY, TableMode.CURRENT)),
        declared=declared,
        guessed=guessed,
        document_columns=properties.get(DOCUMENT_COLUMNS_PROPERTY, definition_of({})),
        renamed=json.loads(properties.get(RENAMED_PROPERTY, "{}")),
        scd_columns=scd_columns,
        forms={name: TextForm.parse(form) for name, form in json.loads(properties.get(FORMS_PROPERTY, "{}")).items()},
        exact_statistics=has_exact_statistics(properties),
        opened=found.table,
    )


def _describe_in_spark(spark: SparkSession, uri: str) -> Description | None:
    detail = describe_table(spark, uri)
    if detail is None:
        return None
    return Description(
        detail["properties"] or {}, _fields(spark, uri), files=int(detail["numFiles"] or 0), size=int(detail["sizeInBytes"] or 0)
    )


def by_comment(comments: Mapping[str, str | None]) -> tuple[frozenset[str], frozenset[str]]:
    """Return :attr:`TargetTable.declared` and :attr:`TargetTable.guessed`, from the columns' comments."""
    declared, guessed = (
        frozenset(name for name, text in comments.items() if text in texts)
        for texts in ((TOPIC_COMMENT, ENCODED_COMMENT), (GUESSED_COMMENT,))
    )
    return declared, guessed


def columns_of(spark: SparkSession, uri: str) -> dict[str, str]:
    """Return the Spark SQL types of the source's columns in a target table, in the table's order."""
    natively = describe_natively(uri)
    fields = natively.fields if natively else _fields(spark, uri)
    scd_columns = ScdColumns()
    names = {field.name for field in fields}
    # A table of versions that lacks a default name has another: only then its properties are read, which takes one more query.
    if END_POSITION in names and not names.issuperset(scd_columns.by_default):
        found = natively or _describe_in_spark(spark, uri)
        scd_columns = scd_columns_of(found.properties if found else {})
    return _types([field for field in fields if not is_ours(field.name, scd_columns)])


def _fields(spark: SparkSession, uri: str) -> list[StructField]:
    return spark.sql(f"SELECT * FROM {sql.delta(uri)}").schema.fields


def _types(fields: Sequence[StructField]) -> dict[str, str]:
    return {field.name: field.dataType.simpleString().upper() for field in fields}


def latest_version(spark: SparkSession, uri: str) -> int:
    """Return the number of a Delta table's last commit."""
    return int(spark.sql(f"DESCRIBE HISTORY {sql.delta(uri)} LIMIT 1").collect()[0]["version"])
