"""Small batches, 1,000 events into 10,000 rows: many tables, cold and warm. What several scenarios are about is measured once for all."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import size
from benchmarks.measure import Budget, Result, Taken
from benchmarks.small_archive import EVENTS, ROWS, SmallArchive
from benchmarks.small_events import differs
from benchmarks.small_ways import Amounts, OneApplication, OwnProcess, TextbookProcess, WarmServer, Way

_BATCH = f"{EVENTS:,} events into {ROWS:,} rows"


@dataclass(frozen=True)
class Scenario:
    """Ways under the names that they have here, and what is aimed at."""

    title: str
    ways: Mapping[str, type[Way]]
    budgets: tuple[Budget, ...]
    against: str


SCENARIOS = {
    "many-tables": Scenario(
        f"{{tables}} tables, {_BATCH} each; CPU and wall a table",
        {"ours, a table": OneApplication, "one process a table": TextbookProcess},
        (Budget("", 0.15, 0.08, of="ours, a table"), Budget("one process a table", 0.005, of="ours, a table")),
        "one process a table",
    ),
    "cold": Scenario(
        f"{_BATCH}, one process from start to exit",
        {"ours": OwnProcess, "textbook": TextbookProcess},
        (Budget("textbook", 0.4, 0.3),),
        "textbook",
    ),
    "warm": Scenario(
        f"{_BATCH} over a server, one process from start to exit",
        {"warm": WarmServer, "cold": OwnProcess},
        (Budget("", 1.5, 0.8, of="warm", figure="wall"),),
        "cold",
    ),
}


def run(spark: SparkSession, folder: Path, names: Sequence[str]) -> list[Result]:
    """Let the ways of these scenarios merge a batch a round in turn, each into its own tables; return each scenario's result."""
    chosen = size.of(tiny=Amounts(2, 1, 1, 0, 1), quick=Amounts(4, 1, 3, 0, 3), full=Amounts(100, 4, 4, 1, 60))
    kinds = list(dict.fromkeys(kind for name in names for kind in SCENARIOS[name].ways.values()))
    archive = SmallArchive(folder, tables=chosen.tables if OneApplication in kinds else 1)
    ways = {kind: kind(spark, archive, folder / kind.__name__, chosen) for kind in kinds}
    taken = _rounds(ways, archive, chosen)
    void = {kind: _differing(spark, way) for kind, way in ways.items()}
    results = []
    for name in names:
        scenario = SCENARIOS[name]
        result = Result(name, scenario.title.format(tables=chosen.tables), scenario.against, budgets=scenario.budgets)
        result.taken = {label: taken[kind] for label, kind in scenario.ways.items()}
        result.void_rows = {label: void[kind] for label, kind in scenario.ways.items() if void[kind]}
        result.facts = {f"{label}: {fact}": value for label, kind in scenario.ways.items() for fact, value in ways[kind].facts().items()}
        results.append(result)
    return results


def _rounds(ways: Mapping[type[Way], Way], archive: SmallArchive, chosen: Amounts) -> dict[type[Way], list[Taken]]:
    taken: dict[type[Way], list[Taken]] = {kind: [] for kind in ways}
    with contextlib.ExitStack() as stack:
        for way in ways.values():
            if isinstance(way, WarmServer):
                stack.enter_context(way.running())
        last = chosen.warm_ups + chosen.rounds
        for number in range(last + 1):
            archive.write(number)
            for kind in list(ways)[:: -1 if number % 2 else 1]:
                if number <= chosen.warm_ups:
                    ways[kind].begin(number)
                    continue
                found = ways[kind].merge(number)
                taken[kind] += found
                print(f"{kind.__name__}: {found[-1].cpu:.1f} CPU s, {found[-1].wall:.1f} s; {last - number} rounds left", flush=True)
    return taken


def _differing(spark: SparkSession, way: Way) -> str:
    return "".join(differs(spark, way.table(source), way.archive.rows(source)) for source in way.sources)
