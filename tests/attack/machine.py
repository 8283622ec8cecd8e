"""A state machine of the real code: anything that happens to an archive and a lake, in any order, each step checked against the source."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.attack import repairs
from tests.attack.archive import File
from tests.attack.features import OF_SOURCE, Feature, compatible
from tests.attack.history import History, Outcome
from tests.attack.runs import Run, Status
from tests.attack.transactions import Transaction


class ArchiveAndLake(RuleBasedStateMachine):
    """An archive that grows in any way, and a lake to which anything happens. Steps that need Spark end there and change nothing."""

    done: ClassVar[Counter[str]] = Counter()
    """How the runs and repairs of all examples ended."""
    excluded: ClassVar[frozenset[Feature]] = frozenset()
    """Features that no source has: what is known to fail can be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="attack-"))
        self.coming: list[File] = []
        self.has_begun = False
        self.lakes = 0
        self.has_failed = False

    @initialize(seed=st.integers(0, 2**20), features=st.sets(st.sampled_from(sorted(OF_SOURCE))))
    def begin(self, seed: int, features: set[Feature]) -> None:
        # How files come, and what is done to the lake, is up to the rules.
        self.history = History(seed, self.folder, compatible(features - self.excluded))
        self.source, self.archive, self.lake = self.history.source, self.history.archive, self.history.lake
        if Feature.SNAPSHOT in features:
            self.source.snapshot(4)
        self.change(2, 2)
        for file in self.archive.new_files():
            self.archive.write(file)
        self.run()

    # What the source and the sink do.

    @rule(transactions=st.integers(1, 3), verbs=st.integers(1, 3))
    def change(self, transactions: int, verbs: int) -> None:
        for _ in range(transactions):
            Transaction(self.source).run(verbs)

    @rule(count=st.integers(1, 3))
    def read_incrementally(self, count: int) -> None:
        self.source.read_again(count)

    @rule(count=st.integers(1, 6))
    def connector_restarts(self, count: int) -> None:
        self.source.topic.send_again(count)

    @rule()
    def schemas_change(self) -> None:
        if Feature.UNITS in self.history.features:
            self.source.change_unit()
        if Feature.KEY_SCHEMA in self.history.features:
            self.source.topic.key_has_defaults = not self.source.topic.key_has_defaults

    @rule(data=st.data(), is_part=st.sampled_from([False, False, False, True]), is_applied=st.booleans())
    def file_comes(self, data: st.DataObject, is_part: bool, is_applied: bool) -> None:
        self.coming += self.archive.new_files()
        if not self.coming:
            self.change(2, 2)
            self.coming += self.archive.new_files()
        if not self.coming:
            return
        file = self.coming.pop(data.draw(st.integers(0, len(self.coming) - 1), label="which"))
        (self.archive.write_part if is_part and len(file.records) > 1 else self.archive.write)(file)
        if is_applied and self.archive.written:
            self.run()

    @precondition(lambda self: self.archive.to_grow)
    @rule()
    def files_grow(self) -> None:
        self.archive.grow()
        self.lake.look_at_all()

    @precondition(lambda self: self.archive.written)
    @rule(data=st.data())
    def file_comes_again(self, data: st.DataObject) -> None:
        self.archive.copy(data.draw(st.sampled_from(self.archive.written), label="which"))

    # What runs and keepers do.

    @rule()
    def run(self) -> None:
        if self.archive.written:
            self._settle(self.lake.apply())

    @precondition(lambda self: self.archive.written)
    @rule(effect=st.integers(0, 9))
    def run_crashes(self, effect: int) -> None:
        run = self.lake.apply_until(effect)
        if run is not None:
            self._settle(run)

    @precondition(lambda self: self.archive.written)
    @rule()
    def two_runs_at_once(self) -> None:
        with ThreadPoolExecutor(2) as pool:
            one, other = pool.map(lambda _: self.lake.apply(), range(2))
        self._settle(one if one.status is not Status.DONE else other)

    @rule()
    def markers_expire(self) -> None:
        # What comes behind is judged without them: only what was archived before may be late then.
        if not self.coming and not self.archive.to_grow:
            repairs.expire_markers(self.lake)

    @rule()
    def somebody_compacts(self) -> None:
        repairs.compact(self.lake)

    @rule()
    def everything_is_rebuilt(self) -> None:
        if self.has_begun:
            self._fail(self.history.rebuild())

    @precondition(lambda self: self.has_begun and Feature.FLAG not in self.history.features)
    @rule()
    def reprocess(self) -> None:
        self._repaired(repairs.reprocess_range(self.lake))

    @precondition(lambda self: self.has_begun and Feature.FLAG not in self.history.features)
    @rule()
    def replay(self) -> None:
        self._repaired(repairs.replay(self.lake))

    @precondition(lambda self: self.has_begun)
    @rule()
    def maintain(self) -> None:
        self._repaired(repairs.maintain_lake(self.lake))

    def teardown(self) -> None:
        try:
            if not self.has_failed:
                self.run()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _settle(self, run: Run) -> None:
        """Compare after a run. One that only Spark could end leaves its plan: go on with a lake that nobody has used."""
        self._check(run)
        if run.status is Status.NEEDS_SPARK:
            self.lakes += 1
            self.lake.root = self.folder / f"lake{self.lakes}"
            self.has_begun = False
            return
        self.has_begun = True
        self._fail(self.history.compare())

    def _repaired(self, run: Run) -> None:
        """Compare after an operation that leaves the rows as they are."""
        self._check(run)
        if run.status is Status.DONE:
            self._fail(self.history.compare())

    def _check(self, run: Run) -> None:
        self.done[run.status.value] += 1
        if run.status not in {Status.DONE, Status.NEEDS_SPARK}:
            self._fail(f"{run.status.value}: {run.detail}")

    def _fail(self, why: Outcome | str | None) -> None:
        self.has_failed = why is not None
        assert why is None, str(why)
