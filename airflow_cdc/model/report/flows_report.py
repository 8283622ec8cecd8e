"""FlowsReport: base of the reports of jobs over many flows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_cdc.model.plain_json import JsonObject


class FlowsReport(JsonObject):
    """A report with one outcome per flow; each has ``flow``, ``error``, ``lines`` and ``to_json``. For frozen dataclasses."""

    flows: tuple[Any, ...]
    error: dict[str, Any] | None

    @property
    def ok(self) -> bool:
        """True when nothing failed."""
        return self.error is None and all(flow.error is None for flow in self.flows)

    def causes(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the failures, each with its flow's name."""
        run = [("The run", self.error)] if self.error else []
        return run + [(flow.flow, flow.error) for flow in self.flows if flow.error]

    def lines(self) -> Iterator[str]:
        """Yield the report as lines for people."""
        for flow in self.flows:
            yield from flow.lines()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"ok": self.ok, **super().to_json()}
