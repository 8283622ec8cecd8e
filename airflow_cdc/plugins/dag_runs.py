"""What Airflow knows of the runs that write flows: who ran them, how they ended, what failed.

Read from Airflow's database in the API server, which has it: the newest task instances of our operators, and what they returned. Of these,
each user sees those of the Dags that the user may read.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models import DagRun, TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from fastapi import Request
from sqlalchemy import and_, select

_OPERATORS = (
    "CdcMergeOperator",
    "CdcReprocessOperator",
    "CdcReplayOperator",
    "CdcRetypeOperator",
    "CdcRebuildOperator",
    "CdcMaintainOperator",
    "CdcVerifyOperator",
)
_MOST_TASKS = 500
"""Newest task instances that are looked at."""
_MOST_RUNS = 20
_FRESH = 10.0
"""Seconds for which they are not read again."""


_Read = TypeVar("_Read")


@dataclass(frozen=True)
class TaskEnd:
    """A task instance of one of our operators."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    operator: str
    state: str | None
    started: str | None
    ended: str | None
    run_type: str
    triggered_by: str | None
    user: str | None
    """Who triggered the run, where a person did."""
    result: Mapping[str, Any]
    """What it returned; empty where it returned nothing yet."""

    def to_json(self, flow: str) -> dict[str, Any]:
        """Return the run as the page shows it for one flow."""
        short = (self.result.get("flows") or {}).get(flow)
        plain = {name: value for name, value in vars(self).items() if name != "result"}
        return {**plain, "outcome": short if isinstance(short, dict) else None, "error": _error(self.result.get("error"))}


async def remember_user(request: Request, user: GetUserDep) -> None:
    """Keep the user who asks, as a dependency of every route: what is returned depends on who it is."""
    request.state.cdc_user = user


class Kept(Generic[_Read]):
    """What was read for all users; read again when it is old."""

    def __init__(self, read: Callable[[], list[_Read]]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._found: list[_Read] = []
        self._at = -_FRESH

    def get(self) -> list[_Read]:
        """Return what was read last, at most :data:`_FRESH` seconds ago."""
        with self._lock:
            if time.monotonic() - self._at >= _FRESH:
                self._found, self._at = self._read(), time.monotonic()
            return self._found


def _read_ends() -> list[TaskEnd]:
    same = and_(
        XComModel.dag_id == TaskInstance.dag_id,
        XComModel.run_id == TaskInstance.run_id,
        XComModel.task_id == TaskInstance.task_id,
        XComModel.map_index == TaskInstance.map_index,
        XComModel.key == "return_value",
    )
    run = and_(DagRun.dag_id == TaskInstance.dag_id, DagRun.run_id == TaskInstance.run_id)
    found = (
        select(TaskInstance, DagRun, XComModel.value)
        .join(DagRun, run)
        .outerjoin(XComModel, same)
        .where(TaskInstance.operator.in_(_OPERATORS), TaskInstance.start_date.is_not(None))
        .order_by(TaskInstance.start_date.desc())
        .limit(_MOST_TASKS)
    )
    with create_session() as session:
        return [_end(task, dag_run, value) for task, dag_run, value in session.execute(found)]


def _end(task: Any, run: Any, value: Any) -> TaskEnd:
    return TaskEnd(
        dag_id=task.dag_id,
        run_id=task.run_id,
        task_id=task.task_id,
        map_index=task.map_index,
        operator=task.operator,
        state=None if task.state is None else str(task.state),
        started=task.start_date and task.start_date.isoformat(),
        ended=task.end_date and task.end_date.isoformat(),
        run_type=str(run.run_type),
        triggered_by=None if run.triggered_by is None else str(getattr(run.triggered_by, "value", run.triggered_by)),
        user=run.triggering_user_name,
        result=_result(value),
    )


def _result(value: Any) -> Mapping[str, Any]:
    """Return what a task returned, which Airflow keeps as JSON; empty for anything else."""
    try:
        document = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


_RECENT = Kept(_read_ends)


def _visible(request: Request) -> list[TaskEnd]:
    ends = _RECENT.get()
    if not ends:
        return []
    allowed = get_auth_manager().get_authorized_dag_ids(user=request.state.cdc_user, method="GET")
    return [end for end in ends if end.dag_id in allowed]


def last_errors(request: Request, lake: str) -> dict[str, str]:
    """Return by flow the error of the last run that had it, where that failed.

    :param lake: root of the lake.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    for end in _visible(request):
        if end.result.get("lake") != lake:
            continue
        for flow, short in (end.result.get("flows") or {}).items():
            if flow not in seen and isinstance(short, dict):
                seen.add(flow)
                if error := _error(short.get("error")):
                    found[flow] = error
    return found


def runs_of(request: Request, lake: str, flow: str) -> list[dict[str, Any]]:
    """Return the newest runs that had a flow.

    :param lake: root of the lake.
    """
    ours = [end for end in _visible(request) if end.result.get("lake") in (None, lake) and flow in (end.result.get("flows") or {})]
    return [end.to_json(flow) for end in ours[:_MOST_RUNS]]


def _error(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    text = f"{error.get('type', 'Error')}: {error.get('message', '')}"
    return f"{text} Next step: {error['next_step']}" if error.get("next_step") else text
