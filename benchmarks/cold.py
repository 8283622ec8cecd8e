"""Cold: one process from start to exit, as Airflow runs it: ours against the textbook's job with Spark's and Delta's defaults."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive_run import ArchiveRun
from benchmarks import size, small_textbook
from benchmarks.cold_command import merge_command
from benchmarks.measure import Budget, Result, Taken
from benchmarks.small_events import Source, differs
from benchmarks.submitted import run_process, run_textbook

ROWS, EVENTS = 10_000, 1_000
BUDGETS = (Budget("textbook", 0.5),)


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge a small file a round into tables that are there, both by processes of their own."""
    rounds = size.of(tiny=1, quick=3, full=4)
    result = Result("cold", f"{EVENTS:,} events into {ROWS:,} rows, one process from start to exit", "textbook", budgets=BUDGETS)
    archive, lake, theirs = folder / "archive", folder / "lake", folder / "textbook"
    source = Source(seed=1)
    first = archive / "00.jsonl"
    source.read(first, range(ROWS))
    apply_archive(ArchiveRun(spark, str(archive), str(lake)))
    small_textbook.merge(spark, first, theirs.absolute())
    result.taken = {"ours": [], "textbook": []}
    job_seconds: list[float] = []
    for number in range(1, rounds + 1):
        file = archive / f"{number:02d}.jsonl"
        source.change(file, EVENTS, range(ROWS))
        for name in sorted(result.taken, reverse=number % 2 == 0):
            if name == "ours":
                result.taken[name].append(_ours(archive, lake, folder / f"ours-{number}", job_seconds))
            else:
                result.taken[name].append(run_textbook(file, theirs, folder / f"textbook-{number}.log"))
    rows = source.write_rows(folder / "rows.jsonl")
    result.void = differs(spark, (lake / source.topic).absolute(), rows) + differs(spark, theirs.absolute(), rows)
    result.facts = {"wall seconds of ours inside the microbatch": round(statistics.median(job_seconds), 2)}
    return result


def _ours(archive: Path, lake: Path, place: Path, job_seconds: list[float]) -> Taken:
    report = place.with_suffix(".json")
    # Building the command is not the job's: the task's process does it, which Airflow starts for either.
    asked = merge_command(archive, lake, report)
    taken = run_process(asked.command, asked.environment, place.with_suffix(".log"))
    flows = json.loads(report.read_text(encoding="utf-8"))["flows"]
    job_seconds += [batch["seconds"] for flow in flows for batch in flow["batches"]]
    return taken
