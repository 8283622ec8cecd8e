"""Announced versions: the version of each table that a task has announced to its assets, as a document in the lake.

<lake>/_cdc/told/<installation>/<task>.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_cdc.model.plain_json import JsonObject


@dataclass(frozen=True)
class AnnouncedVersions(JsonObject, names={"announced": "told"}, required=("before", "announced")):
    """The versions by flow, before and after the task's last run that announced any."""

    run_id: str | None = None
    """The Dag run; another try of it announces again what an earlier try announced. None before the first."""
    before: Mapping[str, int] = field(default_factory=dict)
    announced: Mapping[str, int] = field(default_factory=dict)
