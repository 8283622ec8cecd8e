"""Create a target table: the source's columns, our own after them, and the properties that freeze its keys and mode."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

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
    PARTITION,
    POSITION,
    TARGET_COLUMNS,
    TRANSACTION,
    UNAVAILABLE,
    VALID_FROM,
    VALID_TO,
    VALUE_POSITIONS,
    VERSION_COLUMNS,
)
from airflow_cdc.model.flow.document_columns import DocumentColumn, definition_of
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.decode.types.text_forms import TextForm
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.table_properties import (
    DOCUMENT_COLUMNS_PROPERTY,
    EXACT_STATISTICS,
    FORMS_PROPERTY,
    KEYS_PROPERTY,
    MODE_OF_MAPPING,
    MODE_PROPERTY,
    SCD_COLUMNS_PROPERTY,
)
from airflow_cdc.pipeline.target.target_table import TargetTable, by_comment

_OWN_COLUMN_TYPES = {
    POSITION: POSITION_TYPE,
    OP: "STRING",
    COMMITTED_AT: "TIMESTAMP",
    MICROBATCH: "BIGINT",
    OFFSET: "BIGINT",
    VALUE_POSITIONS: VALUE_POSITIONS_TYPE,
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


@dataclass(frozen=True, kw_only=True)
class NewTable:
    """Columns, keys and mode of a table to create."""

    columns: Mapping[str, str]
    """Spark SQL types of the source's columns, in order."""
    keys: Sequence[str]
    mode: TableMode
    comments: Mapping[str, str] = field(default_factory=dict)
    """Column comments by name (:mod:`airflow_cdc.model.flow.column_origin`)."""
    document_columns: Mapping[str, DocumentColumn] = field(default_factory=dict)
    """Definitions of the document columns by name."""
    scd_columns: ScdColumns = field(default_factory=ScdColumns)
    """Names of the columns of a table that keeps versions."""
    forms: Mapping[str, TextForm] = field(default_factory=dict)
    """As :attr:`airflow_cdc.pipeline.target.target_table.TargetTable.forms`."""


def create_target(spark: SparkSession, uri: str, new: NewTable) -> TargetTable:
    """Create an empty target table with the source's columns followed by ours."""
    definitions = ", ".join(declare(name, kind, new.comments.get(name)) for name, kind in columns_with_ours(new).items())
    assigned = ", ".join(f"{sql.text(name)} = {sql.text(value)}" for name, value in properties_of(new).items())
    spark.sql(f"CREATE TABLE IF NOT EXISTS {sql.delta(uri)} ({definitions}) USING delta TBLPROPERTIES ({assigned})")
    return created(uri, new)


def columns_with_ours(new: NewTable) -> dict[str, str]:
    """Return the Spark SQL types of a new table's columns."""
    key_type = f"STRUCT<{', '.join(f'{sql.name(key)}: {new.columns[key]}' for key in new.keys)}>"
    named = new.scd_columns.by_default
    return {**new.columns, **{named.get(name, name): _OWN_COLUMN_TYPES.get(name, key_type) for name in _COLUMNS_OF[new.mode]}}


def properties_of(new: NewTable) -> dict[str, str]:
    """Return the table properties of a new table."""
    # Copy-on-write until the table is large: on a small one deletion vectors double the merge's jobs.
    properties = {KEYS_PROPERTY: json.dumps(list(new.keys)), MODE_PROPERTY: new.mode.value, "delta.enableDeletionVectors": "false"}
    properties |= EXACT_STATISTICS
    if new.document_columns:
        properties[DOCUMENT_COLUMNS_PROPERTY] = definition_of(new.document_columns)
    if new.mode is TableMode.VERSIONS:
        properties[SCD_COLUMNS_PROPERTY] = json.dumps(new.scd_columns.to_json(), ensure_ascii=False)
    if new.forms:
        properties |= recorded_forms(new.forms)
    if sql.needs_column_mapping(columns_with_ours(new)):
        properties[MODE_OF_MAPPING] = "name"
    return properties


def recorded_forms(forms: Mapping[str, TextForm]) -> dict[str, str]:
    """Return the table property that records the forms of texts."""
    return {FORMS_PROPERTY: json.dumps({name: str(form) for name, form in forms.items()}, ensure_ascii=False)}


def created(uri: str, new: NewTable) -> TargetTable:
    """Return a table that was just created."""
    declared, guessed = by_comment(new.comments)
    return TargetTable(
        uri=uri,
        columns=dict(new.columns),
        keys=tuple(new.keys),
        size=0,
        files=0,
        deletion_vectors=False,
        mode=new.mode,
        declared=declared,
        guessed=guessed,
        document_columns=definition_of(new.document_columns),
        scd_columns=new.scd_columns,
        forms=new.forms,
    )


def declare(name: str, kind: str, comment: str | None) -> str:
    """Return the definition of a column."""
    return f"{sql.name(name)} {kind}" + (f" COMMENT {sql.text(comment)}" if comment else "")
