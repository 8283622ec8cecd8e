"""What a merge must know of its table is read in the log's own files, as Spark tells it; Spark is asked where they do not tell."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.merge import read_target
from airflow_cdc.pipeline.read_commits import newest_version
from tests.conftest import Apply
from tests.events import TOPIC, numbered, sqlserver, write_records


class _NoSpark:
    def sql(self, statement: str) -> Any:
        raise AssertionError(f"Spark is asked: {statement}")


@pytest.fixture
def table(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> Path:
    """A table of four versions, the last two of them somebody else's; a column has a name that only a mapping can hold."""
    after = {"id": 1, "an odd name": "x", "price": 1.5, "tags": '["a"]'}
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=after)]))
    apply(archive, lake)
    target = lake / TOPIC
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('mine' = '1')")
    spark.sql(f"ALTER TABLE delta.`{target}` ADD COLUMNS (more STRUCT<at: TIMESTAMP, amount: DECIMAL(12,2)> COMMENT 'theirs' AFTER id)")
    return target


def test_a_target_is_read_without_spark_as_spark_tells_it(table: Path, spark: SparkSession) -> None:
    read = read_target(_NoSpark(), str(table), known_version=1)  # type: ignore[arg-type]

    assert read
    assert "more" in read.columns
    assert read == read_target(spark, str(table))


def test_spark_is_asked_where_the_checksum_is_missing(table: Path, spark: SparkSession) -> None:
    newest = newest_version(str(table), 1)
    assert newest
    (table / "_delta_log" / f"{newest.version:020d}.crc").unlink()

    assert newest_version(str(table), 1) is None
    assert read_target(spark, str(table), known_version=1) == read_target(spark, str(table))


def test_a_table_that_has_gone_or_begun_anew_is_not_known(table: Path, spark: SparkSession) -> None:
    assert newest_version(str(table), 70) is None
    shutil.rmtree(table)

    assert newest_version(str(table), 1) is None
    assert read_target(spark, str(table), known_version=1) is None
