"""Measure contestants in turn: CPU seconds of the process tree, wall seconds, peak memory; medians and ratios.

CPU seconds are the figure to trust on a busy machine, and ratios within one run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.processes import PeakMemory, cpu_seconds


@dataclass(frozen=True)
class Taken:
    """What one piece of work took."""

    cpu: float
    """Seconds, of this process and all below it: Java among them."""
    wall: float
    """Seconds."""
    peak: int
    """Bytes: the most that the processes held at once meanwhile."""
    bytes_written: int | None = None
    """Bytes of data files and deletion vectors that its commits added to the table; None where nothing tells."""
    files_touched: int | None = None
    """Files of the table that it rewrote or marked rows in; None where nothing tells."""


@dataclass(frozen=True)
class Budget:
    """How much of another contestant's CPU seconds one may take."""

    against: str
    at_most: float
    """A ratio of medians."""
    reach: float | None = None
    """What would be better still."""
    of: str = "ours"


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
    limit: str = ""
    """Name of the contestant that does no more than anybody must; empty where there is none."""
    budgets: tuple[Budget, ...] = ()
    """What is aimed at."""
    void_rows: dict[str, str] = field(default_factory=dict)
    """By contestant, why its figures do not count."""

    def median(self, name: str, figure: str) -> float:
        """Return the median of a contestant's figure: ``cpu`` or ``wall``, in seconds."""
        return float(statistics.median(getattr(taken, figure) for taken in self.taken[name]))

    def ratio(self, name: str, figure: str, against: str = "") -> float:
        """Return a contestant's median as a multiple of that of the one it is held against (or of ``against``)."""
        return self.median(name, figure) / self.median(against or self.against, figure)

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the budgets whose contestants took part and count, each with the ratio found and whether it is met."""
        counted = self.taken.keys() - self.void_rows.keys()
        held = [budget for budget in self.budgets if {budget.of, budget.against} <= counted]
        ratios = [(budget, self.ratio(budget.of, "cpu", budget.against)) for budget in held]
        return [{**vars(budget), "ratio": round(ratio, 3), "met": ratio <= budget.at_most} for budget, ratio in ratios]


def measure(work: Callable[[], object]) -> Taken:
    """Do it and return what it took."""
    memory = PeakMemory()
    cpu, wall = cpu_seconds(), time.monotonic()
    with memory.sampled():
        work()
    # Processes' times come in hundredths.
    return Taken(max(0.0, cpu_seconds() - cpu - memory.own_cpu), time.monotonic() - wall, memory.bytes)


def in_turn(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_ups: int = 1,
    before: Callable[[str], object] | None = None,
    after: Callable[[str, Taken], Taken] | None = None,
) -> dict[str, list[Taken]]:
    """Let the contestants work ``rounds`` times each, the order turned round each time, after as many unmeasured rounds as asked.

    :param before: called with a contestant's name before each of its turns, unmeasured.
    :param after: likewise behind each, with what it took; returns that, with what is known besides.
    """
    taken: dict[str, list[Taken]] = {name: [] for name in contestants}
    for number in range(warm_ups + rounds):
        for name in list(contestants)[:: -1 if number % 2 else 1]:
            if before:
                before(name)
            this = measure(contestants[name])
            this = after(name, this) if after else this
            if number >= warm_ups:
                taken[name].append(this)
    return taken
