"""A table that delta-rs creates is the one that Spark would have created."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.column_origin import GUESSED_COMMENT
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.target.create_natively import create_natively
from airflow_cdc.pipeline.target.create_table import NewTable, create_target
from airflow_cdc.pipeline.target.target_table import read_target

pytest.importorskip("deltalake")

NEW = NewTable(
    columns={
        "id": "BIGINT",
        "tiny": "TINYINT",
        "amount": "DECIMAL(38,9)",
        "at": "TIMESTAMP",
        "local": "TIMESTAMP_NTZ",
        "raw": "BINARY",
        "tags": "ARRAY<STRING>",
    },
    keys=("id",),
    mode=TableMode.CURRENT,
    comments={"amount": GUESSED_COMMENT},
)


def test_both_ways_create_one_table(spark: SparkSession, tmp_path: Path) -> None:
    by_spark, natively = (str(tmp_path / name) for name in ("spark", "natively"))
    assert create_natively(spark, natively, NEW).columns == create_target(spark, by_spark, NEW).columns
    one, other = (spark.read.format("delta").load(uri).schema for uri in (natively, by_spark))
    assert one.json() == other.json()
    described = [spark.sql(f"DESCRIBE DETAIL delta.`{uri}`").collect()[0] for uri in (natively, by_spark)]
    assert described[0]["properties"] == described[1]["properties"]
    # Spark also names these two of every old table's where a table has any newer one; neither is used.
    assert set(described[0]["tableFeatures"]) | {"appendOnly", "invariants"} == set(described[1]["tableFeatures"])
    found, expected = read_target(spark, natively), read_target(spark, by_spark)
    assert found is not None
    assert expected is not None
    assert (found.keys, found.mode, found.guessed, found.columns) == (expected.keys, expected.mode, expected.guessed, expected.columns)
    # A run that was killed behind the creation begins again.
    create_natively(spark, natively, NEW)
    assert spark.sql(f"DESCRIBE HISTORY delta.`{natively}`").count() == 1
