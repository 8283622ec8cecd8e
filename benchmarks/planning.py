"""Planning: ten new files among a thousand, and among a hundred times as many: what a run does before it merges, and a sensor's look."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import fsspec
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.look.new_files import find_new_files
from airflow_cdc.model.look.pending import pending_files
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition, next_microbatch
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from benchmarks import size
from benchmarks.measure import Budget, Result, Taken, measure
from benchmarks.small_events import Source, differs

NEW, LOOKS, MOST_RATIO = 10, 20, 1.5
_THEN = 1_700_000_000.0
"""When all folders changed, but for the one in which files land: looks list those again that changed less than a minute ago."""


def run(spark: SparkSession, folder: Path) -> Result:
    """Let ten files land each round in each archive, look as a sensor does, plan, and only then merge, unmeasured."""
    few, many, hours, rounds = size.of(tiny=(20, 200, 24, 1), quick=(100, 5_000, 240, 3), full=(1_000, 100_000, 720, 5))
    archives = [_Archive(spark, folder, few), _Archive(spark, folder, many), _Archive(spark, folder, many, hours=hours)]
    title = f"{NEW} new files in archives of {few:,} and {many:,}: a run up to its first intent, and a sensor's look (mean of {LOOKS})"
    held = [(kind, archive.name) for kind in ("run", "look") for archive in archives[1:]]
    budgets = [Budget(f"{kind}: {archives[0].name}", MOST_RATIO, of=f"{kind}: {name}") for kind, name in held]
    result = Result("planning", title, f"run: {archives[0].name}", budgets=tuple(budgets))
    for archive in archives:
        archive.fill()
    for number in range(rounds + 1):
        for archive in archives[:: -1 if number % 2 else 1]:
            archive.land(number)
            look, plan = archive.look(), archive.plan()
            for name, taken in ((f"run: {archive.name}", plan), (f"look: {archive.name}", look)):
                # The first round warms up.
                result.taken.setdefault(name, []).extend([taken] if number else [])
            archive.merge()
    result.void = "".join(differs(spark, archive.table, archive.source.write_rows(archive.folder / "rows.jsonl")) for archive in archives)
    result.facts = {
        "milliseconds of a look": {archive.name: round(result.median(f"look: {archive.name}", "wall") * 1000, 1) for archive in archives},
        "milliseconds of a whole look, once an hour": {archive.name: archive.whole_look() for archive in archives},
    }
    return result


class _PlannedError(Exception):
    """Ends a run where it has planned."""


@dataclass
class _Archive:
    spark: SparkSession
    folder: Path
    files: int
    hours: int = 0
    """How many folders by time the files lie in; none: in one."""

    def __post_init__(self) -> None:
        self.name = f"{self.files:,} files in {self.hours or 1} folder{'s' * bool(self.hours)}"
        self.folder = (self.folder / f"{self.files}-{self.hours}").absolute()
        self.source = Source(seed=self.files)
        self.root = self.folder / "archive"
        self.lake = self.folder / "lake"
        self.table = self.lake / self.source.topic

    def fill(self) -> None:
        """Merge a file of reads; then let its lines come again, each as a file, and count as applied, which changes no row."""
        keys = range(1_000)
        first = self._path(0)
        self.source.read(first, keys)
        apply_archive(ArchiveRun(self.spark, str(self.root), str(self.lake)))
        lines = first.read_bytes().splitlines(keepends=True)
        made = {first.parent}
        for number in range(1, self.files):
            path = self._path(number)
            if path.parent not in made:
                path.parent.mkdir(parents=True, exist_ok=True)
                made.add(path.parent)
            path.write_bytes(lines[number % len(lines)])
        self._count_as_applied()
        self._age()
        self._look_once()

    def land(self, number: int) -> None:
        """Let ten new files come, behind the others."""
        last = self._path(self.files - 1).parent
        for place in range(NEW):
            self.source.change(last / f"9{number:03d}{place:03d}.jsonl", 10, range(1_000))

    def look(self) -> Taken:
        """Look as the sensor does, which needs no Spark."""
        fs, _ = fsspec.core.url_to_fs(str(self.lake))

        def looks() -> None:
            for _ in range(LOOKS):
                found = pending_files(
                    archive_fs=fs, archive_root=str(self.root), archive=str(self.root), lake_fs=fs, lake_root=str(self.lake)
                )
                assert found.count == NEW, f"{found.count} files are pending, expected {NEW}"

        # No process but this one works, and its own clock is the finer one.
        began = time.process_time()
        taken = measure(looks)
        return Taken(cpu=(time.process_time() - began) / LOOKS, wall=taken.wall / LOOKS, peak=taken.peak)

    def plan(self) -> Taken:
        """List, survey and plan."""

        def stop(effect: str) -> None:
            if effect == "intent":
                _stop()

        return measure(lambda: apply_archive(ArchiveRun(self.spark, str(self.root), str(self.lake), after_effect=stop)))

    def merge(self) -> None:
        """Do what is planned, and let the archive grow old."""
        apply_archive(ArchiveRun(self.spark, str(self.root), str(self.lake)))
        self._age()

    def whole_look(self) -> float:
        """Return how long a look takes that lists everything, in milliseconds."""
        fs, _ = fsspec.core.url_to_fs(str(self.lake))
        started = time.monotonic()
        list_archive(fs, str(self.root))
        return round((time.monotonic() - started) * 1000, 1)

    def _path(self, number: int) -> Path:
        hour = number * self.hours // self.files
        folder = f"day={hour // 24 + 1:02d}/hour={hour % 24:02d}" if self.hours else "partition=0"
        return self.root / self.source.topic / folder / f"{number:06d}.jsonl"

    def _count_as_applied(self) -> None:
        fs, root = fsspec.core.url_to_fs(str(self.lake))
        archive, flow = ArchiveState(fs, root, str(self.root)), FlowState(fs, root, self.source.topic)
        (surveyed,) = archive.surveys(1, 1)
        shape, known = surveyed.shapes[0], surveyed.files[0].path
        files = tuple(file for file in list_archive(fs, str(self.root)).files if file.path != known)
        offsets = [int(file.path.rpartition("/")[2][:6]) % shape.records + 1 for file in files]
        shapes = (
            replace(shape, file=file.path, records=1, first_offset=offset, last_offset=offset)
            for file, offset in zip(files, offsets, strict=True)
        )
        survey = Survey(archive.archive, 2, files, tuple(shapes))
        archive.add(survey)
        archive.ledger()
        intent = next_microbatch(
            flow=flow.flow, number=2, archive=archive.archive, surveys=[survey], planned=PlanPosition(2), max_bytes=2**40
        )
        assert isinstance(intent, Microbatch)
        flow.write_intent(intent)
        counts = EventCounts(read=len(files), redelivered=len(files))
        flow.write_commit(BatchReport(flow.flow, 2, len(files), intent.size, counts), str(self.table))

    def _look_once(self) -> None:
        """Write down what a look sees, as the run that surveyed the files would have."""
        fs, root = fsspec.core.url_to_fs(str(self.lake))
        state = ArchiveState(fs, root, str(self.root))
        state.write_looked(find_new_files(fs, str(self.root), state, state.ledger()).looked)

    def _age(self) -> None:
        for folder in self._folders():
            os.utime(folder, (_THEN, _THEN))

    def _folders(self) -> Iterator[Path]:
        yield self.root
        yield from (path for path in self.root.rglob("*") if path.is_dir())


def _stop() -> NoReturn:
    raise _PlannedError
