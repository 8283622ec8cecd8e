"""Our own Delta tables beside a flow's state: append (where it matters, once per microbatch) and read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import analysed
from airflow_cdc.pipeline.spark.session import transaction
from airflow_cdc.pipeline.target.alter_table import MAPPED_BY_NAME, allow_types, map_columns, need_feature

_SELDOM = "100"
"""Commits between two checkpoints of a table whose state is not read at each append: a checkpoint costs three Spark jobs."""


def append_once(spark: SparkSession, rows: DataFrame, uri: str, *, application: str, version: int) -> None:
    """Append rows under a transaction identifier: a second append of the same version changes nothing.

    :param application: identifies the writer; the version must rise with every append of the same application.
    """
    _prepare(spark, rows, uri)
    with transaction(spark, application=application, version=version):
        _append(rows, uri, {})


def append(spark: SparkSession, rows: DataFrame, uri: str) -> None:
    """Append rows, without protection against a repeated append."""
    _prepare(spark, rows, uri)
    _append(rows, uri, {"delta.checkpointInterval": _SELDOM})


def _prepare(spark: SparkSession, rows: DataFrame, uri: str) -> None:
    """Let an existing table take the names and types of columns that the append adds."""
    kinds = _kinds(rows)
    if need_feature(kinds) and (held := read_appended(spark, uri)) is not None:
        allow_types(spark, uri, kinds, held=_kinds(held))
    if sql.needs_column_mapping(rows.columns):
        # The append would create a table that refuses such names.
        declared = ", ".join(f"{sql.name(field.name)} {field.dataType.simpleString()}" for field in rows.schema.fields)
        spark.sql(f"CREATE TABLE IF NOT EXISTS {sql.delta(uri)} ({declared}) USING delta TBLPROPERTIES ({MAPPED_BY_NAME})")
        map_columns(spark, uri)


def _kinds(rows: DataFrame) -> list[str]:
    return [field.dataType.simpleString().upper() for field in rows.schema.fields]


def _append(rows: DataFrame, uri: str, properties: Mapping[str, str]) -> None:
    """Append rows.

    :param properties: table properties, if the append creates the table.
    """
    rows.write.format("delta").mode("append").options(mergeSchema="true", **properties).save(uri)


def read_appended(spark: SparkSession, uri: str) -> DataFrame | None:
    """Return all appended rows, None if there are none yet."""
    try:
        return analysed(spark.read.format("delta").load(uri))
    except AnalysisException as error:
        if (error.getCondition() or "").startswith(("DELTA_", "PATH_NOT_FOUND")):
            return None
        raise
