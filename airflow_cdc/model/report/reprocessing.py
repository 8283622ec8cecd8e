"""ReprocessReport: what was read again of a lake's flows and its outcome, for two jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts, total_rows
from airflow_cdc.model.report.flows_report import FlowsReport


def check_reasons(reasons: Collection[str]) -> None:
    """Refuse unknown reject reasons.

    :raises ConfigurationError: for such a name.
    """
    known = sorted(reason.value for reason in RejectReason)
    if unknown := sorted({*reasons} - {*known}):
        raise ConfigurationError(f"No record is set aside for {unknown}; the reasons are {known}.", next_step="Correct the reason's name.")


def found_line(found: BatchReport) -> str:
    """Return the changes that were found, as a line for people."""
    rows, events = found.rows, found.events
    changes = f"{rows.inserted:,} inserts, {rows.updated:,} updates, {rows.deleted:,} deletes, {events.stale:,} older than the row"
    return f"{changes} ({events.read:,} records in {found.files:,} files)"


@dataclass(frozen=True)
class FlowReprocess(JsonObject):
    """What was read again of one flow, and its outcome."""

    flow: str
    found: BatchReport | None = None
    """Result of a microbatch of the files read again; None where the quarantine held nothing of what was asked for, and where the flow
    failed before."""
    done: tuple[BatchReport, ...] = ()
    """Committed microbatches; none in a dry run and where everything was right already. Two where an earlier try was interrupted in the
    middle of one."""
    error: dict[str, Any] | None = None
    """Why the flow failed (:meth:`airflow_cdc.model.errors.CdcError.to_json`); the other flows are not affected."""

    @property
    def result(self) -> BatchReport | None:
        """The last committed microbatch; where there is none, what was found."""
        return self.done[-1] if self.done else self.found

    @property
    def rows(self) -> RowCounts:
        """The changed rows; for a plan, those that would change."""
        return total_rows(self.done) if self.done else self.found.rows if self.found else RowCounts()

    def lines(self) -> Iterator[str]:
        """Yield lines for people on the flow."""
        if self.found:
            yield f"{self.flow}: {found_line(self.found)}"
            for batch in self.done:
                yield f"{self.flow}: done by microbatch {batch.microbatch}"
            rejects = self.result.rejects if self.result else {}
            if rejects:
                counts = ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejects.items()))
                yield f"{self.flow}: cannot be merged: {counts}"
        elif not self.error:
            yield f"{self.flow}: nothing to read again"
        if self.error:
            yield f"{self.flow}: failed: {self.error['type']}: {self.error['message']}"

    def summary(self) -> dict[str, Any]:
        """Return the outcome as a small JSON object."""
        result = self.result
        versions = [batch.table_version for batch in self.done if batch.table_version is not None]
        return {
            "files": result.files if result else 0,
            "events": dict(vars(result.events if result else EventCounts())),
            "rows": dict(vars(self.rows)),
            "rejects": result.rejects if result else {},
            "microbatches": [batch.microbatch for batch in self.done],
            "table_version": max(versions, default=None),
        }


@dataclass(frozen=True)
class ReprocessReport(FlowsReport):
    """What was read again of the flows of a lake."""

    archive: str
    lake: str
    dry_run: bool = False
    flows: tuple[FlowReprocess, ...] = field(default=())
    error: dict[str, Any] | None = None
    """Set when the run stopped before it reached any flow."""
