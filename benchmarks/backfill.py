"""Backfill: a month of hourly files in one go, against replaying each hour on its own."""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from benchmarks import size
from benchmarks.measure import Budget, Result, Taken, measure
from benchmarks.small_events import Source, differs

KEYS, WARM_UPS = 50_000, 2
ONE_GO, REPLAYED = "one go", "replayed"
BUDGETS = (Budget(REPLAYED, 0.2, of=ONE_GO),)


@dataclass(frozen=True)
class _Size:
    files: int
    events: int
    """Of each file."""
    rounds: int
    sample: int
    """Files that are replayed one by one, of all."""


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge all files in one go into a new lake each round; replay the first ones, and extrapolate to all."""
    chosen = size.of(tiny=_Size(48, 50, 1, 3), quick=_Size(240, 50, 3, 6), full=_Size(720, 2_000, 3, 30))
    files, events, sample = chosen.files, chosen.events, chosen.sample
    title = f"{files} hourly files of {events:,} events each, in one go and one by one ({sample} measured, their mean times {files})"
    source, archive = Source(seed=1), folder / "archive"
    hours = [archive / source.topic / f"day={number // 24 + 1:02d}" / f"hour={number % 24:02d}" / "0.jsonl" for number in range(files)]
    after = folder / "rows-after-sample.jsonl"
    for number, file in enumerate(hours, start=1):
        source.change(file, events, range(KEYS))
        if number == WARM_UPS + sample:
            source.write_rows(after)
    rows = source.write_rows(folder / "rows.jsonl")
    result = Result("backfill", title, REPLAYED, {ONE_GO: [], REPLAYED: []}, budgets=BUDGETS)
    reports: list[ApplyReport] = []
    for number in range(chosen.rounds + 1):
        lake = folder / f"lake-{number}"
        taken = measure(lambda lake=lake: reports.append(apply_archive(ArchiveRun(spark, str(archive), str(lake)))))  # type: ignore[misc]
        # The first round warms up.
        result.taken[ONE_GO] += [taken] if number else []
        result.void += differs(spark, (lake / source.topic).absolute(), rows)
    replayed = _replay(spark, folder, [file.relative_to(archive) for file in hours[: WARM_UPS + sample]])
    result.void += differs(spark, (folder / "replay" / "lake" / source.topic).absolute(), after)
    measured = replayed[WARM_UPS:]
    result.taken[REPLAYED] = [_times(files, measured)]
    result.facts = {
        "microbatches of one go": len(reports[-1].flows[0].batches),
        "CPU s a replayed file": [round(item.cpu, 2) for item in measured],
    }
    return result


def _replay(spark: SparkSession, folder: Path, files: list[Path]) -> list[Taken]:
    archive, lake = folder / "replay" / "archive", folder / "replay" / "lake"
    taken = []
    for file in files:
        (archive / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "archive" / file, archive / file)
        taken.append(measure(lambda: apply_archive(ArchiveRun(spark, str(archive), str(lake)))))
    return taken


def _times(count: int, measured: list[Taken]) -> Taken:
    cpu, wall = (statistics.mean(getattr(item, figure) for item in measured) * count for figure in ("cpu", "wall"))
    return Taken(cpu=cpu, wall=wall, peak=max(item.peak for item in measured))
