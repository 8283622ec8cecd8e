"""One history: a source that lives for a while, an archive of it that comes piece by piece, and runs in between."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.attack import repairs
from tests.attack.archive import Archive
from tests.attack.features import Feature, draw
from tests.attack.judge import differences, not_found
from tests.attack.runs import Lake, Run, Status
from tests.attack.source import Source
from tests.attack.transactions import Transaction

WRONG = "wrong"
SAME = "same"
FAILURES = frozenset({WRONG, *(each.value for each in Status)} - {Status.DONE.value, Status.NEEDS_SPARK.value})

_TAKE_ROUNDS = frozenset(
    {Feature.LATE, Feature.LAGGING, Feature.GROWN, Feature.AGAIN, Feature.KEY_SCHEMA, Feature.WIDE_KEYS, Feature.HANDED_ON}
)


@dataclass
class Outcome:
    """How a history ended."""

    seed: int
    status: str
    features: frozenset[Feature]
    about: str
    lines: list[str] = field(default_factory=list)
    runs: int = 0
    """Runs whose table was compared with the source."""

    @property
    def is_failure(self) -> bool:
        return self.status in FAILURES

    def __str__(self) -> str:
        names = " ".join(sorted(feature.value for feature in self.features))
        return "\n".join(
            [f"{self.seed}: {self.status} after {self.runs} runs; {self.about}; {names}", *(f"    {line}" for line in self.lines)]
        )


def flow_settings(source: Source, features: frozenset[Feature]) -> dict[str, Any]:
    """Return what the flows file must say of a topic, and what a history adds."""
    settings: dict[str, Any] = {}
    is_told = source.record_key == "same" and not features >= {Feature.SINK, Feature.NO_KEYS}
    if not is_told:
        settings["keys"] = [each.name for each in source.key_columns]
    if Feature.BARE in features:
        settings["columns"] = {each.name: each.declared for each in source.columns}
    if Feature.FLAG in features:
        settings["on_delete"] = "flag"
    if Feature.SMALL_BATCHES in features:
        settings["max_microbatch_bytes"] = 4_000
    return settings


class History:
    """A history that goes on step by step."""

    def __init__(self, seed: int, folder: Path, features: frozenset[Feature], engine: str = "native") -> None:
        self.seed, self.features = seed, features
        self.random, self.engines, self.queries = (Random(f"{seed} {use}") for use in ("history", "engines", "queries"))
        self.source = Source(str(seed), self.features)
        has_keys = self.source.record_key != "none"
        self.archive = Archive(str(seed), folder / "archive", self.source.topic, self.features, has_keys=has_keys)
        self.engine = engine
        self.lake = Lake(folder / "archive", folder / "lake", is_marked=Feature.MARKED in self.features)
        self.lake.settings = flow_settings(self.source, self.features)
        self.compared = 0
        self._rebuilt = 0

    def play(self) -> Outcome:
        """Live through all of it; end where a table is wrong, or nothing can be compared any more."""
        if Feature.SNAPSHOT in self.features or Feature.READS_ABOVE in self.features:
            self.source.snapshot(5)
            if self.random.random() < 0.6:
                self.archive.seal()
        rounds = self.random.choice(
            [3, 4] if Feature.LAGGING in self.features else [2, 2, 3] if self.features & _TAKE_ROUNDS else [1, 2, 2]
        )
        for number in range(rounds):
            self.live()
            self.archive.flush(is_last=number == rounds - 1)
            ended = self.run_and_compare()
            if ended:
                return ended
        return self._outcome(SAME)

    def live(self) -> None:
        """Let the source change for a while."""
        r, features = self.random, self.features
        if Feature.UNITS in features and r.random() < 0.6:
            self.source.change_unit()
        if Feature.NEW_COLUMN in features and r.random() < 0.6:
            self.source.add_column()
            self.lake.settings = flow_settings(self.source, features)
        if Feature.KEY_SCHEMA in features and r.random() < 0.6:
            self.source.topic.key_has_defaults = not self.source.topic.key_has_defaults
        for _ in range(r.choice([1, 1, 2, 3, 5])):
            Transaction(self.source).run(r.choice([1, 1, 2, 3, 4]) if self.source.rows else 6)
            if Feature.INCREMENTAL in features and r.random() < 0.3:
                self.source.read_again(r.randrange(1, 4))
            if Feature.TRUNCATE in features and r.random() < 0.3:
                self.source.truncate()
        if Feature.JUNK in features:
            self.source.topic.append_junk()
        if Feature.RESTART in features and r.random() < 0.6:
            self.source.topic.send_again(min(r.randrange(1, 7), len(self.source.topic.log)))

    def run_and_compare(self) -> Outcome | None:
        """Apply what has come, and compare; None: all is well."""
        if not self.archive.written:
            return None
        if self.engine != "mixed":
            self.lake.engine = self.engine
        else:
            self.lake.engine = self.engines.choice(["auto", "spark"])
        if self.archive.has_grown:
            self.lake.look_at_all()
        crash_after = self.random.randrange(8) if Feature.CRASH in self.features else None
        run = self.lake.apply(crash_after=crash_after)
        if run.status is not Status.DONE:
            return self._outcome(run.status.value, [run.detail])
        return self.compare() or self.go_between()

    def compare(self, lake: Lake | None = None, as_of: int | None = None) -> Outcome | None:
        """Compare a table with what the archive holds of the source, up to a commit."""
        events = self.source.truth.events
        # The first snapshot is always part of it: the archive knows nothing older.
        known = {each for each in self.archive.archived if as_of is None or events[each].committed_at <= as_of or events[each].is_snapshot}
        rows, unclear = self.source.truth.rows(known)
        if Feature.EQUAL_POSITIONS in self.features:
            # No position tells such a copy from an event that repeats another: docs/reference/known-differences.md leaves it open.
            unclear |= {key for serial in self.archive.events_of_half_copies() for key in events[serial].effects}
        lines = differences((lake or self.lake).table, self.source.key_columns, self.source.columns, rows, unclear)
        self.compared += 1
        if rows and not lines:
            sure = {key: row for key, row in rows.items() if key not in unclear}
            lines = not_found((lake or self.lake).table, self.source.columns, sure, self.queries) if sure else []
        return self._outcome(WRONG, [*([f"as of {as_of}"] if lake else []), *lines]) if lines else None

    def go_between(self) -> Outcome | None:
        """Do what others do to a table between two runs."""
        if Feature.OPTIMIZE in self.features:
            repairs.compact(self.lake)
        # What comes behind is judged without them: only what was archived before may be late then.
        if Feature.EXPIRE in self.features and not self.archive.owes:
            repairs.expire_markers(self.lake)
        return self.repair() if Feature.REPAIR in self.features else None

    def repair(self) -> Outcome | None:
        """Read parts of the archive again; the table stays as it is."""
        moments = sorted({self.source.truth.events[serial].committed_at for serial in self.archive.archived})
        half = self.random.choice(moments)
        again: list[Callable[[], Run]] = [
            lambda: repairs.replay(self.lake),
            lambda: repairs.reprocess_range(self.lake),
            lambda: repairs.reprocess_range(self.lake, None, half),
            lambda: repairs.reprocess_range(self.lake, half, None),
        ]
        choice = self.random.randrange(6)
        if choice >= len(again):
            return self.rebuild(half if choice == len(again) else None)
        # A reprocessing that only Spark does would leave its plan for the next run.
        run = Run(Status.DONE) if self.engine == "native" else again[choice]()
        return self.compare() if run.status is Status.DONE else self._outcome(run.status.value, [run.detail])

    def rebuild(self, as_of: int | None = None) -> Outcome | None:
        """Build the table anew, and compare it with the source as it was behind a commit."""
        self._rebuilt += 1
        other = Lake(self.lake.archive, self.lake.root.with_name(f"rebuilt{self._rebuilt}"), self.lake.settings)
        run = repairs.rebuild_into(self.lake, other.root, as_of)
        if run.status is Status.NEEDS_SPARK:
            return None
        if run.status is not Status.DONE:
            return self._outcome(run.status.value, [f"rebuild as of {as_of}", run.detail])
        return self.compare(other, as_of)

    def _outcome(self, status: str, lines: Collection[str] = ()) -> Outcome:
        source = self.source
        layout = f"{'values' if self.archive.is_sink else 'records'}{' with keys' if self.archive.has_companions else ''}"
        kinds = ",".join(each.kind for each in source.columns)
        about = f"{source.dialect}, key {source.record_key}, {source.topic.partitions} partitions, {layout}, {kinds}"
        return Outcome(self.seed, status, self.features, about, list(lines), self.compared)


def play(seed: int, folder: Path, allowed: Collection[Feature] = tuple(Feature), engine: str = "native") -> Outcome:
    """Play one history in a folder, which stays if the history fails."""
    shutil.rmtree(folder, ignore_errors=True)
    outcome = History(seed, folder, draw(seed, allowed), engine).play()
    if not outcome.is_failure:
        shutil.rmtree(folder, ignore_errors=True)
    return outcome


def shrink(outcome: Outcome, folder: Path, engine: str = "native") -> Outcome:
    """Return a history of the same seed that still fails in the same way, with fewer features: what can be left out one by one is."""
    for feature in sorted(outcome.features):
        fewer = play(outcome.seed, folder, outcome.features - {feature}, engine)
        if fewer.status == outcome.status:
            outcome = fewer
    # What was left in the folder is the last one that was tried.
    return play(outcome.seed, folder, outcome.features, engine)
