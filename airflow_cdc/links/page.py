"""Addresses in the page that shows flows, below Airflow's own address."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from airflow.providers.common.compat.sdk import conf

_PAGE = "/plugin/cdc#"


def flow_page(lake_conn_id: str, flow: str) -> str:
    """Return the address of one flow."""
    return _page(lake_conn_id, flow)


def flows_page(lake_conn_id: str) -> str:
    """Return the address of a lake's flows."""
    return _page(lake_conn_id)


def quarantine_page(lake_conn_id: str, flow: str) -> str:
    """Return the address of a flow's rejected records."""
    return _page(lake_conn_id, flow, "quarantine")


def _page(*parts: str) -> str:
    # Airflow may be mounted below a path of its host, and its own links begin there too.
    prefix = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    return f"{prefix}{_PAGE}/{'/'.join(quote(part, safe='') for part in parts)}"
