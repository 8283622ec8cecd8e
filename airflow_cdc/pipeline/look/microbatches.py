"""The microbatches of a flow and their reports, from its commit markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.lake import FlowState, flows_in
from airflow_cdc.pipeline.spark.storage import file_system


@dataclass(frozen=True)
class DoneMicrobatch:
    """A committed microbatch."""

    number: int
    committed_at: str | None
    """When its commit marker was written, in ISO 8601; None where that is not recorded."""
    report: BatchReport | None
    """None where its commit marker is gone."""

    def to_json(self) -> dict[str, Any]:
        """Return the microbatch as commands print it."""
        return {"number": self.number, "committed_at": self.committed_at, "report": self.report and self.report.to_json()}


@dataclass(frozen=True)
class FlowHistory:
    """The last microbatches of a flow."""

    flow: str
    microbatches: tuple[DoneMicrobatch, ...]
    """Ascending."""
    total: int
    """Number of committed microbatches; a limit may have left the oldest out."""


def read_history(lake: str, flow: str, limit: int | None = None) -> FlowHistory:
    """Return the microbatches of a flow.

    :param limit: maximum number of microbatches, the newest; None: all.
    :raises ConfigurationError: when the lake knows no flow of that name.
    """
    check_flow(lake, flow)
    fs, root = file_system(lake)
    state = FlowState(fs, root, flow)
    last = state.checkpoint().number
    first = 1 if limit is None else max(1, last - limit + 1)
    done = tuple(_microbatch(state, number) for number in range(first, last + 1))
    return FlowHistory(flow, done, last)


def check_flow(lake: str, flow: str) -> None:
    """Refuse the name of a flow that a lake does not know.

    :raises ConfigurationError: for such a name.
    """
    if flow not in (known := flows_in(*file_system(lake))):
        raise ConfigurationError(
            f"Lake {lake} knows no flow {flow}; its flows are {known}.",
            next_step="Check the flow's name and the lake's root with `airflow-cdc tables --lake …`.",
        )


def _microbatch(state: FlowState, number: int) -> DoneMicrobatch:
    marker = state.marker(number)
    return DoneMicrobatch(number, marker.committed_at, marker.report) if marker else DoneMicrobatch(number, None, None)
