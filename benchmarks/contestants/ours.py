"""Ours: the archive is applied in this process, with the settings that a user gets who sets none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from benchmarks.base import apply
from benchmarks.contestants.contestant import Contestant
from benchmarks.shapes import TOPIC

_SHOWN = ("engine", "engine_reason", "merge_plan", "events", "rows", "seconds", "stage_seconds")


class Ours(Contestant):
    """Survey, plan, decode, reconcile, merge, record: all of it is measured."""

    name = "ours"

    @property
    def table(self) -> Path:
        """The flow's target."""
        return self.folder / "lake" / TOPIC

    def prepare(self) -> None:
        """Copy the lake, state and all, and have the archive that it knows hold the events."""
        self.task.base.offer(self.task.files)
        self.copy(self.task.base.lake)

    def merge(self) -> None:
        """Apply the archive."""
        self._apply(self.task.base.flow)

    def _apply(self, flow: CdcFlow) -> None:
        base = self.task.base
        report = apply(base.spark, base.archive, self.folder / "lake", flow)
        batches = [batch.to_json() for flow in report.flows for batch in flow.batches]
        self.keep(batches)

    def keep(self, batches: Iterable[Mapping[str, Any]]) -> None:
        """Keep what is shown of the reports of microbatches."""
        self._reports = [{name: batch[name] for name in _SHOWN} for batch in batches]

    def facts(self) -> dict[str, Any]:
        """Return the reports of the microbatches: which plan was chosen, and what became of the events."""
        return {"reports": self._reports}

    _reports: Sequence[dict[str, Any]] = ()


class OursBySpark(Ours):
    """As ours, with the setting ``engine: spark``."""

    name = "ours by Spark"

    def merge(self) -> None:
        """Apply the archive."""
        self._apply(replace(self.task.base.flow, engine=Engine.SPARK))
