"""``python -m benchmarks [SCENARIO ...]``: run the scenarios, print their tables, keep the figures and plots under ``results/``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from airflow_cdc import runtime
from airflow_cdc.pipeline.session import start_session
from benchmarks import backfill, cold, flat, formats, growth, many_tables, merges, planning, reconcile, size, warm
from benchmarks.measure import Result
from benchmarks.report import report, report_aims
from benchmarks.size import Size

_MERGES: dict[str, Callable[..., Result]] = {**merges.RUNS, "formats": formats.run}
SCENARIOS: dict[str, Callable[[SparkSession, Path], Result]] = {
    **_MERGES,
    "many-tables": many_tables.run,
    "flat": flat.run,
    "planning": planning.run,
    "backfill": backfill.run,
    "growth": growth.run,
    "cold": cold.run,
    "warm": warm.run,
}
_STEPS: dict[str, Callable[[SparkSession, Path], Result]] = {
    "reconcile": partial(reconcile.run, hazards=0.0),
    "reconcile-hazards": partial(reconcile.run, hazards=0.01),
}
"""Of one step of a merge; run only where they are asked for."""
_ALL = {**SCENARIOS, **_STEPS}
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
    rounds = rounds or (1 if tiny else merges.ROUNDS)
    spark = _start(compiled=full)
    results = []
    for name in scenarios or SCENARIOS:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        run = _ALL[name]
        if name in _MERGES:
            run = partial(_MERGES[name], only=[word.strip() for word in only.split(",") if word], rounds=rounds)
        result = run(spark, FOLDER / name)
        # Only runs of whole size of all contestants are kept with the code.
        if full and not only:
            report(result)
        else:
            report(result, size=size.chosen().value, folder=_RESULTS_OF_SMALLER)
        results.append(result)
    spark.stop()
    if len(results) > 1:
        report_aims(results)
    if any(result.void or result.void_rows for result in results):
        raise typer.Exit(1)


def _start(*, compiled: bool) -> SparkSession:
    """Start Spark; ``compiled``: with Java's second compiler, which costs more than it saves where batches are small."""
    os.environ.update(runtime.spark_environment("local[2]"))
    scratch = FOLDER / "spark"
    shutil.rmtree(scratch, ignore_errors=True)
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch.absolute())
    options = {
        "spark.sql.warehouse.dir": str((scratch / "warehouse").absolute()),
        "spark.driver.memory": "4g",
        # As a job of that size runs; but the plans of all scenarios fill the code cache that is enough for one job.
        **({} if compiled else {"spark.driver.extraJavaOptions": f"{runtime.SMALL_JVM} -XX:ReservedCodeCacheSize=512m"}),
    }
    spark = start_session("airflow-cdc bench", master="local[2]", options=options)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    typer.run(main)
