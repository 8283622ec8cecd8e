"""A Spark, a Delta or a server that jobs do not run on is refused at the start, by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyspark
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.spark import fitting_spark
from airflow_cdc.pipeline.spark.fitting_spark import refuse_other_server, refuse_unfit
from airflow_cdc.runtime import own_minor
from tests.conftest import Apply


def of_version(version: str) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(version=version))


def test_the_spark_of_these_tests_fits_and_its_delta_is_seen(spark: SparkSession) -> None:
    refuse_unfit(spark)
    jar = fitting_spark._delta_jar(spark)
    assert jar
    assert f"delta-spark_{own_minor().minor}_2.13" in jar


def test_a_class_on_no_class_path_is_no_delta(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting_spark, "_DELTA_CLASS", "io.delta.sql.NotThere")
    with pytest.raises(ConfigurationError, match=r"runs here without Delta: io\.delta\.sql\.NotThere is on no class path"):
        refuse_unfit(spark)


@pytest.mark.parametrize(
    ("version", "jar", "told"),
    [
        ("4.2.1", "file:/a/delta-spark_4.0_2.13-4.4.0.jar", r"delta-spark_4\.0_2\.13-4\.4\.0\.jar is built for Spark 4\.0 and Scala 2\.13"),
        ("4.0.4", "file:/ivy/io.delta_delta-spark_4.2_2.13-4.4.0.jar", r"is built for Spark 4\.2 .*this is Spark 4\.0\.4"),
        ("4.1.1", "file:/a/delta-spark_2.12-3.3.2.jar", r"is built for another Spark \(Delta 3\.3\.2\) and Scala 2\.12"),
        ("4.1.1", "file:/a/delta-spark_2.13-4.0.1.jar", r"is built for another Spark \(Delta 4\.0\.1\)"),
        ("3.5.8", "file:/a/delta-spark_2.12-3.3.2.jar", r"The driver of this job has Spark 3\.5\.8, and jobs run on"),
    ],
)
def test_another_delta_or_spark_is_refused(monkeypatch: pytest.MonkeyPatch, version: str, jar: str, told: str) -> None:
    monkeypatch.setattr(fitting_spark, "_delta_jar", lambda session: jar)
    with pytest.raises(ConfigurationError, match=told) as refused:
        refuse_unfit(of_version(version))
    if version != "3.5.8":
        assert f"io.delta:delta-spark_{version[:3]}_2.13:4.4.0" in refused.value.next_step


def test_a_driver_of_another_spark_is_refused_before_the_native_engine_works(
    apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "3.5.8")
    with pytest.raises(ConfigurationError, match=r"The driver of this job has Spark 3\.5\.8") as refused:
        apply(archive, lake)
    assert "--engine native" in refused.value.next_step
    assert not lake.exists()
    # Which engine that is leaves no doubt here: nothing to apply is no error.
    assert apply(archive, lake, engine=Engine.NATIVE).flows == ()


@pytest.mark.parametrize("jar", ["", "file:/databricks/jars/own-delta.jar", "file:/a/delta-spark_4.2_2.13-4.4.0.jar"])
def test_what_fits_passes_and_so_does_a_service_s_own_delta(monkeypatch: pytest.MonkeyPatch, jar: str) -> None:
    monkeypatch.setattr(fitting_spark, "_delta_jar", lambda session: jar)
    refuse_unfit(of_version("4.2.0"))


def test_a_server_has_the_minor_version_of_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.1.1")
    refuse_other_server(of_version("4.1.3"), "sc://h")
    with pytest.raises(
        ConfigurationError, match=r"sc://h has Spark 4\.2\.0, and its client here is of 4\.1\.1.*pyspark\[connect\]==4\.2\.\*"
    ):
        refuse_other_server(of_version("4.2.0"), "sc://h")
    with pytest.raises(ConfigurationError, match=r"The Spark Connect server sc://h has Spark 3\.5\.8, and jobs run on"):
        refuse_other_server(of_version("3.5.8"), "sc://h")


def test_a_session_is_checked_when_it_starts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_cdc.pipeline.spark import session

    seen: list[Any] = []
    monkeypatch.setattr(session, "refuse_unfit", seen.append)
    started = session.start_session("again", master="local[2]")
    assert seen == [started]
