"""Merges by a real YARN, archive and lake on a real HDFS: submitted, left, cleared, lost, killed, by an Airflow as users run it."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cdc.model.files import create_json, read_json
from airflow_cdc.model.state.lease import Leases
from airflow_cdc.runtime.layout import pyspark_folder
from airflow_cdc.runtime.web_hdfs import hdfs_file_system
from tests.support.events import numbered, sqlserver, write_records
from tests.system.live_airflow import REPOSITORY, LiveAirflow, running
from tests.system.test_object_store import watched
from tests.system.web_gateway import running_gateway
from tests.system.yarn_cluster import PYTHON, YarnCluster, running_cluster

pytestmark = pytest.mark.system_deep

USER = getpass.getuser()
SECRET = "gateway-s3cr3t-0123456789"
TOPIC = "server1.testDB.dbo.t"
DAGS = """
from datetime import timedelta
from airflow.sdk import DAG
from airflow_cdc.operators.merge import CdcMergeOperator


class Impatient(CdcMergeOperator):
    # Fails after 20 seconds where another run has the flow's lease, and not after ten minutes.
    def _arguments(self, *given):
        yield from super()._arguments(*given)
        yield from ("--wait", "20")


ways = {{
    "client": {{"conn_id": "yarn_client"}},
    "waiting": {{"conn_id": "yarn_cluster", "yarn_track_via_rm_api": True}},
    "untracked": {{"conn_id": "yarn_nameless", "durable": False}},
    "deferred": {{"conn_id": "yarn_cluster", "deferrable": True, "poke_interval": 2}},
}}
for name, way in ways.items():
    with DAG(name, schedule=None, default_args={{"retries": 1, "retry_delay": timedelta(seconds=1)}}):
        CdcMergeOperator(task_id="merge", conf={conf!r}, py_files={wheel!r}, **way)
    with DAG(f"impatient_{{name}}", schedule=None, default_args={{"retries": 1, "retry_delay": timedelta(seconds=1)}}):
        # Retries are Airflow's alone: YARN would start a driver again that ended with an error.
        Impatient(task_id="merge", conf={{**{conf!r}, "spark.yarn.maxAppAttempts": "1"}}, py_files={wheel!r}, **way)
"""
CONF = {
    # Every node has this Spark; without it each application would take half a gigabyte of jars along.
    "spark.yarn.jars": f"local:{pyspark_folder()}/jars/*",
    "spark.yarn.appMasterEnv.PYSPARK_PYTHON": str(PYTHON),
    "spark.executor.instances": "1",
    "spark.executor.memory": "640m",
    "spark.driver.memory": "768m",
}


class Yard:
    """An archive and a lake on HDFS of one test's own, to which a live Airflow's connections lead."""

    def __init__(self, airflow: LiveAirflow, cluster: YarnCluster, folder: Path, *, gateway: int | None = None) -> None:
        self.airflow, self.cluster, self._folder = airflow, cluster, folder
        self.home, self._rows = f"/{folder.name}", 0
        host, port = cluster.web_hdfs.split(":")
        self._web = {"protocol": "webhdfs", "hosts": [host], "port": int(port), "user": USER}
        self.fs = self.open()
        self.known = {app["id"] for app in cluster.applications()}
        web = {"port": gateway, "password": SECRET} if gateway else {"port": int(port)}
        self._connect("hadoop", "webhdfs", "127.0.0.1" if gateway else host, login=USER, **web)
        for name in ("archive", "lake"):
            self._connect(f"cdc_{name}_default", f"cdc_{name}", f"{cluster.hdfs}{self.home}/{name}", extra={"storage_conn_id": "hadoop"})

    def _connect(self, conn_id: str, conn_type: str, host: str, **more: Any) -> None:
        self.airflow.disconnect(conn_id)
        self.airflow.connect(conn_id, conn_type, host, **more)

    def open(self) -> Any:
        """Return the file system, of the calling thread's own."""
        return hdfs_file_system(self.cluster.hdfs, self._web)[0]

    def land(self, rows: int = 20) -> None:
        """Land one file with new rows."""
        numbers = range(self._rows + 1, self._rows + rows + 1)
        records = [sqlserver("c", commit=number, change=number, after={"id": number, "name": "x"}, topic=TOPIC) for number in numbers]
        file = self._folder / f"{TOPIC}-{self._rows}.jsonl"
        write_records(file, numbered(records, first=self._rows))
        self.fs.pipe_file(f"{self.home}/archive/{file.name}", file.read_bytes())
        self._rows += rows

    def rows(self) -> int:
        """Return the number of rows in the table, as another engine reads them."""
        copy = self._folder / f"copy-{len(list(self._folder.iterdir()))}"
        self.fs.get(f"{self.home}/lake/{TOPIC}", str(copy), recursive=True)
        return int(QueryBuilder().register("t", DeltaTable(copy)).execute("SELECT * FROM t").read_all().num_rows)

    def commits(self) -> int:
        """Return the number of commit markers."""
        return len(self.fs.ls(f"{self.home}/lake/_cdc/flows/{TOPIC}/commits"))

    def applications(self) -> list[dict[str, Any]]:
        """Return this test's applications, the oldest first."""
        return [app for app in self.cluster.applications() if app["id"] not in self.known]

    def wait_for(self, *states: str, count: int = 1) -> dict[str, Any]:
        """Return the newest application once there are so many and it is in one of the states."""

        def there() -> dict[str, Any] | None:
            found = self.applications()
            return found[-1] if len(found) >= count and found[-1]["state"] in states else None

        return self.airflow.until(there, f"application {count} to be {' or '.join(states)}", seconds=300)

    def merge(self, way: str) -> str:
        """Run a Dag to its end and return the run."""
        run = self.airflow.trigger(way)
        assert self.airflow.wait_for_run(way, run, seconds=600) == "success", self.seen_of_runs()
        return run

    def clear(self, way: str, run: str) -> None:
        """Clear the task of a run, as a user does."""
        body = {"dry_run": False, "dag_run_id": run, "task_ids": ["merge"], "only_failed": False, "reset_dag_runs": True}
        self.airflow.ask("POST", f"/dags/{way}/clearTaskInstances", body)

    def seen_of_runs(self) -> str:
        """Return what everybody logged."""
        return f"{self.airflow.logs()}\n{self.cluster.container_logs()[-20000:]}"

    def refuse_secret(self, seen: set[str]) -> None:
        """See that the password stands in no log, command line, answer of YARN's and file that anybody left."""
        assert any("--storage" in line for line in seen), "the job was looked at"
        seen_of_runs = [*seen, str(self.cluster.ask("apps")), *map(str, self.applications())]
        assert not [text for text in seen_of_runs if SECRET in text]
        for folder in (self.airflow.home, self.cluster.folder):
            left = [file for file in folder.rglob("*") if file.is_file() and SECRET.encode() in file.read_bytes()]
            assert not left


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    with running_cluster(tmp_path_factory.mktemp("yarn") / "cluster") as started:
        yield started


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory, cluster: YarnCluster) -> Iterator[LiveAirflow]:
    folder = tmp_path_factory.mktemp("live")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    dags = folder / "dags"
    dags.mkdir()
    (dags / "ways.py").write_text(DAGS.format(conf=CONF, wheel=str(wheel)))
    # Spark takes PYTHONPATH along into the cluster, where the wheel shall serve; of a folder it starts in, Python imports as well.
    scratch = folder / "home" / "tmp"
    started = LiveAirflow(folder / "home", dags, HADOOP_CONF_DIR=str(cluster.conf_folder), PYTHONPATH="", TMPDIR=str(scratch))
    scratch.mkdir()
    (started.home / "airflow_cdc").symlink_to(REPOSITORY / "airflow_cdc")
    with running(started):
        manager = {"yarn_resourcemanager_webapp_address": cluster.resource_manager}
        started.connect("yarn_client", "spark", "yarn", extra={"deploy-mode": "client"})
        started.connect("yarn_cluster", "spark", "yarn", extra={"deploy-mode": "cluster", **manager})
        started.connect("yarn_nameless", "spark", "yarn", extra={"deploy-mode": "cluster"})
        started.until(lambda: {"deferred", "impatient_deferred"} <= {*started.dag_ids()} or None, "the Dags to be parsed", seconds=120)
        yield started


@pytest.fixture
def yard(airflow: LiveAirflow, cluster: YarnCluster, tmp_path: Path) -> Yard:
    return Yard(airflow, cluster, tmp_path)


def test_of_several_writers_one_creates_a_state_file(yard: Yard) -> None:
    writers, rounds = 4, 10
    together = threading.Barrier(writers)

    def write(writer: int) -> list[bool]:
        won = []
        for number in range(rounds):
            together.wait()
            won.append(create_json(yard.open(), f"{yard.home}/race/{number}.json", {"writer": writer}))
        return won

    with ThreadPoolExecutor(writers) as pool:
        results = list(pool.map(write, range(writers)))
    winners = [[writer for writer in range(writers) if results[writer][number]] for number in range(rounds)]
    assert winners == [[(read_json(yard.fs, f"{yard.home}/race/{number}.json") or {})["writer"]] for number in range(rounds)]
    assert len(yard.fs.ls(f"{yard.home}/race")) == rounds


def test_the_connection_form_shows_what_it_found(yard: Yard) -> None:
    yard.land()
    body = {"connection_id": "tried", "conn_type": "cdc_archive", "host": f"{yard.cluster.hdfs}{yard.home}/archive"}
    extra = json.dumps({"storage_conn_id": "hadoop"})
    found = yard.airflow.ask("POST", "/connections/test", {**body, "extra": extra})
    assert found["status"] is True, found
    assert "1 files of 1 topics" in found["message"]


def test_a_driver_on_the_worker_merges_from_hdfs_into_hdfs(yard: Yard) -> None:
    for rows in (20, 40):
        yard.land()
        run = yard.merge("client")
        assert yard.rows() == rows
        assert yard.airflow.xcom("client", run, "merge")["rows"]["inserted"] == 20
    assert yard.commits() == 2
    assert [app["finalStatus"] for app in yard.applications()] == ["SUCCEEDED", "SUCCEEDED"]


@pytest.mark.parametrize("way", ["client", "waiting", "untracked", "deferred"])
def test_a_task_merges_and_once_more_when_it_is_cleared(yard: Yard, way: str) -> None:
    yard.land()
    run = yard.merge(way)
    assert yard.rows() == 20
    assert yard.airflow.xcom(way, run, "merge")["rows"]["inserted"] == 20
    yard.land()
    yard.clear(way, run)
    assert yard.airflow.wait_for_run(way, run, seconds=600) == "success", yard.seen_of_runs()
    assert (yard.rows(), yard.commits()) == (40, 2)
    assert [app["finalStatus"] for app in yard.applications()] == ["SUCCEEDED", "SUCCEEDED"]


def test_the_try_after_a_lost_worker_takes_up_the_application(yard: Yard) -> None:
    yard.land()
    run = yard.airflow.trigger("waiting")
    yard.wait_for("RUNNING")
    # With LocalExecutor that is the machine of the workers, too.
    yard.airflow.kill_part("scheduler")
    yard.airflow.start_part("scheduler")
    assert yard.airflow.wait_for_run("waiting", run, seconds=600) == "success", yard.seen_of_runs()
    assert yard.airflow.task("waiting", run, "merge")["try_number"] == 2
    assert (yard.rows(), len(yard.applications())) == (20, 1)


def test_a_left_application_outlives_the_workers(yard: Yard) -> None:
    yard.land()
    run = yard.airflow.trigger("deferred")
    yard.airflow.wait_for_task("deferred", run, "merge", "deferred", seconds=300)
    yard.wait_for("RUNNING")
    yard.airflow.kill_part("scheduler")
    # Nobody can end the task before its application has ended.
    assert yard.wait_for("FINISHED")["finalStatus"] == "SUCCEEDED"
    yard.airflow.start_part("scheduler")
    assert yard.airflow.wait_for_run("deferred", run, seconds=600) == "success", yard.seen_of_runs()
    # It was no try that failed.
    assert yard.airflow.task("deferred", run, "merge")["try_number"] == 1
    assert (yard.rows(), len(yard.applications())) == (20, 1)


@pytest.mark.parametrize("way", ["impatient_client", "impatient_deferred"])
def test_a_job_that_ended_with_an_error_which_may_pass_is_submitted_once_more(yard: Yard, way: str) -> None:
    yard.land()
    lease = Leases(yard.fs, f"{yard.home}/lake").take(TOPIC)
    run = yard.airflow.trigger(way)
    # Not for its application: with the first try's survey, the one on the worker starts no Spark before it has the lease.
    yard.airflow.until(lambda: yard.airflow.task(way, run, "merge")["try_number"] == 2 or None, f"the second try of {way}", seconds=300)
    lease.release()
    assert yard.airflow.wait_for_run(way, run, seconds=600) == "success", yard.seen_of_runs()
    assert yard.airflow.task(way, run, "merge")["try_number"] == 2
    assert "ConcurrentRunError" in yard.airflow.task_log(way, run, "merge")
    assert (yard.rows(), yard.commits(), len(yard.applications())) == (20, 1, 2)


def test_a_left_application_outlives_triggerer_and_resource_manager(yard: Yard) -> None:
    yard.land()
    run = yard.airflow.trigger("deferred")
    yard.airflow.wait_for_task("deferred", run, "merge", "deferred", seconds=300)
    yard.wait_for("RUNNING")
    yard.airflow.kill_part("triggerer")
    yard.cluster.restart_resource_manager()
    yard.airflow.start_part("triggerer")
    assert yard.airflow.wait_for_run("deferred", run, seconds=600) == "success", yard.seen_of_runs()
    assert (yard.rows(), len(yard.applications())) == (20, 1)


def test_a_waiting_task_outlives_the_resource_manager(yard: Yard) -> None:
    yard.land()
    run = yard.airflow.trigger("waiting")
    yard.wait_for("RUNNING")
    yard.cluster.restart_resource_manager()
    assert yard.airflow.wait_for_run("waiting", run, seconds=600) == "success", yard.seen_of_runs()
    assert (yard.rows(), len(yard.applications())) == (20, 1)


@pytest.mark.parametrize("way", ["client", "waiting", "deferred"])
def test_a_user_who_ends_the_task_ends_the_application(yard: Yard, way: str) -> None:
    yard.land()
    run = yard.airflow.trigger(way)
    yard.wait_for("RUNNING")
    if way == "deferred":
        yard.airflow.wait_for_task(way, run, "merge", "deferred", seconds=120)
    path = f"/dags/{way}/dagRuns/{quote(run)}/taskInstances/merge"
    yard.airflow.ask("PATCH", path, {"new_state": "failed"})
    ended = yard.wait_for("KILLED", "FAILED", "FINISHED")
    # Of a driver outside, the cluster learns only that it has gone.
    assert way == "client" or ended["finalStatus"] == "KILLED"
    # Whatever was in work, the next run does it.
    yard.merge(way)
    assert yard.rows() == 20


def test_a_password_serves_where_the_driver_is_here_and_is_seen_nowhere(airflow: LiveAirflow, cluster: YarnCluster, tmp_path: Path) -> None:
    with running_gateway(cluster.web_hdfs, USER, SECRET) as port, watched(os.getpid()) as seen:
        yard = Yard(airflow, cluster, tmp_path, gateway=port)
        yard.land()
        yard.merge("client")
        assert yard.rows() == 20
        yard.refuse_secret(seen)
        # In the cluster it would stand in a command line: nothing is submitted.
        for way in ("waiting", "untracked", "deferred"):
            run = airflow.trigger(way)
            assert airflow.wait_for_run(way, run) == "failed"
            assert airflow.task(way, run, "merge")["try_number"] == 1
            assert "A storage connection holds credentials" in airflow.task_log(way, run, "merge")
            yard.refuse_secret(seen)
        assert len(yard.applications()) == 1


def test_a_driver_that_is_lost_with_its_node_is_started_on_the_other(yard: Yard) -> None:
    yard.land()
    run = yard.airflow.trigger("deferred")
    # The last test: nobody starts the node again.
    yard.cluster.stop_node(yard.wait_for("RUNNING")["amHostHttpAddress"])
    assert yard.airflow.wait_for_run("deferred", run, seconds=900) == "success", yard.seen_of_runs()
    (application,) = yard.applications()
    assert len(yard.cluster.ask(f"apps/{application['id']}/appattempts")["appAttempts"]["appAttempt"]) == 2
    assert (yard.rows(), yard.commits()) == (20, 1)
