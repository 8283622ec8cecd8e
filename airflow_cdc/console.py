"""Output of the command line: tables for people, one JSON document for programs."""

from __future__ import annotations

import base64
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts

if TYPE_CHECKING:
    from airflow_cdc.pipeline.look.differences import TableDifference
    from airflow_cdc.pipeline.look.microbatches import DoneMicrobatch, FlowHistory

_STATUS_STYLE = {FlowStatus.APPLIED: "green", FlowStatus.UP_TO_DATE: "dim", FlowStatus.WAITING: "yellow", FlowStatus.FAILED: "bold red"}
_LONGEST_CELL = 60
_RARE_EVENTS = ("superseded", "redelivered", "stale", "tombstones", "control", "rejected")
"""Counts of events that have a column only where one of them is not zero."""


def plain(value: Any) -> Any:
    """Return a value in lossless JSON form: decimals and times as text, bytes as base64."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    keeps = isinstance(value, str | int | None) or (isinstance(value, float) and math.isfinite(value))
    return value if keeps else str(value)


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON document on stdout."""
    sys.stdout.write(json.dumps(plain(document), ensure_ascii=False, indent=1) + "\n")
    sys.stdout.flush()


def stdout_console() -> Console:
    """Return a console on stdout; wide where there is no terminal, so that piped tables are not folded to 80 columns."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def divert_stderr(path: Path) -> Console:
    """Send this process's stderr, and that of Spark's JVM, to a file; return a console that still reaches the terminal."""
    terminal = os.fdopen(os.dup(2), "w", buffering=1)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    return Console(file=terminal, width=None if os.isatty(terminal.fileno()) else 200)


def table(
    title: str, columns: Iterable[str], rows: Iterable[Iterable[Any]], *, right: Iterable[str] = (), data: bool = False
) -> RenderableType:
    """Return a table for people. Long cells are cut, except Rich texts.

    :param data: whether numbers are source values, shown unchanged, and not counts.
    """
    flush_right = set(right)
    shown = Table(header_style="bold cyan", expand=False)
    for column in columns:
        shown.add_column(column, justify="right" if column in flush_right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*[cell if isinstance(cell, Text) else _cell(cell, data=data) for cell in row])
    # A title set on the table would be folded to the table's width.
    return Group(Text(title, style="bold"), shown)


def _cell(value: Any, *, data: bool) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    is_count = isinstance(value, int) and not isinstance(value, bool) and not data
    text = f"{value:,}" if is_count else str(plain(value))
    return Text(text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…")


def shown_of(shown: int, total: int, what: str) -> str:
    """Return how much of something is shown: ``1,571 rows``, or ``rows 4 of 1,571``."""
    return f"{what} {shown:,} of {total:,}" if shown < total else f"{total:,} {what if total != 1 else what.removesuffix('s')}"


def report_table(report: ApplyReport) -> RenderableType:
    """Return a run's outcome, one line per flow, with the counts that are not zero everywhere."""
    counted = _counted([flow.events for flow in report.flows])
    rows = [
        [
            flow.flow,
            Text(flow.status.value, style=_STATUS_STYLE[flow.status]),
            *[getattr(flow.events, name) for name in counted],
            _changed(flow.rows),
        ]
        for flow in report.flows
    ]
    return table("Applied", ("flow", "status", *counted, "rows"), rows, right=(*counted, "rows"))


def history_table(history: FlowHistory) -> RenderableType:
    """Return a flow's microbatches, one per line, with the counts that are not zero everywhere."""
    counted = _counted([each.report.events for each in history.microbatches if each.report])
    columns = ("number", "when (UTC)", "files", *counted, "rows", "seconds", "engine", "plan")
    title = f"{history.flow}, {_newest(len(history.microbatches), history.total)}"
    rows = [_microbatch_cells(each, counted) for each in history.microbatches]
    return table(title, columns, rows, right=("number", "files", *counted, "rows", "seconds"))


_BARS = " ▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float]) -> str:
    """Return values as bars, the greatest one full; a value above zero has at least the lowest bar.

    >>> sparkline([0, 1, 4, 8])
    ' ▁▄█'
    """
    greatest = max(values, default=0)
    return "".join(_BARS[0 if value <= 0 or greatest <= 0 else max(1, round(value / greatest * (len(_BARS) - 1)))] for value in values)


def history_plot(history: FlowHistory) -> RenderableType:
    """Return what a flow's microbatches read, changed, rejected and took, a bar a microbatch; a dot where the commit marker is gone."""
    series: Mapping[str, Callable[[BatchReport], float]] = {
        "read": lambda report: report.events.read,
        "merged": lambda report: report.events.merged,
        "stale": lambda report: report.events.stale,
        "rejected": lambda report: report.events.rejected,
        "rows": lambda report: report.rows.inserted + report.rows.updated + report.rows.deleted,
        "seconds": lambda report: report.seconds,
    }
    lines = []
    for name, value_of in series.items():
        values = [value_of(each.report) if each.report else None for each in history.microbatches]
        known = [value for value in values if value is not None]
        if not any(known):
            continue
        bars = iter(sparkline(known))
        plotted = "".join("·" if value is None else next(bars) for value in values)
        greatest = f"{max(known):,.1f}" if name == "seconds" else f"{max(known):,.0f}"
        lines.append(Text(f"{name:>8} {plotted}  at most {greatest}"))
    return Group(*lines)


def _newest(shown: int, total: int) -> str:
    return f"the newest {shown:,} of {total:,} microbatches" if shown < total else f"{total:,} microbatch{'' if total == 1 else 'es'}"


def _microbatch_cells(done: DoneMicrobatch, counted: Sequence[str]) -> list[Any]:
    report, when = done.report, Text((done.committed_at or "-")[:19].replace("T", " "))
    if report is None:
        return [
            done.number,
            when,
            *(Text("-") for _ in ("files", *counted, "rows", "seconds", "engine")),
            Text("its commit marker is gone"),
        ]
    events = [getattr(report.events, name) for name in counted]
    return [
        done.number,
        when,
        report.files,
        *events,
        _changed(report.rows),
        f"{report.seconds:.1f}",
        report.engine,
        Text(report.merge_plan),
    ]


def _counted(events: Sequence[EventCounts]) -> tuple[str, ...]:
    return ("read", "merged", *(name for name in _RARE_EVENTS if any(getattr(each, name) for each in events)))


def _changed(rows: RowCounts) -> str:
    return f"+{rows.inserted:,} ~{rows.updated:,} -{rows.deleted:,}"


def differing_columns(found: TableDifference) -> Text:
    """Return the columns in which two tables differ, one per line: other types, then other values."""
    values = (f"{name}: {count:,} values differ" for name, count in found.values.items())
    return Text("\n".join((*found.schema, *values)))


def error_text(error: CdcError) -> Text:
    """Return an error for people; brackets in it are not markup."""
    return Text.assemble((f"{type(error).__name__}:", "red"), f" {error.message}\n  Next step: {error.next_step}")


def print_gaps(console: Console, report: ApplyReport) -> None:
    """Print rejects and doubts, missing offsets and transactions' events, what waits, and unreadable files."""
    offsets = [line for flow in report.flows for line in (*flow.reject_lines(), *flow.gap_lines())]
    for line in [*offsets, *report.transaction_lines(), *report.set_aside_lines()]:
        console.print(Text(line, style="yellow"))


def print_errors(console: Console, report: ApplyReport) -> None:
    """Print each failed flow's cause and the next step."""
    errors = [(flow.flow, flow.error) for flow in report.flows if flow.error]
    print_causes(console, errors + ([("run", report.error)] if report.error else []))


def print_causes(console: Console, causes: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Print causes and next steps, each with its flow."""
    for flow, error in causes:
        console.print(Text(f"{flow}: {error['type']}: {error['message']}", style="red"))
        # It may hold lines to paste: folded to the terminal's width they would not be valid YAML.
        console.print(Text(f"  Next step: {error['next_step']}"), soft_wrap=True)
