"""``airflow-cdc``: apply an archive, look at a lake, compare two, keep one tidy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from airflow_cdc import __version__
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
    check_archive,
    progress_on,
    spark_command,
    usage,
)
from airflow_cdc.cli_completion import completion
from airflow_cdc.cli_explain import explain
from airflow_cdc.cli_files import files
from airflow_cdc.cli_init import init
from airflow_cdc.cli_inspect import inspect
from airflow_cdc.cli_keep import maintain, verify
from airflow_cdc.cli_key import key
from airflow_cdc.cli_look import diff, history, show, tables
from airflow_cdc.cli_metrics import metrics
from airflow_cdc.cli_page import page
from airflow_cdc.cli_quarantine import quarantine
from airflow_cdc.cli_retype import retype
from airflow_cdc.cli_schema import schema
from airflow_cdc.cli_serve import serve
from airflow_cdc.cli_snapshot import confirm_snapshot
from airflow_cdc.console import (
    print_errors,
    print_gaps,
    print_json,
    report_table,
    stdout_console,
)
from airflow_cdc.flows_file import read_flows
from airflow_cdc.live_progress import live_progress
from airflow_cdc.model.archive.interval import parse_interval
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.position.as_of import check_range, parse_as_of
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.reject_limit import RejectLimit
from airflow_cdc.model.report.reprocessing import found_line

app = typer.Typer(
    help="Archived change events become exact Delta tables.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
app.add_typer(quarantine, name="quarantine")
app.add_typer(schema, name="schema")

app.command()(inspect)
app.command()(init)
app.command()(tables)
app.command()(explain)
app.command()(history)
app.command()(key)
app.command()(files)
app.command()(metrics)
app.command()(show)
app.command()(diff)
app.command("confirm-snapshot")(confirm_snapshot)
app.command()(maintain)
app.command()(retype)
app.command()(verify)
app.command()(serve)
app.command()(completion)
app.command()(page)


@app.command()
def apply(
    archive: Archive,
    lake: Lake,
    flows: FlowsFile = None,
    tables: Globs = None,
    check_transactions: Annotated[bool, typer.Option("--check-transactions", help="Check the counts of transaction topics.")] = False,
    consistent: Annotated[bool, typer.Option("--consistent", help="Stop all tables at the last whole transaction.")] = False,
    since: Annotated[str | None, typer.Option(help="Only files archived from this time on (ISO-8601).", show_default=False)] = None,
    until: Annotated[str | None, typer.Option(help="Only files archived before this time (ISO-8601).", show_default=False)] = None,
    engine: Annotated[Engine | None, typer.Option(help="Engine of all flows in this run; none: each flow's.", show_default=False)] = None,
    fail_on_rejects: Annotated[
        str, typer.Option(help="never, any, or a share (0 to 1) of a flow's records: exit code 1 when more are in the quarantine.")
    ] = "never",
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Apply all pending microbatches of every flow under an archive.

    Exit code 0 when all flows succeeded, 1 when any failed (the others still complete) or has too many rejects, 2 on usage.
    """
    with usage():
        settings, interval, limit = read_flows(flows), parse_interval(since, until), RejectLimit.parse(fail_on_rejects)
        check_archive(archive)
    with spark_command("apply", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.run.apply_archive import apply_archive
        from airflow_cdc.pipeline.run.archive_run import ArchiveRun

        options: dict[str, Any] = {
            "check_transactions": check_transactions,
            "consistent": consistent,
            "interval": interval,
            "engine": engine,
        }
        with live_progress(console) as watch:
            run = ArchiveRun(spark, archive, lake, settings, tuple(tables or ()), progress_on(console), watch=watch, **options)
            report = apply_archive(run)
        _print_report(report, console, as_json=as_json)
        refused = list(limit.broken(report))
        for line in refused:
            console.print(f"too many rejects: {line}", highlight=False, markup=False, soft_wrap=True)
        if refused or not report.ok:
            raise typer.Exit(EXIT_FAILED)


@app.command()
def rebuild(
    flow: Flow,
    archive: Archive,
    lake: Lake,
    as_of: Annotated[str | None, typer.Option(help="Last position or time (ISO-8601) to apply; none: all.", show_default=False)] = None,
    into: Annotated[
        str | None, typer.Option(help="Root URI of the new lake; none: a folder in the lake's _cdc/rebuilds.", show_default=False)
    ] = None,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Rebuild a flow from the archive in a lake of its own, wholly or as of a moment; the live table is not touched.

    Exit code 0 when it succeeded, 1 when it failed, 2 on usage.
    """
    with usage():
        settings, moment = read_flows(flows), parse_as_of(as_of) if as_of else None
        check_archive(archive)
    with spark_command("rebuild", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.repair.rebuild import Rebuild
        from airflow_cdc.pipeline.repair.rebuild import rebuild as rebuild_flow

        report = rebuild_flow(Rebuild(spark, archive, lake, (flow,), moment, into, settings, progress_on(console)))
        _print_report(report, console, as_json=as_json)
        if not report.ok:
            raise typer.Exit(EXIT_FAILED)
        for line in (
            f"rebuilt in {report.lake}",
            f'compare: airflow-cdc diff "{lake}" "{report.lake}" --table "{flow}"',
            "swap in: docs/how-to/rebuild-and-reprocess.md",
        ):
            console.print(line, highlight=False, markup=False, soft_wrap=True)


@app.command()
def reprocess(
    flow: Flow,
    archive: Archive,
    lake: Lake,
    from_position: Annotated[
        str | None, typer.Option(help="First position or time (ISO-8601); none: from the beginning.", show_default=False)
    ] = None,
    to_position: Annotated[
        str | None, typer.Option(help="Last position or time; none: to the end of what is applied.", show_default=False)
    ] = None,
    dry_run: DryRun = False,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Read again what a flow has applied of a range, and give its live table what it lacks; rows that are right stay.

    Exit code 0 when it succeeded, 1 when it failed, 2 on usage.
    """
    with usage():
        settings = read_flows(flows)
        first, last = (parse_as_of(text) if text else None for text in (from_position, to_position))
        check_range(first, last)
        check_archive(archive)
    with spark_command("reprocess", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.repair.reprocess import Reprocessing
        from airflow_cdc.pipeline.repair.reprocess import reprocess as reprocess_range

        order = Reprocessing(spark, archive, lake, flow, first, last, dry_run, settings, progress_on(console))
        done = reprocess_range(order)
        if as_json:
            print_json({"dry_run": dry_run, "found": done.found.to_json(), "report": done.report and done.report.to_json()})
        else:
            stdout_console().print(f"{flow}: {found_line(done.found)}", markup=False, highlight=False)
        if done.report:
            print_errors(console, done.report)
            if not done.report.ok:
                raise typer.Exit(EXIT_FAILED)


def _print_report(report: ApplyReport, console: Console, *, as_json: bool) -> None:
    if as_json:
        print_json(report.to_json())
    else:
        stdout_console().print(report_table(report))
    for name, items in (("control topics, not tables", report.control_topics), ("files left aside", report.ignored_files)):
        if items:
            console.print(f"{name}: {', '.join(items[:20])}{' …' if len(items) > 20 else ''}", style="dim", highlight=False)
    print_gaps(console, report)
    print_errors(console, report)


@app.command()
def demo(folder: Annotated[Path, typer.Option(help="Folder of the demo; wiped first.")] = Path(".airflow-cdc/demo")) -> None:
    """Run the main job end to end on a small archive: an Airflow Dag merges change events into Delta tables, twice."""
    from airflow_cdc.demo import run_demo

    raise typer.Exit(run_demo(stdout_console(), folder))


@app.command()
def version(as_json: AsJson = False) -> None:
    """Print the version."""
    if as_json:
        print_json({"version": __version__})
    else:
        typer.echo(__version__)
