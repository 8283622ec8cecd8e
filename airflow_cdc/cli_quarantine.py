"""``airflow-cdc quarantine``: records that could not be merged."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_cdc.cli_common import (
    EXIT_FAILED,
    Archive,
    AsJson,
    Connect,
    DryRun,
    Flow,
    FlowsFile,
    Globs,
    Lake,
    Master,
    SparkConf,
    progress_on,
    spark_command,
    usage,
)
from airflow_cdc.console import print_errors, print_json, stdout_console
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.report.reprocessing import FlowReprocess, check_reasons
from airflow_cdc.print_quarantine import print_groups, print_raw, print_records

quarantine = typer.Typer(help="Records that could not be merged, with reason and place.", no_args_is_help=True)


Limit = Annotated[int, typer.Option(min=1, help="Most to show; --json holds all.")]
All = Annotated[bool, typer.Option("--all", help="Show every record.")]


@quarantine.command("list")
def quarantine_list(
    lake: Lake,
    tables: Globs = None,
    limit: Limit = 20,
    every: All = False,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """List quarantined records by flow, reason and column: how many there are, and the first of them."""
    with spark_command("quarantine", master, conf, connect) as (spark, _):
        from airflow_cdc.pipeline.upkeep.inspect_lake import read_quarantine
        from airflow_cdc.pipeline.upkeep.quarantine_groups import quarantine_groups

        if every and not as_json:
            print_records(read_quarantine(spark, lake, tables or ()), lake)
            return
        groups = quarantine_groups(spark, lake, tables or ())
        if as_json:
            print_json({"quarantine": read_quarantine(spark, lake, tables or ()), "groups": [group.to_json() for group in groups]})
        else:
            print_groups(groups, lake, limit)


@quarantine.command("show")
def quarantine_show(
    flow: Flow,
    lake: Lake,
    limit: Limit = 20,
    every: All = False,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Show a flow's quarantined records with their raw text.

    Exit code 0 whether there are any or not, 2 on usage and for a flow that the lake does not know.
    """
    with spark_command("quarantine", master, conf, connect) as (spark, _):
        from airflow_cdc.pipeline.upkeep.quarantine_groups import records_of

        records, total = records_of(spark, lake, flow, None if every or as_json else limit)
        if as_json:
            print_json({"flow": flow, "quarantine": records})
        else:
            print_raw(records, flow, total)


@quarantine.command("replay")
def quarantine_replay(
    flow: Flow,
    archive: Archive,
    lake: Lake,
    reason: Annotated[
        list[str] | None, typer.Option(help="Only files with records of this reason; may be repeated.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Read again the files of which records are in a flow's quarantine, as the flows file is now, and merge what can be.

    Exit code 0 when it succeeded, also where records still cannot be merged, 1 when it failed, 2 on usage.
    """
    with usage():
        settings, reasons = read_flows(flows), reason or []
        check_reasons(reasons)
    with spark_command("replay", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.repair.replay_quarantine import replay_quarantine
        from airflow_cdc.pipeline.repair.reprocess import Reprocessing

        order = Reprocessing(spark, archive, lake, flow, dry_run=dry_run, flows=settings, progress=progress_on(console))
        done = replay_quarantine(order, reasons)
        found, report = (done.again.found, done.again.report) if done.again else (None, None)
        if as_json:
            outcome = {"found": found and found.to_json(), "report": report and report.to_json()}
            print_json({"flow": flow, "dry_run": dry_run, "files": done.files, **outcome})
        else:
            batches = report.flows[0].batches if report else ()
            for line in FlowReprocess(flow, found, batches).lines():
                stdout_console().print(line, markup=False, highlight=False, soft_wrap=True)
        if report:
            print_errors(console, report)
            if not report.ok:
                raise typer.Exit(EXIT_FAILED)
