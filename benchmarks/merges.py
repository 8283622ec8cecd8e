"""Scenarios in which events are merged into one large table: ours, its rivals, and the least that anybody can do."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import size
from benchmarks.archives import Traffic
from benchmarks.base import Base
from benchmarks.contestants.autocdc import AutoCdc
from benchmarks.contestants.contestant import Contestant, Task
from benchmarks.contestants.delta_rs import DeltaRs
from benchmarks.contestants.in_process import OursInProcess, TextbookInProcess
from benchmarks.contestants.native_limit import NativeLimit
from benchmarks.contestants.ours import Ours, OursBySpark
from benchmarks.contestants.slim import Slim
from benchmarks.contestants.spark_floor import SparkFloor
from benchmarks.contestants.textbook import Textbook, TextbookWithDeletionVectors
from benchmarks.measure import Budget, Result, Taken, in_turn
from benchmarks.sequence import INSERTS, MIXED, Keys, Mix
from benchmarks.shapes import ACCOUNTS, WIDE, Shape

ALL = (Ours, Textbook, TextbookWithDeletionVectors, Slim, AutoCdc, DeltaRs, SparkFloor, NativeLimit)
FEW = (Ours, Textbook, SparkFloor, NativeLimit)
ROUNDS = 3
_MERGED: set[tuple[str, str]] = set()
"""Shapes of rows and contestants: who has merged which in this process."""

_T, _S, _A, _D = Textbook.name, SparkFloor.name, AutoCdc.name, DeltaRs.name


@dataclass(frozen=True)
class Scenario:
    """Events of some kind into a table of some size, at full size, and what is aimed at."""

    name: str
    onto: str
    events: int
    rows: int
    newest: float = 1.0
    hot: float = 0.0
    mix: Mix = MIXED
    shape: Shape = ACCOUNTS
    contestants: Sequence[type[Contestant]] = ALL
    budgets: tuple[Budget, ...] = ()
    events_per_file: int | None = None
    warms_up: bool = True
    """Whether a round comes before those that count."""
    smaller: int = 1
    """So many times smaller still than others, where it is not run at full size."""

    def run(self, spark: SparkSession, folder: Path, *, only: Sequence[str] = (), rounds: int = ROUNDS) -> Result:
        """Let the contestants merge in turn.

        :param only: names of contestants; none: all.
        """
        cache = folder.parent / "cache"
        base = Base(spark, cache, self.shape, self._scaled(self.rows))
        keys = Keys(base.rows, self.newest, self.hot)
        files = Traffic(self.shape, self._scaled(self.events), keys, self.mix, events_per_file=self.events_per_file).files(cache / "events")
        task = Task(base, files)
        chosen = [kind for kind in self.contestants if not only or kind.name in only]
        warm_ups = self._warm_ups(chosen)
        race = Race(spark, {kind.name: kind(task, folder / kind.name) for kind in chosen}, turns=rounds + warm_ups)
        megabytes = sum(file.stat().st_size for file in files) / 1e6
        title = f"{self._scaled(self.events):,} events ({megabytes:.0f} MB) {self.onto} {base.rows:,} rows"
        result = Result(self.name, title, Textbook.name, limit=NativeLimit.name, budgets=self.budgets)
        result.taken = in_turn(race.works, rounds=rounds, warm_ups=warm_ups, before=race.before, after=race.after)
        result.facts = {"rows and hash": race.found, **race.facts()}
        result.void_rows = race.differing()
        return result

    def _warm_ups(self, chosen: Sequence[type[Contestant]]) -> int:
        """Return how many rounds come before those that count: none in a short run whose contestants have merged such rows before."""
        if not self.warms_up:
            return 0
        merged = {(self.shape.name, kind.name) for kind in chosen}
        are_warm = merged <= _MERGED and size.chosen() is not size.Size.FULL
        _MERGED.update(merged)
        return 0 if are_warm else 1

    def _scaled(self, full: int) -> int:
        return size.scaled(full // size.of(tiny=self.smaller, quick=self.smaller, full=1))


class Race:
    """Contestants, each with its own copy of the table in each of its turns."""

    def __init__(self, spark: SparkSession, contestants: dict[str, Contestant], *, turns: int) -> None:
        self._spark = spark
        self._contestants = contestants
        self._left = dict.fromkeys(contestants, turns)
        self.works: dict[str, Callable[[], object]] = {name: contestant.merge for name, contestant in contestants.items()}
        self.found: dict[str, str] = {}
        """By contestant: rows and hash of its table after its last turn."""

    def before(self, name: str) -> None:
        """Give a contestant a fresh table, and at full size the JVM a fresh heap: what the others left is not its to clear."""
        shutil.rmtree(self._contestants[name].folder, ignore_errors=True)
        self._contestants[name].prepare()
        if size.chosen() is size.Size.FULL:
            jvm: Any = self._spark._jvm
            jvm.System.gc()

    def after(self, name: str, taken: Taken) -> Taken:
        """Record what the contestant wrote; after its last turn look at its table."""
        contestant = self._contestants[name]
        written = contestant.written()
        self._left[name] -= 1
        print(f"{name}: {taken.cpu:.1f} CPU s, {taken.wall:.1f} s; {self._left[name]} turns left", flush=True)
        if not self._left[name]:
            self.found[name] = fingerprint(contestant.rows(self._spark))
        shutil.rmtree(contestant.folder)
        return replace(taken, bytes_written=written.size, files_touched=written.files)

    def facts(self) -> dict[str, Any]:
        """Return by contestant what else is known of its last merge."""
        return {name: facts for name, contestant in self._contestants.items() if (facts := contestant.facts())}

    def differing(self) -> dict[str, str]:
        """Return the contestants whose tables are not those of most, with both fingerprints."""
        found = list(self.found.values())
        usual = max(found, key=found.count)
        return {name: f"its table is {own}, the others' is {usual}" for name, own in self.found.items() if own != usual}


def fingerprint(rows: DataFrame) -> str:
    """Return how many rows there are and a hash of their values that does not depend on their order."""
    value = F.xxhash64(*rows.columns)
    totals = rows.agg(F.count(F.lit(1)).alias("rows"), F.bit_xor(value).alias("xor"), F.sum(value.cast("decimal(38,0)")).alias("sum"))
    found = totals.collect()[0]
    return f"{found['rows']} rows, {(found['xor'] or 0) & (2**64 - 1):016x}, {(found['sum'] or 0)}"


_SPREAD_AND_HOT = (Budget(_A, 0.33, 0.25), Budget(_D, 1.5, 1.2))
SCENARIOS = (
    Scenario(
        "spread",
        "spread over",
        500_000,
        5_000_000,
        budgets=(Budget(_T, 0.4, 0.3), Budget(_S, 1.5), *_SPREAD_AND_HOT),
    ),
    Scenario(
        "hot",
        "on the newest 5% of",
        500_000,
        5_000_000,
        newest=0.05,
        contestants=(Ours, Textbook, Slim, AutoCdc, DeltaRs, SparkFloor, NativeLimit),
        budgets=(Budget(_T, 0.7, 0.5), Budget(_S, 1.5), *_SPREAD_AND_HOT),
    ),
    Scenario(
        "inserts",
        "that only insert behind",
        500_000,
        5_000_000,
        mix=INSERTS,
        contestants=FEW,
        budgets=(Budget(_T, 0.6, 0.33), Budget(_S, 1.3)),
    ),
    Scenario("skewed", "of which 90% are about 0.1% of", 500_000, 5_000_000, hot=0.9, contestants=FEW, budgets=(Budget(_T, 0.4, 0.3),)),
    Scenario(
        "sparse",
        "spread over",
        100_000,
        5_000_000,
        contestants=(Ours, OursBySpark, Textbook, TextbookWithDeletionVectors, SparkFloor),
    ),
    Scenario(
        "wide", "of 200 columns spread over", 100_000, 1_000_000, shape=WIDE, contestants=FEW, smaller=5, budgets=(Budget(_T, 0.25, 0.15),)
    ),
    Scenario(
        "cold-spread",
        "by a process from start to exit, spread over",
        500_000,
        5_000_000,
        contestants=(OursInProcess, TextbookInProcess),
        budgets=(Budget(_T, 0.5, 0.33),),
        warms_up=False,
    ),
)
LARGE = Scenario(
    "large",
    "on a cluster of two workers, spread over",
    6_000_000,
    20_000_000,
    contestants=(Ours, Textbook, TextbookWithDeletionVectors),
    budgets=(Budget(_T, 0.5),),
    events_per_file=100_000,
)
RUNS: dict[str, Callable[..., Result]] = {scenario.name: partial(Scenario.run, scenario) for scenario in SCENARIOS}
