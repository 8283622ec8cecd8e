"""The shipped Dags in an Airflow as users run it: started, connected and watched through its API, and hurt while it works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.inspect_lake import read_rows, summarize_flows
from tests.events import numbered, sqlserver, write_records
from tests.system.live_airflow import REPOSITORY, LiveAirflow, running
from tests.system.spark_cluster import SparkCluster

pytestmark = pytest.mark.system_deep
MERGE = "cdc_merge"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    home = tmp_path_factory.mktemp("live") / "home"
    with running(LiveAirflow(home, REPOSITORY / "dags", AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="True")) as started:
        started.connect("spark_default", "spark", "local[2]")
        started.until(lambda: MERGE in started.dag_ids() or None, "the Dags to be parsed", seconds=60)
        yield started


class Shop:
    """An archive and a lake of one test's own, to which the connections lead."""

    def __init__(self, airflow: LiveAirflow, folder: Path) -> None:
        self.airflow, self.archive, self.lake = airflow, folder / "archive", folder / "lake"
        self._offset = 0
        self.archive.mkdir()
        for conn_id, conn_type, place in (
            ("cdc_archive_default", "cdc_archive", self.archive),
            ("cdc_lake_default", "cdc_lake", self.lake),
        ):
            airflow.disconnect(conn_id)
            airflow.connect(conn_id, conn_type, str(place))

    def land(self, *, tables: int = 1, rows: int = 20) -> None:
        """Land one file a table, each with new rows."""
        for table in range(tables):
            topic = f"server1.testDB.dbo.t{table}"
            numbers = range(self._offset + 1, self._offset + rows + 1)
            records = [sqlserver("c", commit=number, change=number, after={"id": number, "name": "x"}, topic=topic) for number in numbers]
            write_records(self.archive / f"{topic}-{self._offset}.jsonl", numbered(records, first=self._offset))
        self._offset += rows

    def rows(self, spark: SparkSession) -> dict[str, int]:
        """Return the number of rows by table."""
        flows = [flow.flow for flow in summarize_flows(spark, str(self.lake)) if flow.microbatches]
        return {flow.rsplit(".", 1)[-1]: len(read_rows(spark, str(self.lake), flow).rows) for flow in flows}

    def commits(self) -> list[Path]:
        """Return the commit markers."""
        return sorted(self.lake.glob("_cdc/flows/*/commits/*.json"))


@pytest.fixture
def shop(airflow: LiveAirflow, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(airflow, tmp_path)
    for dag_id in airflow.dag_ids():
        airflow.pause(dag_id)


def test_the_connection_form_says_what_it_found(airflow: LiveAirflow, shop: Shop) -> None:
    shop.land(tables=2)
    body: dict[str, Any] = {"connection_id": "tried", "conn_type": "cdc_archive", "host": str(shop.archive)}
    found = airflow.ask("POST", "/connections/test", body)
    assert found["status"] is True, found
    assert "2 files of 2 topics" in found["message"]
    missing = airflow.ask("POST", "/connections/test", {**body, "host": f"{shop.archive}/none"})
    assert missing["status"] is False
    assert "There is no archive" in missing["message"]


def test_a_run_by_hand_merges_what_is_archived(airflow: LiveAirflow, shop: Shop, spark: SparkSession) -> None:
    airflow.trigger(MERGE)
    airflow.unpause(MERGE)
    airflow.until(lambda: None if airflow.active_runs(MERGE) else True, "the runs without files to end", seconds=120)
    shop.land(tables=2)
    run = airflow.trigger(MERGE, conf={"tables": ["*.t1"]})
    assert airflow.wait_for_run(MERGE, run) == "success", airflow.logs()
    assert shop.rows(spark) == {"t1": 20}
    result = airflow.xcom(MERGE, run, "merge")
    assert result["flows"]["server1.testDB.dbo.t1"]["rows"]["inserted"] == 20


def test_a_worker_killed_while_it_merges_loses_nothing(airflow: LiveAirflow, shop: Shop, spark: SparkSession) -> None:
    shop.land(tables=6, rows=200)
    airflow.trigger(MERGE)
    airflow.unpause(MERGE)
    airflow.until(lambda: shop.commits() or None, "the first commit", seconds=180)
    run = airflow.run_at_work(MERGE, "merge")
    (job,) = _processes("jobs/apply.py", str(shop.archive))[-1:]
    task = next(parent for parent in job.parents() if parent.name() != "java" and "airflow" in " ".join(parent.cmdline()))
    worker = task.parent()
    assert worker is not None
    for process in (worker, task):
        process.kill()
    airflow.until(lambda: None if job.is_running() else True, "the job to end with its worker", seconds=30)
    done = len(shop.commits())
    assert done < 6, "killed too late to tell anything"
    assert airflow.wait_for_run(MERGE, run, seconds=400) == "success", airflow.logs()
    assert airflow.task(MERGE, run, "merge")["try_number"] == 2
    assert shop.rows(spark) == {f"t{table}": 200 for table in range(6)}
    assert len(shop.commits()) == 6


def test_a_standalone_cluster_that_loses_a_worker(airflow: LiveAirflow, shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path / "cluster", workers=2)
    try:
        airflow.disconnect("spark_default")
        airflow.connect("spark_default", "spark", f"spark://{cluster.host}")
        shop.land(tables=6, rows=200)
        airflow.trigger(MERGE)
        airflow.unpause(MERGE)
        airflow.until(lambda: shop.commits() or None, "the first commit", seconds=240)
        run = airflow.run_at_work(MERGE, "merge")
        assert len({executor.parent.parent.name for executor in cluster.executors()}) == 2, "both workers take part"
        cluster.kill_worker(0)
        assert airflow.wait_for_run(MERGE, run, seconds=600) == "success", airflow.logs()
        assert shop.rows(spark) == {f"t{table}": 200 for table in range(6)}
    finally:
        cluster.stop()
        airflow.disconnect("spark_default")
        airflow.connect("spark_default", "spark", "local[2]")


def _processes(*words: str) -> list[psutil.Process]:
    """Return the Python processes whose command line holds all of the words."""
    found = []
    for process in psutil.process_iter(["cmdline", "name"]):
        line = " ".join(process.info["cmdline"] or [])
        if process.info["name"] != "java" and all(word in line for word in words):
            found.append(process)
    return found
