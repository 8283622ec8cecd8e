"""``python -m benchmarks [SCENARIO ...]``: run the scenarios, print their tables, keep the figures and plots under ``results/``."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from airflow_cdc import runtime
from airflow_cdc.pipeline.spark.session import start_session
from benchmarks import backfill, flat, formats, growth, merges, planning, reconcile, size, small_batches
from benchmarks.measure import Result
from benchmarks.report import report, report_aims
from benchmarks.size import Size
from tests.system.spark_cluster import SparkCluster

_MERGES: dict[str, Callable[..., Result]] = {**merges.RUNS, "formats": formats.run}
_ONE_BY_ONE: dict[str, Callable[[SparkSession, Path], Result]] = {
    **_MERGES,
    "flat": flat.run,
    "planning": planning.run,
    "backfill": backfill.run,
    "growth": growth.run,
}
_STEPS: dict[str, Callable[[SparkSession, Path], Result]] = {
    "reconcile": partial(reconcile.run, hazards=0.0),
    "reconcile-hazards": partial(reconcile.run, hazards=0.01),
}
"""Of one step of a merge; run only where they are asked for."""
SCENARIOS = [*_ONE_BY_ONE, *small_batches.SCENARIOS, merges.LARGE.name]
_ALL = [*SCENARIOS, *_STEPS]
FOLDER = Path(".airflow-cdc/bench")
"""Scratch; what lies in its ``cache`` is used again."""
_RESULTS_OF_SMALLER = FOLDER / "results"


def main(
    scenarios: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(_ALL)}; none: all but {' and '.join(_STEPS)}.")] = None,
    full: Annotated[bool, typer.Option("--full", help="At the sizes that the aims are about.")] = False,  # noqa: FBT002
    tiny: Annotated[bool, typer.Option("--tiny", help="Only to see that they run.")] = False,  # noqa: FBT002
    only: Annotated[str, typer.Option(help="Contestants of the merges, with commas between; none: all.")] = "",
    rounds: Annotated[int, typer.Option(help="Measured rounds of the merges; 0: as many as usual.")] = 0,
) -> None:
    """Run scenarios; ends with 1 when one is void."""
    unknown = set(scenarios or ()) - set(_ALL)
    if unknown:
        raise typer.BadParameter(f"No such scenario: {', '.join(sorted(unknown))}. There are {', '.join(_ALL)}.")
    size.choose(Size.FULL if full else Size.TINY if tiny else Size.QUICK)
    chosen = _Chosen([word.strip() for word in only.split(",") if word], rounds or (1 if tiny else merges.ROUNDS))
    results = []
    for result in _results(scenarios or SCENARIOS, chosen):
        # Only runs of whole size of all contestants are kept with the code.
        if full and not only:
            report(result)
        else:
            report(result, size=size.chosen().value, folder=_RESULTS_OF_SMALLER)
        results.append(result)
    if len(results) > 1:
        report_aims(results)
    if any(result.void or result.void_rows for result in results):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Chosen:
    """What the merges are asked for."""

    only: list[str]
    rounds: int


def _results(names: list[str], chosen: _Chosen) -> Iterator[Result]:
    """Run scenarios: first those of this machine's own Spark, then the one of a cluster."""
    if local := [name for name in names if name != merges.LARGE.name]:
        spark = _start("local[2]")
        yield from _results_in(spark, local, chosen)
        spark.stop()
    if merges.LARGE.name in names:
        folder = FOLDER / merges.LARGE.name
        shutil.rmtree(folder, ignore_errors=True)
        os.environ["PYSPARK_PYTHON"] = sys.executable
        cluster = SparkCluster(folder / "cluster", workers=2, memory="3g")
        try:
            spark = _start(f"spark://{cluster.host}")
            yield merges.LARGE.run(spark, folder, only=chosen.only, rounds=chosen.rounds)
            spark.stop()
        finally:
            cluster.stop()


def _results_in(spark: SparkSession, names: list[str], chosen: _Chosen) -> Iterator[Result]:
    """Run scenarios in one session; those of small batches, which share what they measure, all where the first of them stands."""
    small = [name for name in names if name in small_batches.SCENARIOS]
    for name in names:
        folder = FOLDER / (name if name not in small else "small-batches")
        if name in small[1:]:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        if name in small:
            yield from small_batches.run(spark, folder, small)
        elif name in _MERGES:
            yield _MERGES[name](spark, folder, only=chosen.only, rounds=chosen.rounds)
        else:
            yield {**_ONE_BY_ONE, **_STEPS}[name](spark, folder)


def _start(master: str) -> SparkSession:
    os.environ.update({**runtime.spark_environment(master), "SPARK_LOCAL_HOSTNAME": "127.0.0.1"})
    scratch = FOLDER / "spark"
    shutil.rmtree(scratch, ignore_errors=True)
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch.absolute())
    options = {
        "spark.sql.warehouse.dir": str((scratch / "warehouse").absolute()),
        "spark.driver.memory": "4g",
        "spark.executor.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        # What no contestant is measured by, such as a look at all tables in the end; contestants' sessions set both themselves.
        "spark.sql.shuffle.partitions": "8",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    spark = start_session("airflow-cdc bench", master=master, options=options)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    typer.run(main)
