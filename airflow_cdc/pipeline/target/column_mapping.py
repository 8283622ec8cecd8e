"""Column mapping: how a Delta table takes names that Parquet would refuse."""

from __future__ import annotations

from pyspark.sql import SparkSession

from airflow_cdc.pipeline import sql

MODE_OF_MAPPING = "delta.columnMapping.mode"
"""Table property: how the columns of the table's files are named."""
MAPPED_BY_NAME = f"'{MODE_OF_MAPPING}' = 'name'"
"""The property as SQL: a column has a name of its own in the files, and any name in the table."""


def map_columns(spark: SparkSession, uri: str) -> None:
    """Let a table take any name from now on; what it holds stays as it is."""
    detail = spark.sql(f"DESCRIBE DETAIL {sql.delta(uri)}").collect()[0]
    if detail["properties"].get(MODE_OF_MAPPING) != "name":
        spark.sql(f"ALTER TABLE {sql.delta(uri)} SET TBLPROPERTIES ({MAPPED_BY_NAME})")
