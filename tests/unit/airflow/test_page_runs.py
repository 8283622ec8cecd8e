"""Runs as the page shows them: in every state, of every operator that works on the lake, also where nothing was reported."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.page_lakes import CUSTOMERS, LINES, ORDERS, write_shop
from tests.unit.airflow.test_page_plugin import client, viewer  # noqa: F401

pytestmark = [pytest.mark.usefixtures("airflow_database"), pytest.mark.slow]
ERROR = "TableChangedError: Others changed it. Next step: Undo it."
_numbers = count()
FAILED = {"type": "TableChangedError", "message": "Others changed it.", "next_step": "Undo it."}


class Runs:
    """A Dag over a lake, and its runs."""

    def __init__(self, scene: Any, client: Any, folder: Path, tables: Any = None) -> None:  # noqa: F811
        from airflow.sdk import DAG

        from airflow_cdc.operators.merge import CdcMergeOperator
        from airflow_cdc.sensors.archive import CdcArchiveSensor

        class Own(CdcMergeOperator):
            """A user's own operator."""

        # Each test's own: the database is one for all.
        number = next(_numbers)
        self.client, self.dag_id, self.lake = client, f"of_tests_runs_{number}", f"lake_of_runs_{number}"
        shop = write_shop(folder / "shop")
        scene.connect(self.lake, conn_type="cdc_lake", host=str(shop.lake))
        scene.connect(f"archive_of_runs_{number}", conn_type="cdc_archive", host=str(shop.archive))
        with DAG(
            self.dag_id,
            schedule="*/10 * * * *",
            start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
            catchup=False,
            tags=["cdc"],
            params={"tables": []},
        ) as dag:
            CdcArchiveSensor(task_id="wait", lake_conn_id=self.lake)
            Own(task_id="merge", lake_conn_id=self.lake, tables=tables)
        scene.save(dag)

    def begin(self, **conf: Any) -> str:
        """Begin a run by Airflow's API; return its id."""
        answer = self.client.post(f"/api/v2/dags/{self.dag_id}/dagRuns", json={"logical_date": None, "conf": conf}, headers=viewer("admin"))
        assert answer.status_code == 200, answer.text
        return str(answer.json()["dag_run_id"])

    def becomes(self, run_id: str, state: str, result: Any = None, *, tries: int = 1) -> None:
        """Bring a run's merge into a state, as the scheduler and a worker would."""
        from airflow.models import TaskInstance
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            task = session.query(TaskInstance).filter_by(dag_id=self.dag_id, run_id=run_id, task_id="merge").one()
            now = datetime.now(timezone.utc)
            task.state, task.try_number, task.start_date, task.end_date = state, tries, now, None if state == "running" else now
            if result is not None:
                XComModel.set("return_value", result, dag_id=self.dag_id, task_id="merge", run_id=run_id, session=session)

    def was_scheduled(self, run_id: str, *, ago: timedelta, paused: bool = False) -> None:
        """Make a run one of the schedule's, due and ended some time ago."""
        from airflow.models import DagModel, DagRun, TaskInstance
        from airflow.utils.session import create_session

        now = datetime.now(timezone.utc)
        with create_session() as session:
            run = session.query(DagRun).filter_by(dag_id=self.dag_id, run_id=run_id).one()
            run.run_type, run.run_after = "scheduled", now - ago
            session.query(TaskInstance).filter_by(dag_id=self.dag_id, run_id=run_id).update({"end_date": now - ago})
            session.query(DagModel).filter_by(dag_id=self.dag_id).update({"is_paused": paused})

    def ask(self, path: str, **parameters: Any) -> Any:
        """Return an answer of the page, as of now."""
        from airflow_cdc.plugins import dag_runs, dag_tasks

        dag_tasks.DAGS._at = dag_runs.RUNS._at = float("-inf")
        answer = self.client.get(f"/cdc/api/{path}", params={"lake": self.lake, **parameters}, headers=viewer())
        assert answer.status_code == 200, answer.text
        return answer.json()

    def shown(self, flow: str = CUSTOMERS) -> list[tuple[str, str | None]]:
        """Return state and error of the runs that a flow has."""
        return [(run["state"], run["error"]) for run in self.ask("runs", flow=flow)["runs"]]

    def stopped(self) -> dict[str, str]:
        """Return by flow why it stands still."""
        while not (found := self.ask("flows"))["at"]:
            time.sleep(0.1)
        return {flow["flow"]: flow["reason"] for flow in found["flows"] if flow["standing"] == "stopped"}


@pytest.fixture
def runs(scene: Any, client: Any, tmp_path: Path) -> Runs:  # noqa: F811
    return Runs(scene, client, tmp_path)


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """End the runs of a test: others have a scheduler of this database."""
    from airflow.models import DagModel, DagRun
    from airflow.utils.session import create_session

    yield
    with create_session() as session:
        changes: list[tuple[Any, dict[str, Any]]] = [(DagRun, {"state": "success"}), (DagModel, {"is_paused": True})]
        for model, change in changes:
            theirs = session.query(model).filter(model.dag_id.startswith("of_tests_runs_"))
            theirs.update(change, synchronize_session=False)


def test_a_run_is_shown_from_its_beginning_and_in_every_state(runs: Runs) -> None:
    run = runs.begin()
    assert runs.shown() == [("queued", None)]
    runs.becomes(run, "running")
    assert runs.shown() == [("running", None)]
    runs.becomes(run, "up_for_retry")
    ((state, error),) = runs.shown()
    assert (state, "failed before it could report (try 1, another one follows)" in str(error)) == ("up_for_retry", True)
    runs.becomes(run, "failed", tries=3)
    assert runs.shown() == [("failed", f"Task merge of Dag {runs.dag_id} failed before it could report. Next step: see its log.")]
    runs.becomes(run, "upstream_failed")
    assert "did not run, for a task before it failed. Next step: see that task's log." in str(runs.shown()[0][1])
    runs.becomes(run, "success", {"flows": {CUSTOMERS: {"status": "applied"}}})
    assert (runs.shown(), runs.shown(ORDERS)) == ([("success", None)], [])


def test_a_run_that_failed_before_it_reported_stops_what_waits(runs: Runs) -> None:
    assert LINES not in runs.stopped()
    run = runs.begin()
    runs.becomes(run, "failed")
    assert "failed before it could report" in runs.stopped()[LINES]
    runs.becomes(runs.begin(), "success", {"flows": {LINES: {"status": "applied"}}})
    assert LINES not in runs.stopped()


def test_a_runs_own_error_is_shown_for_all_its_flows(runs: Runs) -> None:
    runs.becomes(runs.begin(), "failed", {"flows": {}, "error": FAILED})
    assert runs.shown() == [("failed", ERROR)]
    assert runs.stopped()[LINES].startswith("TableChangedError")


def test_a_flow_that_a_failed_run_applied_has_no_error(runs: Runs) -> None:
    flows = {CUSTOMERS: {"status": "applied"}, LINES: {"status": "failed", "error": FAILED}}
    runs.becomes(runs.begin(), "failed", {"flows": flows})
    assert (runs.shown(CUSTOMERS), runs.shown(LINES)[0][1]) == (
        [("failed", None)],
        ERROR,
    )


def test_what_another_xcom_backend_keeps_elsewhere_is_a_run_all_the_same(runs: Runs) -> None:
    runs.becomes(runs.begin(), "success", "s3://xcoms/of/this/run.json")
    assert runs.shown() == [("success", None)]


def test_a_run_of_other_tables_is_none_of_this_flow(scene: Any, client: Any, tmp_path: Path) -> None:  # noqa: F811
    runs = Runs(scene, client, tmp_path, tables="{{ params.tables | join(',') }}")
    before = len(runs.shown(CUSTOMERS))
    runs.becomes(runs.begin(tables=[LINES]), "failed")
    assert len(runs.shown(CUSTOMERS)) == before
    assert runs.shown(LINES)[0][0] == "failed"
    runs.becomes(runs.begin(), "failed")
    assert len(runs.shown(CUSTOMERS)) == before + 1
    assert json.dumps(runs.ask("runs", flow=CUSTOMERS))


def test_a_scheduler_that_is_dead_stops_all_flows_and_a_run_that_ends_well_frees_them(runs: Runs) -> None:
    minute = timedelta(minutes=1)
    run = runs.begin()
    runs.becomes(run, "success", {"flows": {CUSTOMERS: {"status": "applied"}}})
    runs.was_scheduled(run, ago=15 * minute)
    assert CUSTOMERS not in runs.stopped()
    runs.was_scheduled(run, ago=40 * minute)
    assert "is due every 10 minutes, and no run has ended well since" in runs.stopped()[CUSTOMERS]
    runs.becomes(runs.begin(), "success", {"flows": {CUSTOMERS: {"status": "up_to_date"}}})
    assert CUSTOMERS not in runs.stopped()


def test_what_waits_for_a_paused_dag_is_stopped(runs: Runs) -> None:
    minute = timedelta(minutes=1)
    run = runs.begin()
    runs.becomes(run, "success", {"flows": {LINES: {"status": "applied"}}})
    runs.was_scheduled(run, ago=5 * minute, paused=True)
    stopped = runs.stopped()
    assert stopped[LINES] == f"Dag {runs.dag_id} is paused."
    assert CUSTOMERS not in stopped
