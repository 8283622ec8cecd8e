"""A task that leaves its job to YARN and is cleared, retried or lost: by Airflow's own runs, task state store and resumable jobs.

Each test runs a Dag in Airflow's database; what is cleared, is cleared as a user does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_cdc.operators.job_report import ReportPlace
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.operators.submit import CdcSubmitOperator
from tests.unit.airflow.resource_manager import JOB, ResourceManager

TOPIC = "server.db.orders"
SUCCEEDED, FAILED = ("FINISHED", "SUCCEEDED"), ("FINISHED", "FAILED")


class Run:
    """One run of a Dag of one task, in Airflow's database."""

    def __init__(self, scene: Any, dag_id: str, make: Callable[[], Any]) -> None:
        from airflow.sdk import DAG

        with DAG(dag_id, schedule=None) as self.dag:
            make()
        scene.save(self.dag)
        (self.task,) = self.dag.tasks
        self.run_id: str = self.dag.test().run_id

    def _found(self, session: Any) -> Any:
        from airflow.models.taskinstance import TaskInstance

        return session.query(TaskInstance).filter_by(dag_id=self.dag.dag_id, run_id=self.run_id).one()

    @property
    def state(self) -> str:
        """The state of the task."""
        from airflow.utils.session import create_session

        with create_session() as session:
            return str(self._found(session).state)

    def clear(self) -> str:
        """Clear the task, run it once more, and return its state."""
        from airflow.models.taskinstance import clear_task_instances
        from airflow.sdk.definitions.dag import _run_task
        from airflow.utils.session import create_session

        with create_session() as session:
            clear_task_instances([self._found(session)], session)
        with create_session() as session:
            instance = self._found(session)
            instance.try_number += 1
            session.commit()
            _run_task(ti=instance, task=self.task, run_triggerer=True)
        return self.state

    @property
    def result(self) -> Any:
        """What the task handed on."""
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session

        with create_session() as session:
            row = session.query(XComModel).filter_by(dag_id=self.dag.dag_id, run_id=self.run_id, key="return_value").one()
            return XComModel.deserialize_value(row)


@pytest.fixture
def run(yarn: Any, airflow_database: None, needs_state_stores: None, request: pytest.FixtureRequest) -> Callable[..., Run]:
    """Make a run of a merge; each test's Dag has a name of its own."""
    yarn.go.touch()
    name = "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    return lambda **arguments: Run(yarn, name, lambda: yarn.merge(**{"poke_interval": 0.1, "deferrable": True, **arguments}))


@pytest.fixture
def loses_worker(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make a worker die once: in a method, before or after its effect."""

    def lose(owner: type[Any], method: str, *, after: bool = False) -> None:
        effect = getattr(owner, method)

        def dies(*args: Any, **kwargs: Any) -> Any:
            monkeypatch.setattr(owner, method, effect)
            if after:
                effect(*args, **kwargs)
            raise RuntimeError("the worker is lost")

        monkeypatch.setattr(owner, method, dies)

    return lose


# Clear.


def test_clearing_a_merge_whose_job_succeeded_submits_another(yarn: Any, manager: ResourceManager, run: Any) -> None:
    merge = run()
    assert (merge.state, yarn.submissions) == ("success", 1)
    manager.state = SUCCEEDED
    yarn.land("0000000001")
    assert (merge.clear(), yarn.submissions) == ("success", 2)
    assert merge.result["rows"]["inserted"] == 1
    yarn.land("0000000002")
    assert (merge.clear(), yarn.submissions) == ("success", 3)
    assert list((yarn.lake / "_cdc" / "reports").iterdir()) == []


def test_clearing_a_merge_that_waited_in_its_slot_submits_another(yarn: Any, manager: ResourceManager, run: Any) -> None:
    yarn.submit_to_yarn(manager, leaves=False)
    manager.state = SUCCEEDED
    merge = run(deferrable=False, yarn_track_via_rm_api=True)
    assert (merge.state, yarn.submissions) == ("success", 1)
    yarn.land("0000000001")
    assert (merge.clear(), yarn.submissions) == ("success", 2)
    assert merge.result["rows"]["inserted"] == 1


@pytest.mark.parametrize("deferrable", [True, False])
def test_clearing_a_merge_of_a_cluster_that_nobody_can_ask_submits_another(
    yarn: Any, manager: ResourceManager, run: Any, deferrable: bool
) -> None:
    yarn.submit_to_yarn(manager, leaves=deferrable)
    yarn.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    merge = run(deferrable=deferrable, durable=False)
    assert (merge.state, yarn.submissions) == ("success", 1)
    yarn.land("0000000001")
    assert (merge.clear(), yarn.submissions) == ("success", 2)
    assert merge.result["rows"]["inserted"] == 1


def test_clearing_a_merge_whose_job_the_cluster_has_forgotten_submits_another(yarn: Any, manager: ResourceManager, run: Any) -> None:
    merge = run()
    manager.states[JOB] = None
    yarn.land("0000000001")
    assert (merge.clear(), yarn.submissions) == ("success", 2)
    assert merge.result["rows"]["inserted"] == 1


def test_what_airflow_remembers_of_a_pod_is_forgotten_with_its_job(yarn: Any, run: Any, manager: ResourceManager) -> None:
    # Spark's operator keeps a pod's end beside the job: the next job's would be looked up there, and one that runs be taken for ended.
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session

    merge = run()
    manager.states[JOB] = SUCCEEDED
    with create_session() as session:
        (stored, *_) = session.query(TaskStateStoreModel).filter_by(dag_id=merge.dag.dag_id).all()
        columns = {column.name: getattr(stored, column.name) for column in stored.__table__.columns if column.name not in ("id", "key")}
        session.add(TaskStateStoreModel(**columns, key=CdcSubmitOperator._K8S_DRIVER_STATUS_KEY))
    assert merge.clear() == "success"
    with create_session() as session:
        found = {row.key for row in session.query(TaskStateStoreModel).filter_by(dag_id=merge.dag.dag_id)}
    assert found == {"spark_job_id", "cdc_report"}


# Retry.


@pytest.mark.parametrize("after", [False, True], ids=["right before", "right after"])
def test_a_worker_that_is_lost_around_the_reports_removal_leaves_no_retry_that_hangs(
    yarn: Any, manager: ResourceManager, run: Any, loses_worker: Any, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    manager.state = SUCCEEDED
    outcome = CdcMergeOperator.outcome

    def then_lose(*args: Any) -> Any:
        # Only now: the removal before the submission is another one.
        loses_worker(ReportPlace, "remove", after=after)
        monkeypatch.setattr(CdcMergeOperator, "outcome", outcome)
        return outcome(*args)

    monkeypatch.setattr(CdcMergeOperator, "outcome", then_lose)
    merge = run()
    assert (merge.state, yarn.submissions) == ("failed", 1)
    assert merge.clear() == "success"
    assert yarn.submissions == (2 if after else 1)
    assert merge.result["rows"]["inserted"] == (0 if after else 1)


def test_a_retry_takes_up_the_job_that_still_runs(yarn: Any, run: Any, loses_worker: Any) -> None:
    loses_worker(CdcSubmitOperator, "_wait_in_triggerer")
    merge = run()
    assert (merge.state, yarn.submissions) == ("failed", 1)
    assert (merge.clear(), yarn.submissions) == ("success", 1)
    assert merge.result["rows"]["inserted"] == 1


def test_a_job_that_failed_is_not_taken_up(yarn: Any, manager: ResourceManager, run: Any, loses_worker: Any) -> None:
    loses_worker(CdcSubmitOperator, "_wait_in_triggerer")
    merge = run()
    manager.states[JOB] = FAILED
    assert (merge.clear(), yarn.submissions) == ("success", 2)
