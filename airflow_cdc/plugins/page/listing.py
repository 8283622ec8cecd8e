"""The list of a lake's flows: searched, filtered, sorted, paged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.look.standing import Standing
from airflow_cdc.plugins.page.context import Trouble
from airflow_cdc.plugins.page.lake_view import ArchiveView, FlowView, LakeView
from airflow_cdc.plugins.page.points import lag_at_commit, point

_MOST_HELD = 100
POINTS = 24
"""Microbatches in a small plot."""
_DONE = (Standing.ATTENTION, Standing.UP_TO_DATE)
_URGENCY = [Standing.STOPPED, Standing.UNKNOWN, Standing.WAITING, Standing.BEHIND, Standing.CATCHING_UP, *_DONE]


@dataclass(frozen=True)
class Wanted:
    """Which flows to list."""

    search: str = ""
    """Part of the flow's name, in any case."""
    standing: str = ""
    connector: str = ""
    sort: str = "standing"
    """A key of :data:`SORTS`."""
    descending: bool = False
    page: int = 1
    size: int = 50


def list_flows(view: LakeView, wanted: Wanted, troubles: Callable[[Iterable[str]], Mapping[str, Trouble]]) -> dict[str, Any]:
    """Return a page of the list, with counts over all flows.

    :param troubles: returns by flow why nothing goes on, as far as Airflow knows it.
    """
    look = view.look()
    found_by_flow = troubles(look.flows)
    all_flows = [with_trouble(flow, found_by_flow.get(flow.flow)) for flow in look.flows.values()]
    found = [flow for flow in all_flows if _matches(flow, wanted)]
    # Sorted twice, because sorting is stable: equal ones are in the order of their names, whichever way the rest is turned.
    found.sort(key=lambda flow: flow.flow)
    found.sort(key=SORTS.get(wanted.sort, SORTS["standing"]), reverse=wanted.descending)
    first = (wanted.page - 1) * wanted.size
    shown = found[first : first + wanted.size]
    # While the first look is under way it would only slow that down.
    if look.at:
        view.prepare(shown, POINTS)
    return {
        "flows": [_row(view, flow) for flow in shown],
        "matching": len(found),
        "total": look.total,
        "known": len(look.flows) + len(look.unreadable),
        "standings": dict(Counter(flow.standing.value for flow in all_flows)),
        "connectors": dict(sorted(Counter(flow.connector or "" for flow in all_flows).items())),
        "unreadable": look.unreadable,
        "waiting": {name: sum(getattr(flow.waiting, name) for flow in all_flows) for name in ("files", "bytes", "events")},
        "at": look.at or None,
        "archives": [_archive(name, found, look.flows) for name, found in look.archives.items()],
    }


def _archive(archive: str, view: ArchiveView, flows: Container[str]) -> dict[str, Any]:
    """Return what an archive's last listing found that counts for none of the listed flows, and its topics that are no flows."""
    listed = view.unsurveyed
    new = sum((landed for topic, landed in listed.by_topic.items() if topic not in flows), listed.others)
    held = [{"topic": name, "reason": topic.reason, "detail": topic.detail, "records": topic.records} for name, topic in view.held.items()]
    return {"archive": archive, "at": listed.at or None, "failure": listed.failure, **vars(new), "held": held[:_MOST_HELD]}


def with_trouble(flow: FlowView, trouble: Trouble | None) -> FlowView:
    """Return a flow, stopped where no run goes on with what waits, or nobody looks. What the lake itself shows of why comes first."""
    if trouble is None or flow.standing in (Standing.STOPPED, Standing.CATCHING_UP):
        return flow
    if flow.standing in _DONE and not trouble.stops_always:
        return flow
    return FlowView(**{**vars(flow), "standing": Standing.STOPPED, "reason": trouble.text})


def _matches(flow: FlowView, wanted: Wanted) -> bool:
    return (
        wanted.search.lower() in flow.flow.lower()
        and wanted.standing in ("", flow.standing.value)
        and wanted.connector in ("", flow.connector or "unknown")
    )


def lag_seconds(flow: FlowView, now: float) -> float | None:
    """Return the seconds since the source committed the last applied event, while anything waits; None where that is not known."""
    if not flow.waiting.files:
        return 0.0
    through = flow.checkpoint.committed_through
    return None if through is None else max(0.0, now - through / 1000)


def _lag(flow: FlowView) -> float:
    lag = lag_seconds(flow, time.time())
    return float("inf") if lag is None else lag


def _committed_at(flow: FlowView) -> str:
    return (flow.last and flow.last.committed_at) or ""


SORTS: dict[str, Callable[[FlowView], Any]] = {
    "flow": lambda flow: flow.flow,
    "standing": lambda flow: _URGENCY.index(flow.standing),
    "connector": lambda flow: flow.connector or "",
    "lag": _lag,
    "waiting": lambda flow: (flow.waiting.events, flow.waiting.bytes),
    "last": _committed_at,
    "microbatches": lambda flow: flow.checkpoint.number,
    "events": lambda flow: flow.checkpoint.events.read,
    "rejected": lambda flow: flow.checkpoint.events.rejected,
}
"""What the list can be sorted by."""


def _row(view: LakeView, flow: FlowView) -> dict[str, Any]:
    rows, points = view.rows(flow), view.last_points(flow, POINTS)
    return {
        **summary(flow),
        "rows": rows[0] if rows else None,
        "is_whole": rows is not None and points is not None,
        "last": point(flow.last) if flow.last else None,
        "spark": [[done.report.events.read if done.report else 0, lag_at_commit(done)] for done in points or ()],
    }


def summary(flow: FlowView) -> dict[str, Any]:
    """Return a flow's summary as plain JSON values."""
    return {
        "flow": flow.flow,
        "connector": flow.connector,
        "table": flow.table,
        "standing": flow.standing.value,
        "reason": flow.reason,
        "findings": flow.findings,
        "lag_seconds": lag_seconds(flow, time.time()),
        "waiting": dict(vars(flow.waiting)),
        "microbatches": flow.checkpoint.number,
        "events": flow.checkpoint.events.to_json(),
        "table_version": flow.checkpoint.table_version,
        "committed_through": flow.checkpoint.committed_through,
    }
