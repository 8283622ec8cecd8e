"""Which of Airflow's limits count a task that waits in the triggerer (docs/how-to/airflow-versions.md): its own scheduler is asked."""

from __future__ import annotations

from datetime import datetime, timezone
from importlib.metadata import version
from typing import Any

import pytest
from airflow.sdk import DAG
from packaging.version import Version

pytestmark = pytest.mark.usefixtures("airflow_database")
COUNTS_DEFERRED = Version(version("apache-airflow-core")) >= Version("3.2.2")
POOL = "cdc_one_slot"


def begins_beside(scene: Any, state: str, **limits: Any) -> bool:
    """Return whether the scheduler lets a run's merge begin while another run's is in a state."""
    from airflow.api.client.local_client import Client
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.dag import DagModel
    from airflow.models.dagbag import DBDagBag
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select, update

    with DAG(dag_id="limited", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
        scene.merge(**limits)
    scene.save(dag)
    for run_id in ("one", "other"):
        Client().trigger_dag(dag_id=dag.dag_id, run_id=run_id)
    try:
        with create_session() as session:
            model = session.get(DagModel, dag.dag_id)
            assert model
            model.is_paused = False
            for run in session.scalars(select(DagRun).where(DagRun.dag_id == dag.dag_id)):
                run.dag = DBDagBag().get_dag_for_run(run, session)
                run.state = "running"
                run.verify_integrity(session=session, dag_version_id=run.created_dag_version_id)
                merge = run.get_task_instance("merge", session=session)
                merge.state = state if run.run_id == "one" else "scheduled"
            session.commit()
            found = SchedulerJobRunner(job=Job())._executable_task_instances_to_queued(max_tis=10, session=session)
            return [task.run_id for task in found] == ["other"]
    finally:
        with create_session() as session:
            session.execute(update(TaskInstance).where(TaskInstance.dag_id == dag.dag_id).values(state="success"))
        Client().delete_dag(dag.dag_id)


@pytest.mark.parametrize(("state", "begins"), [("running", False), ("deferred", not COUNTS_DEFERRED), ("up_for_retry", True)])
def test_a_limit_on_a_dags_tasks_counts_deferred_ones_from_3_2_2_on(scene: Any, state: str, begins: bool) -> None:
    assert begins_beside(scene, state) is True
    assert begins_beside(scene, state, max_active_tis_per_dag=1) is begins


@pytest.mark.parametrize("include_deferred", [False, True])
def test_a_pool_counts_deferred_tasks_on_request(scene: Any, include_deferred: bool) -> None:
    from airflow.models.pool import Pool

    Pool.create_or_update_pool(POOL, slots=1, description="", include_deferred=include_deferred)
    assert begins_beside(scene, "running", pool=POOL) is False
    assert begins_beside(scene, "deferred", pool=POOL) is not include_deferred
