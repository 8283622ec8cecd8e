"""The page while the pipeline is down, in a real Airflow and a real browser: red within two schedules, green again once it works."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.system.browser import Watched, chromium
from tests.system.live_airflow import REPOSITORY, LiveAirflow, running
from tests.system.shop import Shop

pytestmark = pytest.mark.system_deep
DAG = "merge_each_minute"
FLOW = "server1.testDB.dbo.t0"
PICTURES = REPOSITORY / "docs" / "pictures"
SCHEDULES = 2 * 60
"""Seconds of two schedules."""
SLACK = 90
"""Seconds for a run, for what the page keeps in memory, and for a slow machine."""
_CODE = f"""
from datetime import datetime, timezone
from airflow.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor
minutely, begun = CronDataIntervalTimetable("* * * * *", timezone="UTC"), datetime(2026, 1, 1, tzinfo=timezone.utc)
with DAG({DAG!r}, schedule=minutely, start_date=begun, catchup=False, max_active_runs=1, tags=["cdc"]):
    CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True) >> CdcMergeOperator(task_id="merge")
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveAirflow]:
    folder = tmp_path_factory.mktemp("outage")
    (folder / "dags").mkdir()
    (folder / "dags" / f"{DAG}.py").write_text(_CODE, encoding="utf-8")
    with running(LiveAirflow(folder / "home", folder / "dags", AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION="True")) as started:
        started.connect("spark_default", "spark", "local[2]")
        started.until(lambda: DAG in started.dag_ids() or None, "the Dag to be parsed", seconds=60)
        yield started


@pytest.fixture(scope="module")
def shop(airflow: LiveAirflow, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(airflow, tmp_path_factory.mktemp("shop"))


class OnCall:
    """Somebody who has the page open."""

    def __init__(self, browser: Any, airflow: LiveAirflow) -> None:
        self.airflow, self.watched = airflow, Watched(browser, airflow.url)

    def sees(self, word: str, reason: str = "", *, seconds: float, picture: str = "") -> None:
        """Wait until the flow stands so on the page, and for this reason."""
        deadline, seen = time.monotonic() + seconds, ""
        while time.monotonic() < deadline:
            with suppress(Exception):
                row = self.watched.open("#/cdc_lake_default").get_by_role("row", name=FLOW)
                seen = row.inner_text(timeout=5_000)
                if word in seen and reason in seen:
                    self._take(picture)
                    return
            time.sleep(2)
        raise AssertionError(f"Waited {seconds:.0f} s for {word!r}, {reason!r}; seen: {seen!r}\n{self.airflow.logs()}")

    def _take(self, picture: str) -> None:
        if picture and os.environ.get("CDC_PICTURES"):
            self.watched.page.screenshot(path=PICTURES / f"outage-{picture}.png")


@pytest.fixture
def on_call(airflow: LiveAirflow, shop: Shop) -> Iterator[OnCall]:
    """The page over a pipeline that works."""
    with chromium() as browser:
        found = OnCall(browser, airflow)
        shop.land()
        airflow.unpause(DAG)
        found.sees("up to date", seconds=SCHEDULES + SLACK)
        yield found
        found.sees("up to date", seconds=SCHEDULES + SLACK, picture="over")


def test_a_paused_dag(airflow: LiveAirflow, shop: Shop, on_call: OnCall) -> None:
    airflow.pause(DAG)
    shop.land()
    on_call.sees("stopped", f"Dag {DAG} is paused", seconds=SCHEDULES + SLACK, picture="paused")
    airflow.unpause(DAG)


def test_no_spark(airflow: LiveAirflow, shop: Shop, on_call: OnCall) -> None:
    airflow.disconnect("spark_default")
    shop.land()
    on_call.sees("stopped", f"Task merge of Dag {DAG} failed before it could report", seconds=SCHEDULES + SLACK, picture="no-spark")
    airflow.connect("spark_default", "spark", "local[2]")


def test_an_archive_that_is_out_of_reach(shop: Shop, on_call: OnCall) -> None:
    elsewhere = Path(shop.archive.rename(shop.archive.with_name("elsewhere")))
    try:
        on_call.sees("unknown", "cannot be listed", seconds=SLACK, picture="no-archive")
        on_call.sees("stopped", f"Task merge of Dag {DAG} did not run, for a task before it failed", seconds=SCHEDULES + SLACK)
    finally:
        elsewhere.rename(shop.archive)


def test_a_scheduler_that_is_gone(airflow: LiveAirflow, on_call: OnCall) -> None:
    airflow.kill_part("scheduler")
    on_call.sees("stopped", "is due every 1 minutes, and no run has ended well since", seconds=SCHEDULES + SLACK, picture="no-scheduler")
    airflow.start_part("scheduler")
