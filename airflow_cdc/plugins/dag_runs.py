"""What Airflow knows of the runs that write a lake: who ran them, how they stand or ended, what failed.

Read from Airflow's database in the API server, which has it: the newest runs of the Dags with the tag ``cdc``, by indexes, whatever else is
in there. Each user sees those of the Dags that the user may read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models import DagRun, TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi import Request
from sqlalchemy import and_, select

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.globs import matches_any
from airflow_cdc.plugins.dag_tasks import DAGS, LAKE, CdcDag, CdcTask, Kept, is_parameter

_RUNS_OF_A_DAG = 25
"""Newest runs of each Dag that are looked at."""
_MOST_TASKS = 100
"""Newest task instances of each Dag that are looked at: a run may have hundreds of mapped ones."""
_MOST_SHOWN = 50
_COLUMNS = (
    *("run_id", "task_id", "map_index", "state", "try_number"),
    *("queued_dttm", "scheduled_dttm", "start_date", "end_date", "last_heartbeat_at"),
)
_FAILED = {"failed", "up_for_retry", "upstream_failed"}


@dataclass(frozen=True)
class TaskRun:
    """A task instance that works on a lake, in whatever state."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    operator: str
    state: str | None
    tries: int
    due: datetime
    """After when the run was to begin."""
    queued: str | None
    started: str | None
    ended: str | None
    run_type: str
    triggered_by: str | None
    user: str | None
    """Who triggered the run, where a person did."""
    lake: str
    """Connection of the lake."""
    tables: tuple[str, ...] | None
    """Globs of the flows that it works on; None: all, or not known before it runs."""
    result: Mapping[str, Any]
    """What it returned; empty where it returned nothing yet."""
    beat: datetime | None = None
    """The last sign of life of its worker."""

    def among(self, flows: Set[str]) -> Set[str]:
        """Return those of some flows that it worked on, or will."""
        done = self.result.get("flows")
        if isinstance(done, dict) and done:
            return flows & done.keys()
        return {flow for flow in flows if self.tables is None or matches_any(flow, self.tables)}

    def error(self, flow: str) -> str | None:
        """Return why a flow failed in it: the flow's own error, that of the whole run, or that there was none; None if it did not fail."""
        short = (self.result.get("flows") or {}).get(flow)
        own = _text(short.get("error")) if isinstance(short, dict) else None
        if own or (isinstance(short, dict) and not self.result.get("error")):
            return own
        if found := _text(self.result.get("error")):
            return found
        if self.state not in _FAILED:
            return None
        if self.state == "upstream_failed":
            return f"Task {self.task_id} of Dag {self.dag_id} did not run, for a task before it failed. Next step: see that task's log."
        tries = f" (try {self.tries}, another one follows)" if self.state == "up_for_retry" else ""
        return f"Task {self.task_id} of Dag {self.dag_id} failed before it could report{tries}. Next step: see its log."

    def to_json(self, flow: str) -> dict[str, Any]:
        """Return the run as the page shows it for one flow."""
        short = (self.result.get("flows") or {}).get(flow)
        plain = {name: value for name, value in vars(self).items() if name not in ("result", "lake", "tables", "due", "beat")}
        return {**plain, "outcome": short if isinstance(short, dict) else None, "error": self.error(flow)}


async def remember_user(request: Request, user: GetUserDep) -> None:
    """Keep the user who asks, as a dependency of every route: what is returned depends on who it is."""
    request.state.cdc_user = user


def _read_runs() -> list[TaskRun]:
    found = [run for dag in DAGS.get() for run in _runs_of_dag(dag)]
    return sorted(found, key=lambda run: run.started or run.queued or "", reverse=True)


RUNS = Kept(_read_runs)


def _runs_of_dag(dag: CdcDag) -> Iterator[TaskRun]:
    tasks = {task.task_id: task for task in dag.tasks if not task.is_sensor}
    if not tasks:
        return
    with create_session() as session:
        newest = select(DagRun).where(DagRun.dag_id == dag.dag_id).order_by(DagRun.id.desc()).limit(_RUNS_OF_A_DAG)
        runs = {run.run_id: run for run in session.scalars(newest)}
        mine = (TaskInstance.dag_id == dag.dag_id, TaskInstance.task_id.in_(tasks), TaskInstance.run_id.in_(runs))
        same = and_(
            XComModel.dag_id == TaskInstance.dag_id,
            XComModel.run_id == TaskInstance.run_id,
            XComModel.task_id == TaskInstance.task_id,
            XComModel.map_index == TaskInstance.map_index,
            XComModel.key == "return_value",
        )
        columns = [getattr(TaskInstance, name) for name in _COLUMNS]
        asked = select(*columns, XComModel.value).outerjoin(XComModel, same).where(*mine)
        found = session.execute(asked.order_by(TaskInstance.updated_at.desc()).limit(_MOST_TASKS)).all()
        yield from [_run(dag, tasks[row.task_id], runs[row.run_id], row) for row in found]


def _run(dag: CdcDag, task: CdcTask, run: Any, row: Any) -> TaskRun:
    conf = run.conf if isinstance(run.conf, dict) else {}
    given = {**dag.params, **conf}
    return TaskRun(
        dag_id=dag.dag_id,
        run_id=row.run_id,
        task_id=row.task_id,
        map_index=row.map_index,
        operator=task.operator,
        # Before the scheduler looked at the task, the run's own state tells more.
        state=str(row.state or run.state),
        tries=row.try_number,
        due=run.run_after,
        queued=_moment(row.queued_dttm or row.scheduled_dttm or run.queued_at),
        started=_moment(row.start_date),
        ended=_moment(row.end_date),
        run_type=str(run.run_type),
        triggered_by=None if run.triggered_by is None else str(getattr(run.triggered_by, "value", run.triggered_by)),
        user=run.triggering_user_name,
        lake=str(given.get(LAKE)) if is_parameter(task.lake, LAKE) else task.lake,
        tables=_tables(task.tables, given),
        result=_result(row.value),
        beat=row.last_heartbeat_at,
    )


def _tables(tables: Any, given: Mapping[str, Any]) -> tuple[str, ...] | None:
    if isinstance(tables, str) and "{" in tables:
        # Our Dags' parameter; whatever else a template says is not known here.
        tables = given.get("tables") if "params.tables" in tables else None
    if not isinstance(tables, str | list | tuple):
        return None
    try:
        return tuple(table_globs(tables)) or None
    except ConfigurationError:
        return None


def _moment(value: Any) -> str | None:
    return None if value is None else str(value.isoformat())


def _result(value: Any) -> Mapping[str, Any]:
    """Return what a task returned, which Airflow keeps as JSON; empty for anything else, such as another XCom backend's reference."""
    try:
        document = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def visible(request: Request, lakes: Iterable[str]) -> list[TaskRun]:
    """Return the newest runs of a lake that the user may see, the last begun first.

    :param lakes: connections with the lake's root.
    """
    wanted = set(lakes)
    runs = [run for run in RUNS.get() if run.lake in wanted]
    if not runs:
        return []
    allowed = get_auth_manager().get_authorized_dag_ids(user=request.state.cdc_user, method="GET")
    return [run for run in runs if run.dag_id in allowed]


def last_errors(request: Request, lakes: Iterable[str], flows: Iterable[str]) -> dict[str, str]:
    """Return by flow the error of the last run that had it and came to an end, where that failed."""
    found: dict[str, str] = {}
    left = set(flows)
    for run in visible(request, lakes):
        if not left:
            break
        if run.result or run.state in {*_FAILED, "success"}:
            mine = run.among(left)
            left -= mine
            found |= {flow: error for flow in mine if (error := run.error(flow))}
    return found


def runs_of(request: Request, lakes: Iterable[str], flow: str) -> list[dict[str, Any]]:
    """Return the newest runs that had a flow, or will have it, without what was skipped and did nothing: a branch that was not taken."""
    mine = [run for run in visible(request, lakes) if (run.result or run.state != "skipped") and run.among({flow})]
    return [run.to_json(flow) for run in mine[:_MOST_SHOWN]]


def _text(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    text = f"{error.get('type', 'Error')}: {error.get('message', '')}"
    return f"{text} Next step: {error['next_step']}" if error.get("next_step") else text
