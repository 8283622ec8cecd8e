"""The Dags that may be triggered for a flow: those whose tasks work on its lake, and on no other one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models import DagModel
from airflow.models.dag import DagTag
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.session import create_session
from fastapi import Request
from sqlalchemy import select

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.plugins.dag_runs import Kept

TAG = "cdc"
"""Dags with this tag are offered."""
_MOST_DAGS = 200
_ARCHIVE, _LAKE = "archive_conn_id", "lake_conn_id"
_DEFAULTS = {_ARCHIVE: CdcArchiveHook.default_conn_name, _LAKE: CdcLakeHook.default_conn_name}
_OURS = "airflow_cdc."


@dataclass(frozen=True)
class Places:
    """A flow's places, as connections."""

    asked: str
    """The lake's connection that the page was asked for."""
    lakes: frozenset[str]
    """All connections with that lake's root."""
    archives: tuple[str, ...]
    """Connections whose root is that of an archive with events of the flow."""


def dags_for(request: Request, places: Places) -> list[dict[str, Any]]:
    """Return the Dags that the user may read and whose tasks work on a lake, with ``conf``: what a run needs for that."""
    manager, user = get_auth_manager(), request.state.cdc_user
    fitting = [(dag, conf) for dag in _TAGGED.get() if (conf := _conf(dag["places"], places)) is not None]
    readable = manager.get_authorized_dag_ids(user=user, method="GET") if fitting else set()
    return [
        {
            **{name: value for name, value in dag.items() if name != "places"},
            "conf": conf,
            "may_trigger": manager.is_authorized_dag(
                method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag["dag_id"]), user=user
            ),
        }
        for dag, conf in fitting
        if dag["dag_id"] in readable
    ]


def _conf(tasks: list[Mapping[str, str]], places: Places) -> dict[str, str] | None:
    """Return the parameters that lead all tasks of a Dag to a lake; None if one works elsewhere, or where is not certain."""
    conf: dict[str, str] = {}
    for task in tasks:
        if _is_parameter(task[_LAKE], _LAKE):
            conf[_LAKE] = places.asked
        elif task[_LAKE] not in places.lakes:
            return None
        if _is_parameter(task.get(_ARCHIVE, ""), _ARCHIVE):
            # Another archive's events would be merged into this lake.
            if len(places.archives) != 1:
                return None
            conf[_ARCHIVE] = places.archives[0]
    return conf if tasks else None


def _is_parameter(text: str, name: str) -> bool:
    """Whether a task's field is the Dag's parameter of that name, and nothing else."""
    return re.fullmatch(r"\{\{\s*params\." + name + r"\s*\}\}", text) is not None


def _read_tagged() -> list[dict[str, Any]]:
    tagged = select(DagModel).join(DagTag, DagTag.dag_id == DagModel.dag_id).where(DagTag.name == TAG, DagModel.is_stale.is_(False))
    with create_session() as session:
        dags = list(session.scalars(tagged.order_by(DagModel.dag_id).limit(_MOST_DAGS)))
        found = [(dag, _tasks(SerializedDagModel.get(dag.dag_id, session=session))) for dag in dags]
        return [
            {
                "dag_id": dag.dag_id,
                "is_paused": dag.is_paused,
                "description": dag.description,
                "operators": sorted({str(task.get("task_type")) for task in tasks}),
                "places": [place for task in tasks if (place := _place(task))],
            }
            for dag, tasks in found
        ]


_TAGGED = Kept(_read_tagged)


def _tasks(serialized: SerializedDagModel | None) -> list[Mapping[str, Any]]:
    """Return a Dag's tasks: what it does shows in them, not in its name."""
    tasks = ((serialized.data if serialized else None) or {}).get("dag", {}).get("tasks", [])
    return [task.get("__var") or {} for task in tasks]


def _place(task: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the connections of a task that works on a lake, also of a class that inherits from ours; None for any other task."""
    if not task.get("_is_mapped"):
        return {name: str(task[name]) for name in (_LAKE, _ARCHIVE) if name in task} if _LAKE in task else None
    given = task.get("partial_kwargs") or {}
    if _LAKE not in given and not str(task.get("_task_module")).startswith(_OURS):
        return None
    # What a mapped task is not given is nowhere in its serialized form.
    return {name: str(given.get(name, default)) for name, default in _DEFAULTS.items()}
