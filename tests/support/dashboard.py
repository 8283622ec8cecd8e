"""The dashboard for Grafana and its queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DASHBOARD: dict[str, Any] = json.loads((Path(__file__).parents[2] / "docs/dashboards/grafana.json").read_text(encoding="utf-8"))
_BY_GRAFANA = {"$lake": ".*", "$flow": ".*", "$__range": "1h", "$__rate_interval": "5m"}


def queries() -> dict[str, str]:
    """Return each panel's query by its title."""
    return {panel["title"]: target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]}


def as_asked(query: str) -> str:
    """Return a query as Grafana sends it, with all flows and lakes chosen."""
    for variable, value in _BY_GRAFANA.items():
        query = query.replace(variable, value)
    return query
