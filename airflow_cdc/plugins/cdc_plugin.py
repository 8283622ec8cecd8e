"""The plugin that brings the page into Airflow's UI. Every process of Airflow imports this module, so it imports nothing else of ours."""

from __future__ import annotations

import mimetypes
import sys
from typing import TYPE_CHECKING, Any

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from fastapi import FastAPI

PREFIX = "/cdc"
"""Where the app is mounted."""
ROUTE = "cdc"
"""The page in Airflow's UI is ``/plugin/cdc``."""
_SERVER = "airflow.api_fastapi.app"

# Some machines' tables of types do not have it, and a browser refuses a script of another type.
mimetypes.add_type("application/javascript", ".js")


def is_api_server() -> bool:
    """Return whether this process serves Airflow's API: workers, the scheduler and the Dag processor import plugins too."""
    return _SERVER in sys.modules


def base_path() -> str:
    """Return the path of ``[api] base_url``, without a trailing slash: Airflow may not be at the root of its host."""
    from urllib.parse import urlsplit

    from airflow.configuration import conf

    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


class _InServer:
    """A class attribute of the plugin that has a value in the API server only; elsewhere it is an empty list."""

    def __get__(self, instance: object, owner: type) -> list[dict[str, Any]]:
        return [{"app": _app(), "url_prefix": PREFIX, "name": "CDC"}] if is_api_server() else []


_MADE: list[FastAPI] = []


def _app() -> FastAPI:
    """Return the app, made on first use: Airflow asks for it several times."""
    if not _MADE:
        from airflow_cdc.plugins.page_in_airflow import airflow_app

        _MADE.append(airflow_app())
    return _MADE[0]


class CdcPlugin(AirflowPlugin):
    """The page, in Airflow's menu under Browse."""

    name = "airflow_cdc"
    fastapi_apps: Any = _InServer()
    # An unknown destination would drop the whole plugin, with no more than a warning.
    external_views = [  # noqa: RUF012 - as its base has it.
        {"name": "CDC tables", "href": f"{base_path()}{PREFIX}/", "destination": "nav", "url_route": ROUTE, "category": "browse"}
    ]
