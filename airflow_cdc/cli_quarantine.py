"""``airflow-cdc quarantine``: records that could not be merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

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
    SparkOptions,
    answer,
    check_archive,
    progress_on,
    spark_command,
    usage,
)
from airflow_cdc.console import print_errors, print_json, stdout_console
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.report.reprocessing import FlowReprocess, check_reasons
from airflow_cdc.print_quarantine import print_groups, print_raw, print_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_cdc.pipeline.look.quarantined import QuarantineGroup

    _Listed: TypeAlias = tuple[list[dict[str, Any]], list[QuarantineGroup]]
    _Shown: TypeAlias = tuple[Sequence[dict[str, Any]], int]

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
    globs, grouped, listed = tuple(tables or ()), as_json or not every, as_json or every

    def natively() -> _Listed:
        from airflow_cdc.pipeline.look.quarantined import groups_of, read_quarantine_natively

        records = read_quarantine_natively(lake, globs)
        return records, groups_of(records)

    def in_spark(spark: SparkSession) -> _Listed:
        from airflow_cdc.pipeline.upkeep.inspect_lake import read_quarantine
        from airflow_cdc.pipeline.upkeep.quarantine_groups import quarantine_groups

        # A large quarantine is grouped in Spark, and not collected.
        records = read_quarantine(spark, lake, globs) if listed else []
        return records, quarantine_groups(spark, lake, globs) if grouped else []

    records, groups = answer("quarantine", natively, in_spark, SparkOptions(master, conf, connect))
    if as_json:
        print_json({"quarantine": records, "groups": [group.to_json() for group in groups]})
    elif every:
        print_records(records, lake)
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
    most = None if every or as_json else limit

    def natively() -> _Shown:
        from airflow_cdc.pipeline.look.quarantined import records_of_natively

        return records_of_natively(lake, flow, most)

    def in_spark(spark: SparkSession) -> _Shown:
        from airflow_cdc.pipeline.upkeep.quarantine_groups import records_of

        return records_of(spark, lake, flow, most)

    records, total = answer("quarantine", natively, in_spark, SparkOptions(master, conf, connect))
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
        check_archive(archive)
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
