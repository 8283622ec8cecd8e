"""The shortest of the live tests: one run waits in the triggerer for the file that it merges."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.system.live_airflow import REPOSITORY, LiveAirflow, running
from tests.system.shop import Shop

pytestmark = pytest.mark.system_deep


def test_a_run_waits_in_the_triggerer_for_a_file_and_merges_it(spark: SparkSession, tmp_path: Path) -> None:
    dags = tmp_path / "dags"
    dags.mkdir()
    merge = (REPOSITORY / "dags" / "cdc_merge.py").read_text(encoding="utf-8")
    merge = merge.replace("timeout=0, soft_fail=True", "timeout=300, poke_interval=2, deferrable=True")
    (dags / "cdc_merge.py").write_text(merge.replace('CronDataIntervalTimetable("*/10 * * * *", timezone="UTC")', "None"))
    with running(LiveAirflow(tmp_path / "home", dags)) as airflow:
        airflow.connect("spark_default", "spark", "local[2]")
        shop = Shop(airflow, tmp_path)
        airflow.until(lambda: airflow.dag_ids() or None, "the Dag to be parsed", seconds=60)
        run = airflow.trigger("cdc_merge")
        airflow.wait_for_task("cdc_merge", run, "wait_for_files", "deferred")
        shop.land()
        assert airflow.wait_for_run("cdc_merge", run) == "success", airflow.logs()
        assert airflow.xcom("cdc_merge", run, "merge")["flows"]["server1.testDB.dbo.t0"]["rows"]["inserted"] == 20
        assert shop.rows(spark) == {"t0": 20}
