"""The lag of flows as findings for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_cdc.model.look.lag import Lag
from airflow_cdc.model.report.findings import Finding, FindingKind

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def flows_behind(behind: Mapping[str, Lag], max_seconds: float) -> Iterator[Finding]:
    """Yield the flows whose age exceeds a bound; an unknown age exceeds any."""
    for flow, lag in sorted(behind.items(), key=lambda item: (-(item[1].seconds or float("inf")), item[0])):
        if not lag.is_within(max_files=None, max_bytes=None, max_seconds=max_seconds):
            age = "never applied, or its events carry no time" if lag.seconds is None else f"{duration(lag.seconds)} behind the source"
            files = "1 file" if lag.files == 1 else f"{lag.files:,} files"
            yield Finding(FindingKind.BEHIND, flow, f"{age}; pending: {files}, {lag.bytes:,} bytes")


def duration(seconds: float) -> str:
    """Return a duration for people, by its two greatest units, such as ``2 h 5 min``."""
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size or (size == 1 and not parts):
            parts.append(f"{left // size} {unit}")
        left %= size
    return " ".join(parts[:2])
