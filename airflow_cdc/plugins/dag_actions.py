"""The Dags that may be triggered for a flow: those whose tasks work on its lake, and on no other one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from fastapi import Request

from airflow_cdc.plugins.dag_tasks import ARCHIVE, DAGS, LAKE, CdcTask, is_parameter


@dataclass(frozen=True)
class Places:
    """A flow's places, as connections."""

    asked: str
    """The lake's connection that the page was asked for."""
    lakes: frozenset[str]
    """All connections with that lake's root."""
    archives: tuple[str, ...] = ()
    """Connections whose root is that of an archive with events of the flow."""


def dags_for(request: Request, places: Places) -> list[dict[str, Any]]:
    """Return the Dags that the user may read and whose tasks work on a lake, with ``conf``: what a run needs for that."""
    manager, user = get_auth_manager(), request.state.cdc_user
    fitting = [(dag, conf) for dag in DAGS.get() if (conf := _conf(dag.tasks, places)) is not None]
    readable = manager.get_authorized_dag_ids(user=user, method="GET") if fitting else set()
    return [
        {
            "dag_id": dag.dag_id,
            "is_paused": dag.is_paused,
            "description": dag.description,
            "operators": dag.operators,
            "conf": conf,
            "may_trigger": manager.is_authorized_dag(
                method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag.dag_id), user=user
            ),
        }
        for dag, conf in fitting
        if dag.dag_id in readable
    ]


def _conf(tasks: Iterable[CdcTask], places: Places) -> dict[str, str] | None:
    """Return the parameters that lead all tasks of a Dag to a lake; None if one works elsewhere, or where is not certain."""
    conf: dict[str, str] = {}
    is_of_lake = False
    for task in tasks:
        is_of_lake = True
        if is_parameter(task.lake, LAKE):
            conf[LAKE] = places.asked
        elif task.lake not in places.lakes:
            return None
        if is_parameter(task.archive, ARCHIVE):
            # Another archive's events would be merged into this lake.
            if len(places.archives) != 1:
                return None
            conf[ARCHIVE] = places.archives[0]
    return conf if is_of_lake else None
