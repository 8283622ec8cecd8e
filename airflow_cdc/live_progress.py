"""Live progress of a run on a terminal: a line per flow with stage, files, records, rate and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from airflow_cdc.model.archive.topics import printable

if TYPE_CHECKING:
    from airflow_cdc.pipeline.run.step import Step

_STAGES = {
    "begun": "planned",
    "intent": "reading",
    "stage": "merging",
    "log": "merging",
    "quarantine": "merging",
    "target": "merging",
    "delete_markers": "merging",
    "moves": "merging",
    "merge": "committing",
    "append": "committing",
    "done": "committed",
    "ended": "up to date",
    "failed": "FAILED",
}
"""What a flow does after a step, by the step's name."""


@dataclass
class _Flow:
    task: TaskID
    files: int = 0
    records: int = 0
    bytes: int = 0
    begun: float = field(default_factory=time.monotonic)


@dataclass
class LiveProgress:
    """Shows steps as they come, from several threads."""

    progress: Progress
    clock: Callable[[], float] = time.monotonic
    _flows: dict[str, _Flow] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def show(self, step: Step) -> None:
        """Show a step."""
        with self._lock:
            flow = self._flows.get(step.flow)
            if flow is None:
                name = printable(step.flow)
                task = self.progress.add_task("", total=None, flow=name, stage="", files="", records="", rate="")
                flow = self._flows[step.flow] = _Flow(task, begun=self.clock())
            if step.stage == "done":
                flow.files, flow.records, flow.bytes = flow.files + step.files, flow.records + step.records, flow.bytes + step.bytes
            seconds = max(self.clock() - flow.begun, 0.001)
            total = max(flow.bytes, 1) if step.stage == "ended" else flow.bytes + step.pending_bytes if step.stage == "begun" else None
            shown: dict[str, Any] = {
                "stage": _STAGES.get(step.stage, step.stage) + (f" {step.microbatch}" if step.microbatch else ""),
                "files": f"{flow.files:,} files",
                "records": f"{flow.records:,} records",
                "rate": f"{flow.records / seconds:,.0f}/s" if flow.records else "",
            }
            finished = max(flow.bytes, 1) if step.stage == "ended" else flow.bytes
            if total is None:
                self.progress.update(flow.task, completed=finished, **shown)
            else:
                self.progress.update(flow.task, completed=finished, total=total, **shown)


def _ignore(_step: Step) -> None:
    """Show nothing: the lines that a run writes are enough for a log."""


@contextmanager
def live_progress(console: Console) -> Iterator[Callable[[Step], None]]:
    """Show the steps that the returned function receives, where the console is a terminal; elsewhere nothing."""
    if not console.is_terminal:
        yield _ignore
        return
    texts = [TextColumn(f"{{task.fields[{name}]}}", markup=False) for name in ("flow", "stage")]
    counts = [TextColumn(f"{{task.fields[{name}]}}", markup=False, justify="right") for name in ("files", "records", "rate")]
    # Lines that the run writes to the same console appear above; stdout and stderr are the command's own.
    with Progress(
        *texts, BarColumn(), *counts, TimeRemainingColumn(), console=console, redirect_stdout=False, redirect_stderr=False
    ) as shown:
        yield LiveProgress(shown).show
