"""The Dags that the page knows: those with the tag ``cdc``, and their tasks that work on a lake. Read from Airflow's database."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import pendulum
from airflow.models import DagModel
from airflow.models.dag import DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.serialization import serialized_objects
from airflow.timetables.base import DataInterval, TimeRestriction
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook

# 3.2 moved it to another module, and has it here still.
_decoded: Callable[[dict[str, Any]], Any] = vars(serialized_objects)["decode_timetable"]

TAG = "cdc"
ARCHIVE, LAKE = "archive_conn_id", "lake_conn_id"
_MOST_DAGS = 200
_DEFAULTS = {ARCHIVE: CdcArchiveHook.default_conn_name, LAKE: CdcLakeHook.default_conn_name}
_OURS = "airflow_cdc."
_LONG = timedelta(days=366)
_FRESH = 10.0
"""Seconds for which nothing is read again."""

_Read = TypeVar("_Read")


class Kept(Generic[_Read]):
    """What was read for all users; read again when it is old."""

    def __init__(self, read: Callable[[], list[_Read]]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._found: list[_Read] = []
        self._at = -_FRESH

    def get(self) -> list[_Read]:
        """Return what was read at most :data:`_FRESH` seconds ago."""
        with self._lock:
            if time.monotonic() - self._at >= _FRESH:
                self._found, self._at = self._read(), time.monotonic()
            return self._found


@dataclass(frozen=True)
class CdcTask:
    """A task that works on a lake, of one of our classes or of one that inherits from them."""

    task_id: str
    operator: str
    lake: str
    """The lake's connection; may be a template."""
    archive: str | None
    """The archive's connection, where the task has one; may be a template."""
    tables: Any
    """Globs of flow names as the task has them, or a template; None: all, or by mapping."""
    is_sensor: bool


@dataclass(frozen=True)
class CdcDag:
    """A Dag with the tag."""

    dag_id: str
    is_paused: bool
    description: str | None
    operators: tuple[str, ...]
    """The names of all its tasks' classes."""
    tasks: tuple[CdcTask, ...]
    params: Mapping[str, Any]
    """Its parameters' defaults."""
    timetable: Mapping[str, Any]
    """Its schedule, as Airflow serializes it."""

    def dues_after(self, moment: datetime, count: int) -> list[datetime]:
        """Return when the next scheduled runs after a moment are due; fewer where no more are, by time.

        Asked of the schedule itself: when Airflow means to begin the next run moves on with each parsing, also while none begins.
        """
        with suppress(Exception):
            # Whatever another package's timetable raises.
            timetable = _decoded(dict(self.timetable))
            found: list[datetime] = []
            for _ in range(count):
                end = pendulum.instance(found[-1] if found else moment)
                # Of the last interval only its end counts, as long as it does not begin where the next one does.
                last = DataInterval(end - _LONG, end)
                due = timetable.next_dagrun_info(last_automated_data_interval=last, restriction=TimeRestriction(None, None, catchup=True))
                found.append(due.run_after)
            return found
        return []


def is_parameter(text: str | None, name: str) -> bool:
    """Return whether a task's field is the Dag's parameter of that name, and nothing else."""
    return re.fullmatch(r"\{\{\s*params\." + name + r"\s*\}\}", text or "") is not None


def _read_dags() -> list[CdcDag]:
    tagged = select(DagModel).join(DagTag, DagTag.dag_id == DagModel.dag_id).where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    with create_session() as session:
        dags = list(session.scalars(tagged.order_by(DagModel.dag_id).limit(_MOST_DAGS)))
        return [_dag(dag, SerializedDagModel.get(dag.dag_id, session=session)) for dag in dags]


DAGS = Kept(_read_dags)


def _dag(dag: DagModel, serialized: SerializedDagModel | None) -> CdcDag:
    """Return a Dag; what it does shows in its tasks, not in its name."""
    content = ((serialized.data if serialized else None) or {}).get("dag", {})
    tasks = [task.get("__var") or {} for task in content.get("tasks", ())]
    return CdcDag(
        dag_id=dag.dag_id,
        is_paused=bool(dag.is_paused),
        description=dag.description,
        operators=tuple(sorted({str(task.get("task_type")) for task in tasks})),
        tasks=tuple(found for task in tasks if (found := _task(task))),
        params=dict(_params(content)),
        timetable=content.get("timetable") or {},
    )


def _params(content: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    params = content.get("params") or ()
    for name, param in params.items() if isinstance(params, Mapping) else params:
        yield str(name), param.get("default") if isinstance(param, dict) else None


def _task(task: Mapping[str, Any]) -> CdcTask | None:
    """Return a task that works on a lake; None for any other one."""
    given: Mapping[str, Any] = task
    if task.get("_is_mapped"):
        # What a mapped task is not given is nowhere in its serialized form.
        ours = _DEFAULTS if str(task.get("_task_module")).startswith(_OURS) else {}
        given = {**ours, **(task.get("partial_kwargs") or {})}
    if LAKE not in given:
        return None
    archive = given.get(ARCHIVE)
    return CdcTask(
        task_id=str(task.get("task_id")),
        operator=str(task.get("task_type")),
        lake=str(given[LAKE]),
        archive=None if archive is None else str(archive),
        tables=_plain(given.get("tables")),
        is_sensor=bool(task.get("_is_sensor")),
    )


def _plain(value: Any) -> Any:
    """Return a field without what serialization wraps around it."""
    return value["__var"] if isinstance(value, Mapping) and "__var" in value else value
