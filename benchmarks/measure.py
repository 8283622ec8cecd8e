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
    """Bytes of data files and deletion vectors that its commits added to the table; None where it is not known."""
    files_touched: int | None = None
    """Files of the table that it rewrote or marked rows in; None where it is not known."""


@dataclass(frozen=True)
class Budget:
    """How much of another contestant's time one may take, or how much time at all."""

    against: str
    """Empty: nobody; what is aimed at are seconds then."""
    at_most: float
    """A ratio of medians, or seconds."""
    reach: float | None = None
    """What would be better still."""
    of: str = "ours"
    figure: str = "cpu"
    """``cpu`` or ``wall``."""

    @property
    def what(self) -> str:
        """What may be how much, in words."""
        of = self.of if self.figure == "cpu" else f"{self.of}, {self.figure}"
        return f"{of} / {self.against}" if self.against else f"{of}, seconds"


@dataclass(frozen=True)
class Bound:
    """What was counted, and how much it may be."""

    what: str
    found: float
    at_most: float


@dataclass
class Result:
    """What the contestants of one scenario took, a list each, and against whom they are held."""

    scenario: str
    title: str
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
    bounds: tuple[Bound, ...] = ()
    """What is aimed at besides."""
    void_rows: dict[str, str] = field(default_factory=dict)
    """By contestant, why its figures do not count."""

    def median(self, name: str, figure: str) -> float:
        """Return the median of a contestant's figure: ``cpu`` or ``wall``, in seconds."""
        return float(statistics.median(getattr(taken, figure) for taken in self.taken[name]))

    def ratio(self, name: str, figure: str, against: str = "") -> float:
        """Return a contestant's median as a multiple of that of the one it is held against (or of ``against``)."""
        return self.median(name, figure) / self.median(against or self.against, figure)

    def verdicts(self) -> list[dict[str, Any]]:
        """Return the bounds, and the budgets whose contestants took part and count, each with what was found and whether it is met."""
        counted = {name for name, taken in self.taken.items() if taken} - self.void_rows.keys()
        held = [budget for budget in self.budgets if {budget.of, budget.against} <= {*counted, ""}]
        found: list[dict[str, Any]] = [{**vars(budget), "what": budget.what, "found": self._found(budget)} for budget in held]
        found += [dict(vars(bound)) for bound in self.bounds]
        return [{**each, "found": round(each["found"], 4), "met": bool(each["found"] <= each["at_most"])} for each in found]

    def _found(self, budget: Budget) -> float:
        return self.ratio(budget.of, budget.figure, budget.against) if budget.against else self.median(budget.of, budget.figure)


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
