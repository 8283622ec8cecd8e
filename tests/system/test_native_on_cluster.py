"""What the driver has no room for is folded by the executors of a real cluster, where their Python has the packages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.properties.test_two_engines import DIALECTS, PAIRED, TOPIC, archive_of
from tests.support.events import Row, sqlserver, write_records
from tests.support.tables import read_rows
from tests.system.spark_cluster import SparkCluster

pytestmark = pytest.mark.system_deep
IN_A_CONTAINER = {"CONTAINER_ID": "container_1_0001_01_000001"}
"""As of a driver on YARN, which has room for 64 MiB of text."""
SYSTEM_PYTHON = "/usr/bin/python3"
FLOWS = f"flows:\n  - topic: {TOPIC}\n    columns: {{share: DOUBLE}}\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    started = SparkCluster(tmp_path_factory.mktemp("cluster") / "own", workers=2)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def large_archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Row]]:
    """Return a sink's files of more text than a driver on YARN takes, in three partitions, and the source's rows."""
    folder = tmp_path_factory.mktemp("archive")
    rows = archive_of(DIALECTS["sqlserver"], 1, folder, files=2, changes=110_000, layout=PAIRED)
    return folder, rows


def applied(cluster: SparkCluster, archive: Path, folder: Path, *, python: str) -> dict[str, Any]:
    """Apply the archive by a driver on YARN and return the report of the only microbatch."""
    report, _ = run(cluster, archive, folder, PYSPARK_PYTHON=python, LOCAL_DIRS=str(folder / "local"), **IN_A_CONTAINER)
    ((batch,),) = ([flow["batches"] for flow in report["flows"]],)
    return dict(batch[0])


def run(cluster: SparkCluster, archive: Path, folder: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """Apply the archive and return the report, and what the command says on the way."""
    (folder / "flows.yaml").write_text(FLOWS, encoding="ascii")
    places = ["--archive", str(archive), "--lake", str(folder / "lake"), "--flows", str(folder / "flows.yaml")]
    settings = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=1g"]
    command = [sys.executable, "-m", "airflow_cdc", "apply", *places, "--master", f"spark://{cluster.host}", *settings, "--json"]
    ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=600)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout), ended.stderr


def test_executors_fold_what_the_driver_has_no_room_for(
    cluster: SparkCluster, large_archive: tuple[Path, dict[int, Row]], spark: SparkSession, tmp_path: Path
) -> None:
    archive, rows = large_archive
    report = applied(cluster, archive, tmp_path, python=sys.executable)
    assert report["engine"] == "mixed"
    assert report["engine_reason"].endswith("MiB of memory, and 384 MiB are free")
    assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "lake"), TOPIC).rows} == rows
    assert report["events"]["read"] > 120_000


def test_executors_without_the_packages_leave_it_to_spark(
    cluster: SparkCluster, large_archive: tuple[Path, dict[int, Row]], spark: SparkSession, tmp_path: Path
) -> None:
    archive, rows = large_archive
    report = applied(cluster, archive, tmp_path, python=SYSTEM_PYTHON)
    assert report["engine"] == "spark"
    assert report["engine_reason"].startswith("the executors cannot fold: ")
    assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "lake"), TOPIC).rows} == rows


TABLES = 20


@pytest.fixture(scope="module")
def many_tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of many small tables, of which one has a line that only Spark reads."""
    folder = tmp_path_factory.mktemp("many")
    for number in range(TABLES):
        topic = f"source.dbo.table{number:02d}"
        records = [
            sqlserver("c", commit=key + 1, key={"id": key}, after={"id": key, "n": number}, topic=topic, offset=key) for key in range(5)
        ]
        path = write_records(folder / topic / "0.jsonl", records)
        if number == 7:
            path.write_text(path.read_text(encoding="utf-8") + "{\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("python", [sys.executable, SYSTEM_PYTHON], ids=["with the packages", "without them"])
def test_many_tables_are_applied_by_executors_or_else_by_the_driver(
    python: str, cluster: SparkCluster, many_tables: Path, spark: SparkSession, tmp_path: Path
) -> None:
    report, said = run(cluster, many_tables, tmp_path, PYSPARK_PYTHON=python)
    assert f"{TABLES} flows are applied by 3 tasks" in said
    assert ("the tasks cannot apply flows: " in said) == (python == SYSTEM_PYTHON)
    engines = {flow["flow"]: [batch["engine"] for batch in flow["batches"]] for flow in report["flows"]}
    assert engines.pop("source.dbo.table07") == ["spark"]
    assert list(engines.values()) == [["native"]] * (TABLES - 1)
    for number in range(TABLES):
        found = read_rows(spark, str(tmp_path / "lake"), f"source.dbo.table{number:02d}").rows
        assert {row["id"]: row["n"] for row in found} == dict.fromkeys(range(5), number)
