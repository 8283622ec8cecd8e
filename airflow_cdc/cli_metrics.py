"""``airflow-cdc metrics``: the flows' metrics as OpenMetrics text."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_cdc.cli_common import Lake, usage
from airflow_cdc.model.report.open_metrics import open_metrics
from airflow_cdc.pipeline.look.flow_metrics import samples_of_lake


def metrics(
    lake: Lake,
    look: Annotated[bool, typer.Option("--look", help="List the archives too, for files that no run has surveyed.")] = False,
    rows: Annotated[bool, typer.Option("--rows", help="Count rows and reject reasons too; reads every commit marker.")] = False,
    name: Annotated[str | None, typer.Option(help="Value of the label `lake`; default: the lake's root.", show_default=False)] = None,
) -> None:
    """Print the metrics of each flow as OpenMetrics text, for Prometheus. Starts no Spark.

    Exit code 0 when it succeeded, 1 when the state cannot be read, 2 on usage.
    """
    with usage():
        text = open_metrics(samples_of_lake(lake, look=look, every_marker=rows), name or lake)
    typer.echo(text, nl=False)
