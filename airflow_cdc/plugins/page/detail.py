"""One flow: its standing, its microbatches, its place in the source's log, its table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.lives import lane_text
from airflow_cdc.model.position.position import spelled_commit
from airflow_cdc.model.state.comparison import FlowComparison
from airflow_cdc.pipeline.look.native_table import NeedsSparkError, open_table
from airflow_cdc.pipeline.look.table_facts import changes_of, details_of
from airflow_cdc.plugins.page.lake_view import FlowView, LakeView
from airflow_cdc.plugins.page.listing import summary
from airflow_cdc.plugins.page.points import point

CLOSED = ConfigurationError(
    "The page does not open this table: it is outside of the lake.",
    next_step="If it may, add its folder to page_reads in the extra of the lake's connection.",
)
MOST_MICROBATCHES = 1000
"""Most microbatches in one answer."""
_MOST_COMMITS = 50
_MOST_GAPS = 50


def detail(flow: FlowView) -> dict[str, Any]:
    """Return a flow's standing and what its checkpoint holds."""
    checkpoint = flow.checkpoint
    report = flow.last.report if flow.last else None
    gaps = [gap for offsets in checkpoint.offsets.values() for gap in offsets.gaps(flow.flow)]
    return {
        **summary(flow),
        "last": point(flow.last) if flow.last else None,
        "applied_through": [
            {"lane": _lane(lane), "position": spelled_commit(position, flow.connector)}
            for lane, position in sorted(checkpoint.applied_through.items())
        ],
        "gaps": [{**gap.to_json(), "text": str(gap)} for gap in gaps[:_MOST_GAPS]],
        "gaps_total": len(gaps),
        "missing_offsets": sum(gap.missing for gap in gaps),
        "overlaps": [overlap.to_json() for overlap in report.offsets.overlaps] if report else [],
        "repeated_offsets": report.offsets.repeated if report else 0,
        "lives": sorted({_life(lane) for lane in checkpoint.applied_through}),
        "epochs": checkpoint.epochs.newest + 1,
        "epoch_begins": [
            {"lane": _lane(lane), "offset": first, "epoch": epoch + 1}
            for lane, places in checkpoint.epochs.begins.items()
            for first, epoch in places
        ],
        "snapshot": _snapshot(flow),
        "archives": sorted(checkpoint.planned),
        "compared": _compared(flow.comparison),
        "types": {name: kind.to_json() for name, kind in report.types.items()} if report else {},
    }


def _lane(lane: str) -> str:
    return lane_text(int(lane)) if lane.lstrip("-").isdigit() else "partition not recorded"


def _life(lane: str) -> int:
    return int(lane) // 65_536 + 1 if lane.lstrip("-").isdigit() else 1


def _snapshot(flow: FlowView) -> dict[str, Any] | None:
    found = flow.checkpoint.snapshot
    if found is None:
        return None
    return {
        "position": spelled_commit(found.position, flow.connector),
        "is_complete": found.is_complete,
        "is_initial": found.is_initial,
        "reads": found.reads,
        "undecided": len(flow.checkpoint.undecided_snapshots),
    }


def _compared(found: FlowComparison) -> dict[str, Any] | None:
    if not (found.at or found.skipped):
        return None
    counts = {"different": found.different, "undecided": len(found.open), "is_cut": found.is_cut}
    times = {"at": found.at or None, "verified_through": found.verified_through or None}
    return {**times, **counts, "left_out": found.left_out, "skipped": found.skipped or found.error}


def microbatches(view: LakeView, flow: FlowView, *, before: int | None, limit: int) -> dict[str, Any]:
    """Return a flow's microbatches, ascending, with their rejects by reason.

    :param before: only those with a lower number; None: up to the last.
    :param limit: at most so many, the newest.
    """
    last = flow.checkpoint.number if before is None else min(before - 1, flow.checkpoint.number)
    done = view.microbatches(flow.flow, range(max(1, last - limit + 1), last + 1))
    rejects: Counter[str] = Counter()
    for each in done:
        rejects.update(each.report.rejects if each.report else {})
    return {"microbatches": [point(each) for each in done], "total": flow.checkpoint.number, "rejects": dict(rejects.most_common())}


def table(flow: FlowView) -> dict[str, Any]:
    """Return a flow's table; ``note`` explains where there is none, or only Spark reads it."""
    if not flow.is_open:
        return {"uri": flow.table, "note": f"{CLOSED.message} {CLOSED.next_step}", "table": None, "changes": []}
    try:
        found = open_table(flow.table)
        if found is None:
            return {"uri": flow.table, "note": "There is no table yet.", "table": None, "changes": []}
        changes = [dict(vars(change)) for change in changes_of(found, _MOST_COMMITS)]
        return {"uri": flow.table, "note": "", "table": details_of(found).to_json(), "changes": changes}
    except NeedsSparkError as reason:
        return {"uri": flow.table, "note": f"Only Spark reads this table: {reason}.", "table": None, "changes": []}
