"""The page's app as Airflow's API server mounts it: refused without login and permission, over the lakes of Airflow's connections."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, ConnectionDetails
from airflow.api_fastapi.core_api.security import requires_access_view
from airflow.configuration import conf
from airflow.models import Connection
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, Request
from sqlalchemy import select

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.errors import CdcError, ConfigurationError
from airflow_cdc.model.files import FileSystem, short_hash
from airflow_cdc.model.places import is_same, is_within
from airflow_cdc.pipeline.spark.storage import file_system, scoped_options
from airflow_cdc.plugins import dag_runs
from airflow_cdc.plugins.dag_actions import Places, dags_for
from airflow_cdc.plugins.dag_watch import of_flow, watches
from airflow_cdc.plugins.page.app import make_app
from airflow_cdc.plugins.page.context import Trouble
from airflow_cdc.plugins.page.lake_view import LakeView

_ENVIRONMENT = "AIRFLOW_CONN_"
_SHOW = ("all", "admins", "none")
"""``[airflow_cdc] show_values``."""


def airflow_app() -> FastAPI:
    """Return the app. A mounted app inherits no authentication from Airflow: every route has it as a dependency."""
    return make_app(AirflowContext(), [Depends(requires_access_view(AccessView.PLUGINS)), Depends(dag_runs.remember_user)])


class AirflowContext:
    """Airflow's side of the page."""

    def __init__(self) -> None:
        self._views: dict[str, tuple[str, LakeView]] = {}
        """By connection: a hash of what reaches the lake, and the lake."""
        self._lock = threading.Lock()

    def lakes(self) -> list[dict[str, Any]]:
        """Return the lakes of the connections of type ``cdc_lake``, in the database or the environment."""
        return [self._described(conn_id) for conn_id in connection_ids(CdcLakeHook.conn_type)]

    @contextmanager
    def access(self, lake: str) -> Iterator[None]:
        """Reach a lake with its own credentials, by its connection as it is now; another view of it than before where that was changed.

        :raises ConfigurationError: when there is no such connection, or it is of another type.
        """
        hook = _hook(lake)
        options, roots = hook.storage_settings().file_systems, (hook.root, *hook.page_reads)
        state = short_hash(json.dumps([roots, options], sort_keys=True, default=str))
        with scoped_options(options):
            with self._lock:
                if self._views.get(lake, ("",))[0] != state:
                    self._views[lake] = state, LakeView(hook.root, partial(_reach, roots), partial(_is_within, roots))
            yield

    def view(self, lake: str) -> LakeView:
        """Return a lake that is accessed."""
        return self._views[lake][1]

    def shows_values(self, request: Request, lake: str) -> bool:
        """Return whether the asking user may see values: by default, who may read the lake's connection.

        :raises ConfigurationError: for a wrong ``show_values``.
        """
        asked = conf.get("airflow_cdc", "show_values", fallback="admins").strip().lower()
        if asked not in _SHOW:
            raise ConfigurationError(f"[airflow_cdc] show_values is {asked!r}.", next_step=f"Set it to one of {', '.join(_SHOW)}.")
        if asked != "admins":
            return asked == "all"
        details, user = ConnectionDetails(conn_id=lake), request.state.cdc_user
        return bool(get_auth_manager().is_authorized_connection(method="GET", details=details, user=user))

    def troubles(self, request: Request, lake: str, flows: Iterable[str]) -> dict[str, Trouble]:
        """Return by flow why nothing goes on: no run has looked for two schedules, the Dag is paused, or what the last run failed with."""
        lakes, names = {lake, *_with_root(CdcLakeHook, [self.view(lake).lake])}, list(flows)
        found = {flow: Trouble(error) for flow, error in dag_runs.last_errors(request, lakes, names).items()}
        watched = watches(lakes)
        readable = get_auth_manager().get_authorized_dag_ids(user=request.state.cdc_user, method="GET") if watched else set()
        for flow in names if watched else ():
            mine = of_flow(watched, flow)
            why = mine[0].told(named=mine[0].dag_id in readable) if mine else ""
            if mine and all(watch.is_overdue for watch in mine):
                # What an earlier run failed with may be over, or be the cause.
                text = f"{why} Last error: {found[flow].text}" if flow in found else why
                found[flow] = Trouble(text, stops_always=True)
            elif mine and all(watch.is_paused for watch in mine):
                found.setdefault(flow, Trouble(why))
        return found

    def runs(self, request: Request, lake: str, flow: str) -> dict[str, Any]:
        """Return the Dag runs that wrote a flow's table, and the Dags that may be triggered for it."""
        view = self.view(lake)
        lakes, archives = _with_root(CdcLakeHook, [view.lake]), _with_root(CdcArchiveHook, view.archives_of(flow))
        places = Places(asked=lake, lakes=frozenset({lake, *lakes}), archives=tuple(archives))
        return {"runs": dag_runs.runs_of(request, places.lakes, flow), "dags": dags_for(request, places)}

    @staticmethod
    def _described(conn_id: str) -> dict[str, Any]:
        hook: CdcStorageHook = CdcLakeHook(conn_id)
        try:
            return {"id": conn_id, "uri": hook.root, "error": None}
        except CdcError as error:
            return {"id": conn_id, "uri": None, "error": str(error)}


def _is_within(roots: Iterable[str], uri: str) -> bool:
    return any(is_within(uri, root) for root in roots)


def _reach(roots: Iterable[str], archive: str) -> tuple[FileSystem, str]:
    """Return an archive's file system: by the connection of type ``cdc_archive`` that has this root, else as the lake's store.

    :param roots: folders that the page reads without such a connection.
    :raises ConfigurationError: for another archive: whoever writes the lake's state can name any place that the server reaches.
    """
    conn_id = next(_with_root(CdcArchiveHook, [archive]), None)
    if conn_id is None and not _is_within(roots, archive):
        raise ConfigurationError(
            f"No connection of type cdc_archive has the root {archive}, so the page does not read it.",
            next_step="If its connection is in a secrets backend, add the root to page_reads in the extra of the lake's connection.",
        )
    with scoped_options(CdcArchiveHook(conn_id).storage_settings().file_systems if conn_id else {}):
        found: tuple[FileSystem, str] = file_system(archive)
    return found


def _hook(lake: str) -> CdcLakeHook:
    if not _is_lake(lake):
        # The same for what is not there and what is another thing: who looks learns no other connection's id.
        raise ConfigurationError(f"There is no lake {lake}.", next_step="Create a connection of type cdc_lake of that id.")
    return CdcLakeHook(lake)


def _is_lake(conn_id: str) -> bool:
    """Return whether a connection is of a lake, also one in a secrets backend, which lists none."""
    if conn_id in connection_ids(CdcLakeHook.conn_type):
        return True
    try:
        return CdcLakeHook(conn_id).connection.conn_type == CdcLakeHook.conn_type
    except (CdcError, ImportError):
        # Airflow 3.1 asks a task's process for what no backend has, and imports it: there is none here.
        return False


def _with_root(kind: type[CdcStorageHook], roots: Iterable[str]) -> Iterator[str]:
    """Yield the connections of a kind whose root is one of these."""
    wanted = tuple(roots)
    for conn_id in connection_ids(kind.conn_type):
        with suppress(CdcError):
            root = kind(conn_id).root
            if any(is_same(root, each) for each in wanted):
                yield conn_id


def connection_ids(conn_type: str) -> list[str]:
    """Return the ids of the connections of a type. Those of a secrets backend are not listed: no backend lists its own."""
    kinds = (conn_type, conn_type.replace("_", "-"))
    with create_session() as session:
        stored = list(session.scalars(select(Connection.conn_id).where(Connection.conn_type.in_(kinds))))
    variables = {name.removeprefix(_ENVIRONMENT).lower(): value for name, value in os.environ.items() if name.startswith(_ENVIRONMENT)}
    given = [conn_id for conn_id, value in variables.items() if _is_of(value, kinds)]
    return sorted({*stored, *given})


def _is_of(value: str, kinds: tuple[str, ...]) -> bool:
    if value.lstrip().startswith("{"):
        with suppress(ValueError):
            return json.loads(value).get("conn_type") in kinds
        return False
    return value.partition("://")[0] in kinds
