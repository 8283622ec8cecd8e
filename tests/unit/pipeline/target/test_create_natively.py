"""A table that delta-rs creates is the one that Spark would have created."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
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
        "it's a `name`": "ARRAY<STRING>",
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
    assert set(described[0]["tableFeatures"]) == set(described[1]["tableFeatures"])
    found, expected = read_target(spark, natively), read_target(spark, by_spark)
    assert found is not None
    assert expected is not None
    assert (found.keys, found.mode, found.guessed, found.columns) == (expected.keys, expected.mode, expected.guessed, expected.columns)
    # A run that was killed behind the creation begins again.
    create_natively(spark, natively, NEW)
    assert spark.sql(f"DESCRIBE HISTORY delta.`{natively}`").count() == 1


def test_a_folder_that_holds_other_files_is_left_to_spark_which_refuses_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(AnalysisException, match="NON_EMPTY"):
        create_natively(spark, str(tmp_path / "taken"), NEW)
    assert not (tmp_path / "taken" / "_delta_log").exists()
