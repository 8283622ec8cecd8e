"""What a store needs on Spark's side, the class that reaches it; and whose credentials reach a store."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import SparkSession

from airflow_cdc.model.storage import CONNECTORS, store_of
from airflow_cdc.pipeline.run.explain_failure import missing_connector
from airflow_cdc.pipeline.spark import storage
from airflow_cdc.pipeline.spark.storage import delta_options, file_system, scoped_options
from airflow_cdc.plugins.page.carried import carried
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


BUCKET = "s3://of-scopes"


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Options that file systems were made with."""
    made: list[dict[str, Any]] = []

    def url_to_fs(uri: str, **options: Any) -> tuple[LocalFileSystem, str]:
        made.append(options)
        return LocalFileSystem(), uri

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    monkeypatch.setattr(storage, "_OPTIONS", {})
    monkeypatch.setattr(storage, "_CALLED", set())
    monkeypatch.setattr(storage, "_has_profiles", lambda: False)
    # Of these delta-rs would take some.
    for name in [name for name in os.environ if name.startswith("AWS_") or name in ("TOKEN", "REGION")]:
        monkeypatch.delenv(name)
    return made


def key(name: str) -> dict[str, dict[str, str]]:
    return {BUCKET: {"key": name, "secret": f"of-{name}"}}


def test_two_lakes_in_one_bucket_are_reached_each_with_its_own_key(given: list[dict[str, Any]]) -> None:
    for name in ("first", "second", "first"):
        with scoped_options(key(name)):
            file_system(f"{BUCKET}/lake")
            assert delta_options(f"{BUCKET}/lake/t")["aws_access_key_id"] == name
    assert [options["key"] for options in given] == ["first", "second", "first"]


def test_a_scope_takes_precedence_and_ends(given: list[dict[str, Any]]) -> None:
    storage.use_options(key("process"))
    with scoped_options(key("outer")):
        with scoped_options(key("inner")):
            file_system(f"{BUCKET}/x")
        file_system(f"{BUCKET}/x")
        assert storage.options_in_use() == key("outer")
    file_system(f"{BUCKET}/x")
    assert [options["key"] for options in given] == ["inner", "outer", "process"]


@pytest.mark.usefixtures("given")
def test_threads_that_a_scope_starts_have_its_key_and_no_others_do() -> None:
    def used(_: int) -> str:
        file_system(f"{BUCKET}/x")
        return str(delta_options(f"{BUCKET}/x")["aws_access_key_id"])

    found: dict[str, set[str]] = {}
    with ThreadPoolExecutor(4) as pool:

        def serve(name: str) -> None:
            with scoped_options(key(name)):
                found[name] = set(pool.map(carried(used), range(50)))

        servers = [threading.Thread(target=serve, args=(name,)) for name in ("first", "second", "third")]
        for each in servers:
            each.start()
        for each in servers:
            each.join()
    assert found == {name: {name} for name in ("first", "second", "third")}
