"""The shipped Dags in an Airflow as users run it: started, connected and watched through its API, and hurt while it works."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
from pyspark.sql import SparkSession

from tests.system.live_airflow import REPOSITORY, LiveAirflow, running
from tests.system.shop import Shop
from tests.system.spark_cluster import SparkCluster

pytestmark = pytest.mark.system_deep
MERGE, ON_FILES, HOURLY, PATIENT, REPAIR = "cdc_merge", "cdc_merge_on_files", "cdc_hourly", "cdc_patient", "cdc_repair"


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    folder = tmp_path_factory.mktemp("live")
    dags = Path(shutil.copytree(REPOSITORY / "dags", folder / "dags"))
    # As the how-to says: the same Dag with intervals that suit the backfill.
    backfill = (dags / "cdc_backfill.py").read_text(encoding="utf-8")
    (dags / "cdc_hourly.py").write_text(backfill.replace('"cdc_backfill"', f'"{HOURLY}"').replace("@monthly", "@hourly"), encoding="utf-8")
    patient = (dags / "cdc_merge.py").read_text(encoding="utf-8").replace(f'"{MERGE}"', f'"{PATIENT}"')
    patient = patient.replace("catchup=False,", "catchup=False, end_date=datetime(2026, 3, 1, tzinfo=timezone.utc),")
    patient = patient.replace("timeout=0, soft_fail=True", "timeout=600, poke_interval=5, deferrable=True")
    (dags / "cdc_patient.py").write_text(patient, encoding="utf-8")
    with running(LiveAirflow(folder / "home", dags, AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="True")) as started:
        started.connect("spark_default", "spark", "local[2]")
        started.until(lambda: {MERGE, HOURLY, PATIENT, ON_FILES} <= {*started.dag_ids()} or None, "the Dags to be parsed", seconds=60)
        yield started


@pytest.fixture
def shop(airflow: LiveAirflow, tmp_path: Path) -> Iterator[Shop]:
    yield Shop(airflow, tmp_path)
    for dag_id in airflow.dag_ids():
        airflow.pause(dag_id)


def test_the_connection_form_shows_what_it_found(airflow: LiveAirflow, shop: Shop) -> None:
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


def test_a_rebuild_waits_for_an_approval_and_a_rejected_one_does_nothing(airflow: LiveAirflow, shop: Shop) -> None:
    shop.land(tables=1)
    airflow.unpause(MERGE)
    assert airflow.wait_for_run(MERGE, airflow.trigger(MERGE, conf={"tables": ["*.t0"]})) == "success", airflow.logs()
    airflow.unpause(REPAIR)
    for answer, state in (("Reject", "skipped"), ("Approve", "success")):
        run = airflow.trigger(REPAIR, conf={"mode": "rebuild", "tables": ["*.t0"]})
        airflow.wait_for_task(REPAIR, run, "approve", "awaiting_input", "deferred")
        # An answer within a second, before the scheduler has seen the worker end, is lost to Airflow 3.3, which then asks again.
        time.sleep(5)
        assert airflow.task(REPAIR, run, "rebuild")["state"] is None
        place = f"/dags/{REPAIR}/dagRuns/{quote(run)}/taskInstances/approve/-1/hitlDetails"
        assert airflow.ask("GET", place)["subject"] == "Rebuild *.t0?"
        airflow.ask("PATCH", place, {"chosen_options": [answer], "params_input": {}})
        assert airflow.wait_for_run(REPAIR, run) == "success", airflow.logs()
        assert airflow.task(REPAIR, run, "rebuild")["state"] == state
    rebuilt = airflow.xcom(REPAIR, run, "rebuild")
    assert rebuilt["flows"]["server1.testDB.dbo.t0"]["rows"]["inserted"] == 20


def test_a_worker_killed_while_it_merges_loses_nothing(airflow: LiveAirflow, shop: Shop, spark: SparkSession) -> None:
    shop.merge_by_spark()
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
    assert done < 6, "killed too late to prove anything"
    assert airflow.wait_for_run(MERGE, run, seconds=400) == "success", airflow.logs()
    assert airflow.task(MERGE, run, "merge")["try_number"] == 2
    assert shop.rows(spark) == {f"t{table}": 200 for table in range(6)}
    assert len(shop.commits()) == 6


def test_a_sensor_that_waits_in_the_triggerer_outlives_it(airflow: LiveAirflow, shop: Shop, spark: SparkSession) -> None:
    airflow.unpause(PATIENT)
    run = airflow.trigger(PATIENT)
    airflow.wait_for_task(PATIENT, run, "wait_for_files", "deferred")
    airflow.kill_part("triggerer")
    shop.land()
    airflow.start_part("triggerer")
    assert airflow.wait_for_run(PATIENT, run) == "success", airflow.logs()
    assert shop.rows(spark) == {"t0": 20}


def test_files_that_land_start_a_run_and_a_dead_triggerer_loses_none(airflow: LiveAirflow, shop: Shop, spark: SparkSession) -> None:
    airflow.unpause(ON_FILES)
    shop.land()
    airflow.until(lambda: shop.rows(spark) == {"t0": 20} or None, "the first files to be merged", seconds=240)
    airflow.until(lambda: None if airflow.active_runs(ON_FILES) else True, "its run to end", seconds=120)
    known = airflow.runs(ON_FILES)
    airflow.kill_part("triggerer")
    shop.land()
    airflow.start_part("triggerer")
    airflow.until(lambda: shop.rows(spark) == {"t0": 40} or None, "what landed meanwhile to be merged", seconds=240)
    airflow.until(lambda: None if airflow.active_runs(ON_FILES) else True, "its run to end", seconds=120)
    new = airflow.runs(ON_FILES) - known
    assert new
    assert {airflow.run_state(ON_FILES, run) for run in new} == {"success"}, airflow.logs()


def test_a_backfill_of_past_intervals_ends_where_one_pass_does(airflow: LiveAirflow, shop: Shop, spark: SparkSession) -> None:
    for hour in range(4):
        shop.land(below=f"year=2026/month=02/day=03/hour={hour:02d}")
    begin, end = "2026-02-03T00:00:00+00:00", "2026-02-03T03:00:00+00:00"
    airflow.cli(
        "backfill", "create", "--dag-id", HOURLY, "--from-date", begin, "--to-date", end, "--max-active-runs", "4", "--run-backwards"
    )
    # Created while the Dag is paused: SQLite refuses the command's second run ("database is locked") where the scheduler starts its first.
    runs = airflow.active_runs(HOURLY)
    assert len(runs) == 4
    airflow.unpause(HOURLY)
    airflow.until(lambda: None if airflow.active_runs(HOURLY) else True, "the backfill to end", seconds=900)
    assert {airflow.run_state(HOURLY, run) for run in runs} == {"success"}, airflow.logs()
    assert shop.rows(spark) == {"t0": 80}
    # A microbatch an interval, each of its one file: no run took another's.
    assert len(shop.commits()) == 4


def test_a_standalone_cluster_that_loses_a_worker(airflow: LiveAirflow, shop: Shop, spark: SparkSession, tmp_path: Path) -> None:
    cluster = SparkCluster(tmp_path / "cluster", workers=2)
    try:
        airflow.disconnect("spark_default")
        airflow.connect("spark_default", "spark", f"spark://{cluster.host}")
        shop.merge_by_spark()
        shop.land(tables=8)
        airflow.trigger(MERGE)
        airflow.unpause(MERGE)
        airflow.until(lambda: shop.commits() or None, "the first commit", seconds=600)
        run = airflow.run_at_work(MERGE, "merge")
        assert len({executor.parent.parent.name for executor in cluster.executors()}) == 2, "both workers take part"
        cluster.kill_worker(0)
        assert len(shop.commits()) < 8, "killed too late to prove anything"
        assert airflow.wait_for_run(MERGE, run, seconds=900) == "success", airflow.logs()
        assert shop.rows(spark) == {f"t{table}": 20 for table in range(8)}
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
