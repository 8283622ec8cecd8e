"""What a store needs on Spark's side: the class that reaches it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.storage import CONNECTORS, store_of
from airflow_cdc.pipeline.run.explain_failure import missing_connector
from airflow_cdc.runtime import own_minor
from airflow_cdc.runtime.layout import pyspark_folder


@pytest.mark.parametrize(("uri", "scheme"), [("s3a://b/t", "s3"), ("gs://b/t", "gs"), ("abfss://c@a.dfs.core.windows.net/t", "abfss")])
def test_a_store_that_spark_cannot_reach_ends_in_the_package_that_is_missing(spark: SparkSession, uri: str, scheme: str) -> None:
    with pytest.raises(Exception, match=r"not found|No FileSystem for scheme") as failed:
        spark.read.text(uri).count()
    error = missing_connector(failed.value)
    assert error is not None
    assert (own_minor().gs if scheme == "gs" else f"{CONNECTORS[scheme][1]}:{own_minor().hadoop}") in error.next_step


def test_another_failure_is_left_to_others(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="PATH_NOT_FOUND") as failed:
        spark.read.text(str(tmp_path / "nothing")).count()
    assert missing_connector(failed.value) is None


def test_the_packages_are_of_the_hadoop_that_pyspark_ships() -> None:
    (jar,) = (pyspark_folder() / "jars").glob("hadoop-client-api-*.jar")
    version = jar.stem.removeprefix("hadoop-client-api-")
    assert own_minor().hadoop == version


def test_a_store_has_one_name_however_it_is_spelled() -> None:
    assert {store_of(f"{scheme}://b/{path}") for scheme in ("s3", "s3a", "s3n") for path in ("", "x/y")} == {"s3://b"}
    assert store_of("abfs://c@a.dfs.core.windows.net/x") == "abfss://c@a.dfs.core.windows.net"
    assert store_of("hdfs://n:8020/x") != store_of("hdfs://m:8020/x")
