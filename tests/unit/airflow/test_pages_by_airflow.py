"""The how-to pages' Airflow commands, word by word and in their order: by Airflow's own command line and scheduler, without Spark."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import commands
from tests.unit.airflow.dag_bag import dag_bag

pytestmark = pytest.mark.usefixtures("airflow_database")
REPOSITORY = Path(__file__).parents[3]
MERGE, BACKFILL = "cdc_merge", "cdc_backfill"
Ended = Counter[tuple[str, str]]


def airflow(command: str) -> None:
    """Do what a shell would by a command, in this process."""
    from airflow.cli.cli_parser import get_parser

    arguments = get_parser().parse_args(shlex.split(command)[1:])
    arguments.func(arguments)


class Scheduler:
    """Airflow's scheduler: which runs there are, and which may begin, it decides; their tasks run here, one after the other."""

    def __init__(self, scene: Any) -> None:
        self.dags = {dag_id: dag_bag(REPOSITORY / "dags" / f"{dag_id}.py").dags[dag_id] for dag_id in (MERGE, BACKFILL)}
        for dag in self.dags.values():
            scene.save(dag)

    def settle(self) -> dict[str, Ended]:
        """Go on until nothing is to be done; return by Dag how many runs of each type ended, and how their merge did."""
        done: dict[str, Ended] = {dag_id: Counter() for dag_id in self.dags}
        # SQLite's clock knows whole seconds: a run of this second is one of the future to it.
        time.sleep(1)
        while runs := self._running():
            for dag_id, run_id in runs:
                done[dag_id][self._run(dag_id, run_id)] += 1
        return done

    def _running(self) -> list[tuple[str, str]]:
        from airflow.jobs.job import Job
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
        from airflow.models.dagrun import DagRun
        from airflow.utils.session import create_session
        from airflow.utils.sqlalchemy import prohibit_commit
        from sqlalchemy import select

        scheduler = SchedulerJobRunner(job=Job())
        with create_session() as session:
            with prohibit_commit(session) as guard:
                scheduler._create_dagruns_for_dags(guard, session)
                scheduler._start_queued_dagruns(session)
                guard.commit()
            found = select(DagRun.dag_id, DagRun.run_id).where(DagRun.state == "running", DagRun.dag_id.in_(self.dags))
            return [(dag_id, run_id) for dag_id, run_id in session.execute(found.order_by(DagRun.logical_date))]

    def _run(self, dag_id: str, run_id: str) -> tuple[str, str]:
        """Run a Dag run's tasks, as ``dag.test`` does; return the run's type and what became of the merge."""
        from airflow.models.dagbag import DBDagBag
        from airflow.models.dagrun import DagRun
        from airflow.sdk.definitions.dag import _run_task
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
            assert run
            run.dag = DBDagBag().get_dag_for_run(run, session)
            run.verify_integrity(session=session, dag_version_id=run.created_dag_version_id)
            while run.state == "running":
                ready, _ = run.update_state(session=session)
                for instance in ready:
                    instance.try_number += 1
                    instance.state = "scheduled"
                    session.commit()
                    _run_task(ti=instance, task=self.dags[dag_id].get_task(instance.task_id), run_triggerer=True)
                session.commit()
                session.expire_all()
            assert str(run.state) == "success"
            merge = run.get_task_instance("merge", session=session)
            return str(run.run_type), str(merge.state)


@pytest.fixture
def scheduler(scene: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduler]:
    # A master that is not local takes spark-submit from PATH.
    scene.connect("spark_default", conn_type="spark", host="spark://127.0.0.1:7077")
    monkeypatch.setenv("PATH", f"{scene.folder}:/usr/bin:/bin")
    made = Scheduler(scene)
    yield made
    for dag_id in made.dags:
        airflow(f"airflow dags delete --yes {dag_id}")


def commits(scene: Any) -> int:
    return len(list((scene.lake / "_cdc").glob("flows/*/commits/*.json")))


@pytest.mark.slow
def test_the_first_table_comes_by_the_pages_commands(scene: Any, scheduler: Scheduler, capfd: pytest.CaptureFixture[str]) -> None:
    connections, start = commands("first-table.md", "airflow")
    for command in connections:
        airflow(command)
    # The page's user has copied files into the archive a moment ago: after the end of the interval that a run would begin with.
    scene.land("0000000000")
    unpause, trigger = start
    airflow(unpause)
    assert scheduler.settle()[MERGE] == {("scheduled", "skipped"): 1}
    assert "1 more wait that were archived outside of this run's interval" in capfd.readouterr().out
    assert commits(scene) == 0
    airflow(trigger)
    assert scheduler.settle()[MERGE] == {("manual", "success"): 1}
    assert commits(scene) == 1
    for command in connections:
        airflow(f"airflow connections delete {shlex.split(command)[3]}")


@pytest.mark.slow
def test_a_backfill_by_the_pages_commands_leaves_each_run_its_files(scene: Any, scheduler: Scheduler) -> None:
    for number, day in enumerate(("2025-01-01", "2025-01-31", "2025-03-07", "2025-12-31")):
        scene.land(f"000000000{number}", below=day)
    begin, end = commands("backfill.md", "airflow")
    for command in begin:
        airflow(command)
        if "unpause" in command:
            # Of the last month: without a file of its own it must not take another's.
            assert scheduler.settle()[BACKFILL] == {("scheduled", "skipped"): 1}
    done = scheduler.settle()
    # January, March and December; to the others nothing was archived.
    assert done == {BACKFILL: {("backfill", "success"): 3, ("backfill", "skipped"): 9}, MERGE: {}}
    assert commits(scene) == 3
    # What is older than the backfill, or came meanwhile.
    scene.land("0000000009", below="2024-12-31")
    for command in end:
        airflow(command)
    assert scheduler.settle() == {MERGE: {("scheduled", "success"): 1}, BACKFILL: {}}
    assert commits(scene) == 4


@pytest.mark.slow
def test_unpausing_the_merge_instead_would_leave_the_backfill_nothing(scene: Any, scheduler: Scheduler) -> None:
    # Why the page says to pause it.
    for number, day in enumerate(("2025-01-01", "2025-03-07")):
        scene.land(f"000000000{number}", below=day)
    airflow(f"airflow dags unpause {MERGE}")
    assert scheduler.settle()[MERGE] == {("scheduled", "success"): 1}
    airflow(f"airflow backfill create --dag-id {MERGE} --from-date 2025-01-01 --to-date 2025-01-01")
    assert scheduler.settle()[MERGE] == {("backfill", "skipped"): 1}


def test_by_hand_and_without_a_date_the_backfills_dag_fails_and_names_what_it_lacks(scene: Any, capfd: pytest.CaptureFixture[str]) -> None:
    dag = dag_bag(REPOSITORY / "dags" / f"{BACKFILL}.py").dags[BACKFILL]
    dag.get_task("wait_for_files").retries = 0
    scene.save(dag)
    scene.land("0000000000")
    assert str(dag.test(logical_date=None).state) == "failed"
    assert "since is 'None', expected a time in ISO 8601" in capfd.readouterr().out


def test_the_pool_of_the_page_has_one_slot_and_counts_deferred_tasks() -> None:
    from airflow.models.pool import Pool

    ((command,),) = commands("airflow-versions.md", "airflow")
    airflow(command)
    pool = Pool.get_pool("cdc_writers")
    assert pool
    assert (pool.slots, pool.include_deferred) == (1, True)
    airflow("airflow pools delete cdc_writers")
