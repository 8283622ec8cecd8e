"""Measure contestants in turn: CPU seconds of the process tree, wall seconds, peak memory; medians and ratios.

CPU seconds are the figure to trust on a busy machine, and ratios within one run.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Taken:
    """What one piece of work took."""

    cpu: float
    """Seconds, of this process and all below it: Java among them."""
    wall: float
    """Seconds."""
    peak: int
    """Bytes: the most that the processes have held until now."""


@dataclass
class Result:
    """What the contestants of one scenario took, a list each, and against whom they are held."""

    scenario: str
    told: str
    """The scenario in a sentence, with its sizes."""
    against: str
    """Name of the contestant that the ratios are about."""
    taken: dict[str, list[Taken]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """What else was found."""
    void: str = ""
    """Why the figures do not count; empty where they do."""

    def median(self, name: str, figure: str) -> float:
        """Return the median of a contestant's figure: ``cpu`` or ``wall``, in seconds."""
        return float(statistics.median(getattr(taken, figure) for taken in self.taken[name]))

    def ratio(self, name: str, figure: str) -> float:
        """Return a contestant's median as a multiple of that of the one it is held against."""
        return self.median(name, figure) / self.median(self.against, figure)


def measure(work: Callable[[], object]) -> Taken:
    """Do it and return what it took."""
    cpu, wall = _cpu_seconds(), time.monotonic()
    work()
    return Taken(_cpu_seconds() - cpu, time.monotonic() - wall, _peak_bytes())


def in_turn(contestants: Mapping[str, Callable[[], object]], *, rounds: int, warm_ups: int = 1) -> dict[str, list[Taken]]:
    """Let the contestants work ``rounds`` times each, the order turned round each time, after as many unmeasured rounds as asked."""
    taken: dict[str, list[Taken]] = {name: [] for name in contestants}
    for number in range(warm_ups + rounds):
        for name in list(contestants)[:: -1 if number % 2 else 1]:
            this = measure(contestants[name])
            if number >= warm_ups:
                taken[name].append(this)
    return taken


def _processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _cpu_seconds() -> float:
    return float(sum(times.user + times.system for process in _processes() for times in [process.cpu_times()]))


def _peak_bytes() -> int:
    total = 0
    for process in _processes():
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        total += sum(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))
    return total


def report(result: Result) -> None:
    """Print a result and keep it as JSON under ``results/``."""
    table = Table(title=result.told, title_justify="left")
    headings = ("", "CPU s", "wall s", "peak GB", f"CPU / {result.against}", f"wall / {result.against}")
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left")
    for name, taken in result.taken.items():
        peak = max(item.peak for item in taken) / 1e9
        figures = [f"{result.median(name, 'cpu'):.2f}", f"{result.median(name, 'wall'):.2f}", f"{peak:.1f}"]
        table.add_row(name, *figures, f"{result.ratio(name, 'cpu'):.2f}", f"{result.ratio(name, 'wall'):.2f}")
    console = Console()
    console.print(table)
    if result.void:
        console.print(f"[red]VOID[/red]: {result.void}")
    RESULTS.mkdir(exist_ok=True)
    medians = {name: {figure: round(result.median(name, figure), 3) for figure in ("cpu", "wall")} for name in result.taken}
    runs = {name: [asdict(item) for item in taken] for name, taken in result.taken.items()}
    document = {"scenario": result.told, "medians": medians, "runs": runs, "facts": result.facts, "void": result.void}
    (RESULTS / f"{result.scenario}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
