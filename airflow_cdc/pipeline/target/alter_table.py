"""Alter a target table to follow its source's schema. Existing rows keep their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_cdc.model.columns import VALUE_POSITIONS
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.create_table import declare
from airflow_cdc.pipeline.target.table_properties import MODE_OF_MAPPING
from airflow_cdc.pipeline.target.target_table import TargetTable

DELETION_VECTORS_FROM_BYTES = 16 * 1024**2
"""Below this size rewriting a file is cheaper than keeping a deletion vector beside it (docs/adr/measurements.md)."""
_TIMESTAMP_NTZ = {"delta.feature.timestampNtz": "supported"}
"""Of the features of types that we use, the only one that an existing table does not get by itself."""
MAPPED_BY_NAME = f"'{MODE_OF_MAPPING}' = 'name'"
"""The property as SQL: column names in the table are independent of those in its files."""


def map_columns(spark: SparkSession, uri: str) -> None:
    """Switch a table to column mapping by name, which also allows names that Parquet would refuse."""
    detail = spark.sql(f"DESCRIBE DETAIL {sql.delta(uri)}").collect()[0]
    if detail["properties"].get(MODE_OF_MAPPING) != "name":
        spark.sql(f"ALTER TABLE {sql.delta(uri)} SET TBLPROPERTIES ({MAPPED_BY_NAME})")


def set_properties(spark: SparkSession, uri: str, properties: Mapping[str, str]) -> None:
    """Set properties of a table."""
    assigned = ", ".join(f"{sql.text(name)} = {sql.text(value)}" for name, value in properties.items())
    spark.sql(f"ALTER TABLE {sql.delta(uri)} SET TBLPROPERTIES ({assigned})")


def allow_types(spark: SparkSession, uri: str, kinds: Iterable[str], *, held: Iterable[str]) -> None:
    """Let a table have columns of more types; it gets by itself only what the types of its first columns need.

    :param kinds: Spark SQL types.
    :param held: those of the table's columns.
    """
    if need_feature(kinds) and not need_feature(held):
        set_properties(spark, uri, _TIMESTAMP_NTZ)


def need_feature(kinds: Iterable[str]) -> bool:
    """Return whether a table has to be given a Delta feature for columns of these Spark SQL types."""
    return any("TIMESTAMP_NTZ" in kind for kind in kinds)


def add_columns(spark: SparkSession, target: TargetTable, columns: Mapping[str, str], *, comments: Mapping[str, str]) -> tuple[str, ...]:
    """Add the columns that the events have and the table lacks, each after its neighbour; return their names.

    :param columns: the events' Spark SQL types, in order.
    """
    known = {name.lower() for name in target.columns}
    missing = [name for name in columns if name.lower() not in known]
    if sql.needs_column_mapping(missing):
        map_columns(spark, target.uri)
    allow_types(spark, target.uri, [columns[name] for name in missing], held=target.columns.values())
    left = None
    for name, kind in columns.items():
        if name in missing:
            place = f"AFTER {sql.name(left)}" if left else "FIRST"
            spark.sql(f"ALTER TABLE {sql.delta(target.uri)} ADD COLUMNS ({declare(name, kind, comments.get(name))} {place})")
        left = name
    return tuple(missing)


def widen_columns(spark: SparkSession, uri: str, columns: Mapping[str, str]) -> None:
    """Give columns wider types."""
    # Set here only: type widening is a reader feature, so other tables keep plain readers.
    set_properties(spark, uri, {"delta.enableTypeWidening": "true", **(_TIMESTAMP_NTZ if need_feature(columns.values()) else {})})
    for name, kind in columns.items():
        spark.sql(f"ALTER TABLE {sql.delta(uri)} ALTER COLUMN {sql.name(name)} TYPE {kind}")


def rename_column(spark: SparkSession, uri: str, *, old: str, new: str) -> None:
    """Rename a column; the table must map its columns by name (:func:`map_columns`)."""
    spark.sql(f"ALTER TABLE {sql.delta(uri)} RENAME COLUMN {sql.name(old)} TO {sql.name(new)}")


def rename_in_rows(spark: SparkSession, uri: str, *, old: str, new: str) -> None:
    """Rename a column in ``__cdc_told_at``, which lists the values that a row's newer events left out."""
    named = f"named_struct('column', {sql.text(new)}, 'position', entry.position, 'known', entry.known)"
    entries = f"transform({VALUE_POSITIONS}, entry -> if(entry.column = {sql.text(old)}, {named}, entry))"
    of_column = f"exists({VALUE_POSITIONS}, entry -> entry.column = {sql.text(old)})"
    spark.sql(f"UPDATE {sql.delta(uri)} SET {VALUE_POSITIONS} = {entries} WHERE {of_column}")


def gets_deletion_vectors(target: TargetTable) -> bool:
    """Return whether a table has deletion vectors, or is large enough to get them."""
    return target.deletion_vectors or target.size >= DELETION_VECTORS_FROM_BYTES


def with_deletion_vectors(spark: SparkSession, target: TargetTable) -> TargetTable:
    """Switch deletion vectors on for a table that has grown large."""
    if target.deletion_vectors or not gets_deletion_vectors(target):
        return target
    set_properties(spark, target.uri, {"delta.enableDeletionVectors": "true"})
    return replace(target, deletion_vectors=True)
