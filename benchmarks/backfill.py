"""Backfill: a month of hourly files in one go, against replaying each hour on its own."""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.outcome import ApplyReport
from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive_run import ArchiveRun
from benchmarks.measure import Result, Taken, measure
from benchmarks.small_events import Source, differs

FILES, KEYS, BUDGET = 720, 50_000, 0.2
REPLAYED = "replayed"


def run(spark: SparkSession, folder: Path, *, full: bool = False) -> Result:
    """Merge all files in one go into a new lake each round; replay the first ones, and extrapolate to all."""
    events, rounds, sample = (2_000, 3, 30) if full else (50, 1, 6)
    told = f"{FILES} hourly files of {events:,} events each, in one go and one by one ({sample} measured, their mean times {FILES})"
    source, archive = Source(seed=1), folder / "archive"
    hours = [archive / source.topic / f"day={number // 24 + 1:02d}" / f"hour={number % 24:02d}" / "0.jsonl" for number in range(FILES)]
    warm_ups, after = 2, folder / "rows-after-sample.jsonl"
    for number, file in enumerate(hours, start=1):
        source.change(file, events, range(KEYS))
        if number == warm_ups + sample:
            source.write_rows(after)
    rows = source.write_rows(folder / "rows.jsonl")
    result = Result("backfill", told, REPLAYED, {"one go": [], REPLAYED: []})
    reports: list[ApplyReport] = []
    for number in range(rounds + 1):
        lake = folder / f"lake-{number}"
        taken = measure(lambda lake=lake: reports.append(apply_archive(ArchiveRun(spark, str(archive), str(lake)))))  # type: ignore[misc]
        # The first round warms up.
        result.taken["one go"] += [taken] if number else []
        result.void += differs(spark, (lake / source.topic).absolute(), rows)
    replayed = _replay(spark, folder, [file.relative_to(archive) for file in hours[: warm_ups + sample]])
    result.void += differs(spark, (folder / "replay" / "lake" / source.topic).absolute(), after)
    measured = replayed[warm_ups:]
    result.taken[REPLAYED] = [_times(FILES, measured)]
    ratio = result.ratio("one go", "cpu")
    result.facts = {
        "budget": f"CPU at most {BUDGET} of replaying each file",
        "met": ratio <= BUDGET,
        "ratio": round(ratio, 4),
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
