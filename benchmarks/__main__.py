"""``python -m benchmarks [SCENARIO ...]``: run the scenarios, print their tables, keep the figures under ``results/``."""

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
from benchmarks import backfill, cold, flat, growth, many_tables, planning, reconcile, spread, warm
from benchmarks.measure import Result, report

SCENARIOS: dict[str, Callable[[SparkSession, Path], Result]] = {
    "spread": spread.run,
    "warm": warm.run,
    "reconcile": partial(reconcile.run, hazards=0.0),
    "reconcile-hazards": partial(reconcile.run, hazards=0.01),
    "many-tables": many_tables.run,
    "flat": flat.run,
    "planning": planning.run,
    "backfill": backfill.run,
    "growth": growth.run,
    "cold": cold.run,
}
FOLDER = Path(".airflow-cdc/bench")


def main(scenarios: Annotated[list[str] | None, typer.Argument(help=f"Of {', '.join(SCENARIOS)}; none: all.")] = None) -> None:
    """Run scenarios; ends with 1 when one is void."""
    unknown = set(scenarios or ()) - set(SCENARIOS)
    if unknown:
        raise typer.BadParameter(f"No such scenario: {', '.join(sorted(unknown))}. There are {', '.join(SCENARIOS)}.")
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.environ.update(runtime.spark_environment("local[2]"))
    spark = start_session("airflow-cdc bench", master="local[2]", options={"spark.sql.warehouse.dir": str(FOLDER / "warehouse")})
    spark.sparkContext.setLogLevel("ERROR")
    void = []
    for name in scenarios or SCENARIOS:
        result = SCENARIOS[name](spark, FOLDER / name)
        report(result)
        void += [name] if result.void else []
    spark.stop()
    if void:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
