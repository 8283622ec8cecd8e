"""Many small tables: one Spark application of ours against one process of the textbook's job per table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive_run import ArchiveRun
from benchmarks import size, small_textbook
from benchmarks.measure import Budget, Result, Taken, measure
from benchmarks.small_events import Source, differs
from benchmarks.submitted import run_textbook

ROWS, EVENTS = 10_000, 1_000
PER_TABLE, RIVAL = "ours, a table", "one process a table"
BUDGETS = (Budget("", 1.0, of=PER_TABLE), Budget(RIVAL, 1 / 30, of=PER_TABLE))


@dataclass(frozen=True)
class _Size:
    tables: int
    rounds: int
    rivals: int
    """Tables that the rival merges too."""


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge a batch a table and round, all tables in one application; a few of them by processes of the textbook's too.

    What is told of ours is a round divided by the tables; of the rival, the tables that were measured: for all of them multiply.
    """
    chosen = size.of(tiny=_Size(2, 1, 1), quick=_Size(5, 3, 1), full=_Size(100, 3, 4))
    tables, rounds, rivals = chosen.tables, chosen.rounds, chosen.rivals
    told = f"{tables} tables of {ROWS:,} rows, {EVENTS:,} events each; CPU and wall a table (the rival's measured of {rivals * rounds})"
    result = Result("many-tables", told, RIVAL, {PER_TABLE: [], RIVAL: []}, budgets=BUDGETS)
    sources = [Source(f"bench.public.t{number:03d}", seed=number) for number in range(tables)]
    archive, lake = folder / "archive", folder / "lake"
    for source in sources:
        source.read(_file(archive, source, 0), range(ROWS))
    ours = ArchiveRun(spark, str(archive), str(lake))
    apply_archive(ours)
    peers = sources[:: tables // rivals][:rivals]
    for source in peers:
        small_textbook.merge(spark, _file(archive, source, 0), _theirs(folder, source))
    jobs = []
    # The first round warms up.
    for number in range(1, rounds + 2):
        for source in sources:
            source.change(_file(archive, source, number), EVENTS, range(ROWS))
        before = spark_jobs(spark)
        taken = _a_table(measure(lambda: apply_archive(ours)), tables)
        jobs.append((spark_jobs(spark) - before) / tables)
        result.taken[PER_TABLE] += [taken] if number > 1 else []
        for source in peers:
            if number > 1:
                log = folder / f"{source.topic}-{number}.log"
                result.taken[RIVAL].append(run_textbook(_file(archive, source, number), _theirs(folder, source), log))
            else:
                small_textbook.merge(spark, _file(archive, source, number), _theirs(folder, source))
    idle = measure(lambda: apply_archive(ours))
    result.void = _differing(spark, folder, lake, sources, peers)
    result.facts = _facts(result, tables) | {
        "Spark jobs a table": round(jobs[-1], 1),
        "a run without new files, CPU s in all": round(idle.cpu, 2),
    }
    return result


def spark_jobs(spark: SparkSession) -> int:
    """Return how many jobs the application has started until now."""
    started: Callable[[], int] = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    return started()


def _facts(result: Result, tables: int) -> dict[str, object]:
    return {
        "all tables, CPU s": round(result.median(PER_TABLE, "cpu") * tables, 1),
        "all tables by one process each, CPU s, extrapolated": round(result.median(RIVAL, "cpu") * tables),
    }


def _file(archive: Path, source: Source, number: int) -> Path:
    return archive / source.topic / f"{number:02d}.jsonl"


def _theirs(folder: Path, source: Source) -> Path:
    return (folder / "textbook" / source.topic).absolute()


def _a_table(taken: Taken, tables: int) -> Taken:
    return Taken(cpu=taken.cpu / tables, wall=taken.wall / tables, peak=taken.peak)


def _differing(spark: SparkSession, folder: Path, lake: Path, sources: list[Source], peers: list[Source]) -> str:
    void = ""
    for source in sources:
        rows = source.write_rows(folder / "rows" / f"{source.topic}.jsonl")
        void += differs(spark, (lake / source.topic).absolute(), rows)
        void += differs(spark, _theirs(folder, source), rows) if source in peers else ""
    return void
