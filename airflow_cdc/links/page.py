"""Addresses in the page that shows flows, below Airflow's own address."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import conf

_PAGE = "/cdc/#"


def flow_page(lake_conn_id: str, flow: str) -> str:
    """Return the address of one flow."""
    return _page("flows", lake_conn_id, flow)


def flows_page(lake_conn_id: str, globs: Sequence[str] = ()) -> str:
    """Return the address of a lake's flows, of those that globs match."""
    return _page("flows", lake_conn_id) + (f"?tables={quote(','.join(globs), safe='')}" if globs else "")


def quarantine_page(lake_conn_id: str, flow: str | None = None) -> str:
    """Return the address of a flow's rejected records, or of the whole lake's."""
    return _page("quarantine", lake_conn_id, *([flow] if flow else []))


def _page(*parts: str) -> str:
    # Airflow may be mounted below a path of its host, and its own links begin there too.
    prefix = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return f"{prefix}{_PAGE}/{'/'.join(quote(part, safe='') for part in parts)}"
