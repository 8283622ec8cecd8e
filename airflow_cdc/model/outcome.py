"""ApplyReport: what one run did for every flow of an archive; what the job hands to the operator and the CLI prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_cdc.model.report import BatchReport, EventCounts, RowCounts, total_events, total_rows


class FlowStatus(str, Enum):
    """How a flow ended."""

    APPLIED = "applied"
    """At least one microbatch was committed."""
    UP_TO_DATE = "up_to_date"
    """Nothing was pending."""
    FAILED = "failed"
    """The flow stopped; the others went on."""


@dataclass(frozen=True)
class FlowOutcome:
    """What one run did for one flow."""

    flow: str
    status: FlowStatus
    table: str | None = None
    """URI of the target table."""
    batches: tuple[BatchReport, ...] = ()
    error: dict[str, Any] | None = None
    """``type``, ``message``, ``next_step``, ``transient`` (:meth:`airflow_cdc.model.errors.CdcError.to_json`)."""

    @property
    def events(self) -> EventCounts:
        """Sum over the microbatches."""
        return total_events(self.batches)

    @property
    def rows(self) -> RowCounts:
        """Sum over the microbatches."""
        return total_rows(self.batches)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values."""
        return {
            "flow": self.flow,
            "status": self.status.value,
            "table": self.table,
            "events": dict(vars(self.events)),
            "rows": dict(vars(self.rows)),
            "batches": [batch.to_json() for batch in self.batches],
            "error": self.error,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FlowOutcome:
        """Read what :meth:`to_json` wrote."""
        batches = tuple(BatchReport.from_json(item) for item in document["batches"])
        return cls(document["flow"], FlowStatus(document["status"]), document["table"], batches, document["error"])


@dataclass(frozen=True)
class ApplyReport:
    """What one run did for every flow."""

    archive: str
    lake: str
    flows: tuple[FlowOutcome, ...] = ()
    control_topics: tuple[str, ...] = ()
    """Topics that were recognised and are not tables."""
    ignored_files: tuple[str, ...] = ()
    """Files under the archive's root that are not archived records."""
    error: dict[str, Any] | None = field(default=None)
    """Set when the run stopped before any flow could be told."""

    @property
    def ok(self) -> bool:
        """True when nothing failed."""
        return self.error is None and all(flow.status is not FlowStatus.FAILED for flow in self.flows)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {
            "ok": self.ok,
            "archive": self.archive,
            "lake": self.lake,
            "flows": [flow.to_json() for flow in self.flows],
            "control_topics": list(self.control_topics),
            "ignored_files": list(self.ignored_files),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> ApplyReport:
        """Read what :meth:`to_json` wrote."""
        return cls(
            document["archive"],
            document["lake"],
            tuple(FlowOutcome.from_json(item) for item in document["flows"]),
            tuple(document["control_topics"]),
            tuple(document["ignored_files"]),
            document["error"],
        )
