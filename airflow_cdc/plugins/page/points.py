"""A microbatch as the page's plots and tables take it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_cdc.pipeline.look.microbatches import DoneMicrobatch


def point(done: DoneMicrobatch) -> dict[str, Any]:
    """Return a microbatch's numbers as plain JSON values; without a report where its commit marker is gone."""
    report = done.report
    if report is None:
        return {"number": done.number, "at": done.committed_at, "events": None}
    return {
        "number": done.number,
        "at": done.committed_at,
        "events": report.events.to_json(),
        "rows": report.rows.to_json(),
        "files": report.files,
        "bytes": report.bytes,
        "seconds": report.seconds,
        "stage_seconds": report.stage_seconds,
        "engine": report.engine,
        "engine_reason": report.engine_reason,
        "plan": report.merge_plan,
        "lag": lag_at_commit(done),
        "version": report.table_version,
        "rejects": report.rejects,
        "order_conflicts": report.order_conflicts,
        "schema": schema_changes(done),
    }


def lag_at_commit(done: DoneMicrobatch) -> float | None:
    """Return the seconds from the source's commit of the last event to the microbatch's own; None where either is not known."""
    if not done.committed_at or done.report is None or done.report.committed_through is None:
        return None
    return max(0.0, round(datetime.fromisoformat(done.committed_at).timestamp() - done.report.committed_through / 1000, 3))


def schema_changes(done: DoneMicrobatch) -> list[str]:
    """Return what a microbatch changed in the table's columns, a line each."""
    report = done.report
    if report is None:
        return []
    return [
        *report.schema_changes,
        *(f"column {name} filled from the documents" for name in report.columns_filled),
    ]
