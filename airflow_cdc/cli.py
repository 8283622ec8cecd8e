"""``airflow-cdc``: apply an archive, look at a lake, compare two."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from airflow_cdc import __version__
from airflow_cdc.console import (
    differing_columns,
    divert_stderr,
    error_text,
    print_errors,
    print_gaps,
    print_json,
    report_table,
    reprocessed_line,
    stdout_console,
    table,
)
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.as_of import parse_as_of, parse_position
from airflow_cdc.model.errors import ArchiveNotFoundError, CdcError, ConfigurationError, first_line
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.outcome import ApplyReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(
    help="Archived change events become exact Delta tables.", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)
quarantine = typer.Typer(help="Records that could not be merged, with reason and place.", no_args_is_help=True)
app.add_typer(quarantine, name="quarantine")

EXIT_FAILED, EXIT_USAGE = 1, 2

Archive = Annotated[str, typer.Option(help="Root URI of the archive.", show_default=False, callback=absolute_uri)]
FlowsFile = Annotated[Path | None, typer.Option(help="YAML or JSON file with settings of flows.", show_default=False)]
Flow = Annotated[str, typer.Argument(metavar="FLOW", help="Name of a flow.")]
Lake = Annotated[str, typer.Option(help="Root URI of the lake.", show_default=False, callback=absolute_uri)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Globs = Annotated[list[str] | None, typer.Option("--table", help="Glob of flow names; may be repeated.", show_default=False)]
Master = Annotated[str, typer.Option(help="Spark master.", envvar="AIRFLOW_CDC_SPARK_MASTER")]
SparkConf = Annotated[list[str] | None, typer.Option("--conf", help="Spark setting key=value; may be repeated.", show_default=False)]


@contextmanager
def _spark(command: str, master: str, conf: list[str] | None) -> Iterator[tuple[SparkSession, Console]]:
    """Start Spark with its log in a file; end the command with the right exit code when something goes wrong."""
    settings = _settings(conf)
    handle, log = tempfile.mkstemp(prefix=f"airflow-cdc-{command}-", suffix=".log")
    os.close(handle)
    console = divert_stderr(Path(log))
    failed = True
    try:
        from airflow_cdc import runtime
        from airflow_cdc.pipeline.session import start_session

        os.environ.update(runtime.spark_environment(master))
        session = start_session(f"airflow-cdc {command}", master=master, options=settings)
        yield session, console
        failed = False
    except CdcError as error:
        console.print(error_text(error))
        failed = not isinstance(error, ConfigurationError | ArchiveNotFoundError)
        raise typer.Exit(EXIT_FAILED if failed else EXIT_USAGE) from error
    except typer.Exit as ending:
        failed = ending.exit_code == EXIT_FAILED and command == "apply"
        raise
    except Exception as error:
        # Into the log, which is where stderr goes.
        traceback.print_exc()
        next_step = "Next step: the log's end says where; unless a setting is wrong, please report it."
        console.print(Text(f"{type(error).__name__}: {first_line(error)}\n  {next_step}"))
        raise typer.Exit(EXIT_FAILED) from error
    finally:
        if failed:
            console.print(f"Spark's log: {log}", highlight=False)
        else:
            Path(log).unlink(missing_ok=True)


def _settings(conf: list[str] | None) -> dict[str, str]:
    settings = {}
    for item in conf or []:
        key, equals, value = item.partition("=")
        if not equals:
            raise typer.BadParameter(f"{item!r} is not key=value", param_hint="--conf")
        settings[key] = value
    return settings


@contextmanager
def _usage() -> Iterator[None]:
    """End the command before Spark starts when its arguments are wrong: nobody waits ten seconds for a typing error."""
    try:
        yield
    except ConfigurationError as error:
        Console(stderr=True).print(error_text(error))
        raise typer.Exit(EXIT_USAGE) from error


@app.command()
def apply(
    archive: Archive,
    lake: Lake,
    flows: FlowsFile = None,
    tables: Globs = None,
    check_transactions: Annotated[bool, typer.Option("--check-transactions", help="Check the counts of transaction topics.")] = False,
    consistent: Annotated[bool, typer.Option("--consistent", help="Stop all tables at the last whole transaction.")] = False,
    as_json: AsJson = False,
    master: Master = "local[*]",
    conf: SparkConf = None,
) -> None:
    """Apply all pending microbatches of every flow under an archive.

    Exit code 0 when all flows succeeded, 1 when any failed (the others still complete), 2 on usage.
    """
    with _usage():
        settings = read_flows(flows)
    with _spark("apply", master, conf) as (spark, console):
        from airflow_cdc.pipeline.apply_archive import ArchiveRun, apply_archive

        options: dict[str, Any] = {"check_transactions": check_transactions, "consistent": consistent}
        run = ArchiveRun(spark, archive, lake, settings, tuple(tables or ()), _progress(console), **options)
        report = apply_archive(run)
        _print_report(report, console, as_json=as_json)
        if not report.ok:
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
    conf: SparkConf = None,
) -> None:
    """Rebuild a flow from the archive in a lake of its own, wholly or as of a moment; the live table is not touched.

    Exit code 0 when it succeeded, 1 when it failed, 2 on usage.
    """
    with _usage():
        settings, moment = read_flows(flows), parse_as_of(as_of) if as_of else None
    with _spark("rebuild", master, conf) as (spark, console):
        from airflow_cdc.pipeline.rebuild import Rebuild
        from airflow_cdc.pipeline.rebuild import rebuild as rebuild_flow

        report = rebuild_flow(Rebuild(spark, archive, lake, flow, moment, into, settings, _progress(console)))
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
    from_position: Annotated[str | None, typer.Option(help="First position; none: from the beginning.", show_default=False)] = None,
    to_position: Annotated[str | None, typer.Option(help="Last position; none: to the end of what is applied.", show_default=False)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Tell what would become of the rows, and change nothing.")] = False,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    conf: SparkConf = None,
) -> None:
    """Read again what a flow has applied of a range, and give its live table what it lacks; rows that are right stay.

    Exit code 0 when it succeeded, 1 when it failed, 2 on usage.
    """
    with _usage():
        settings = read_flows(flows)
        first, last = (parse_position(text) if text else None for text in (from_position, to_position))
    with _spark("reprocess", master, conf) as (spark, console):
        from airflow_cdc.pipeline.reprocess import Reprocessing
        from airflow_cdc.pipeline.reprocess import reprocess as reprocess_range

        order = Reprocessing(spark, archive, lake, flow, first, last, dry_run, settings, _progress(console))
        done = reprocess_range(order)
        if as_json:
            print_json({"dry_run": dry_run, "found": done.found.to_json(), "report": done.report and done.report.to_json()})
        else:
            stdout_console().print(f"{flow}: {reprocessed_line(done.found)}", markup=False, highlight=False)
        if done.report:
            print_errors(console, done.report)
            if not done.report.ok:
                raise typer.Exit(EXIT_FAILED)


def _progress(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(line, style="dim", highlight=False, markup=False)


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
def tables(lake: Lake, as_json: AsJson = False, master: Master = "local[*]", conf: SparkConf = None) -> None:
    """List each flow: its table, rows, applied position, pending files, rejected records."""
    with _spark("tables", master, conf) as (spark, _):
        from airflow_cdc.pipeline.inspect_lake import summarize_flows

        flows = summarize_flows(spark, lake)
        if as_json:
            print_json({"tables": [vars(flow) for flow in flows]})
            return
        rows = [[flow.flow, flow.table, flow.rows, _positions(flow.applied_position), flow.pending_files, flow.rejected] for flow in flows]
        columns = ("flow", "table", "rows", "applied position", "pending files", "rejected")
        stdout_console().print(table(f"Lake {lake}", columns, rows, right=("rows", "pending files", "rejected")))


def _positions(by_partition: Any) -> str:
    return "\n".join(f"{partition}: {position}" for partition, position in by_partition.items())


@app.command()
def show(
    flows: Annotated[list[str], typer.Argument(metavar="FLOW...", help="Names of flows.")],
    lake: Lake,
    limit: Annotated[int | None, typer.Option(help="Most rows to show.", show_default=False)] = None,
    history: Annotated[bool, typer.Option("--history", help="Show what is past too, with our own columns.")] = False,
    as_json: AsJson = False,
    master: Master = "local[*]",
    conf: SparkConf = None,
) -> None:
    """Show the rows of flows' tables that the source has: its columns only, ordered by key."""
    with _spark("show", master, conf) as (spark, _):
        from airflow_cdc.pipeline.inspect_lake import read_rows

        found = [read_rows(spark, lake, flow, limit, history=history) for flow in flows]
        if as_json:
            documents = [vars(flow) for flow in found]
            print_json(documents[0] if len(documents) == 1 else {"flows": documents})
            return
        for flow in found:
            stdout_console().print(table(f"{flow.flow} ({len(flow.rows):,} rows)", flow.columns, [row.values() for row in flow.rows]))


@app.command()
def diff(
    lake_a: Annotated[str, typer.Argument(metavar="LAKE_A", callback=absolute_uri)],
    lake_b: Annotated[str, typer.Argument(metavar="LAKE_B", callback=absolute_uri)],
    tables: Globs = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    conf: SparkConf = None,
) -> None:
    """Compare same-named tables of two lakes exactly: schema and rows of the source's columns.

    Exit code 0 only when at least one table is in both and all that are in both are equal.
    """
    with _spark("diff", master, conf) as (spark, console):
        from airflow_cdc.pipeline.compare_tables import compare_lakes

        found = compare_lakes(spark, lake_a, lake_b, tables or ())
        if as_json:
            documents = [{**vars(item), "equal": item.equal} for item in found.tables]
            print_json({"equal": found.equal, "tables": documents, "only_left": found.only_left, "only_right": found.only_right})
        else:
            rows = [
                [item.flow, "equal" if item.equal else "DIFFERENT", item.only_left, item.only_right, differing_columns(item)]
                for item in found.tables
            ]
            stdout_console().print(table("Compared", ("table", "result", "only in A", "only in B", "columns"), rows))
            for item in found.tables:
                if item.sample:
                    keys = [list(sample.values()) for sample in item.sample]
                    stdout_console().print(table(f"{item.flow}: keys that differ", item.sample[0], keys))
        for name, only in (("A", found.only_left), ("B", found.only_right)):
            if only:
                console.print(f"only in {name}, not compared: {', '.join(only)}", style="dim", highlight=False)
        if not found.equal:
            raise typer.Exit(EXIT_FAILED)


@quarantine.command("list")
def quarantine_list(lake: Lake, tables: Globs = None, as_json: AsJson = False, master: Master = "local[*]", conf: SparkConf = None) -> None:
    """List quarantined records: flow, reason, place."""
    with _spark("quarantine", master, conf) as (spark, _):
        from airflow_cdc.pipeline.inspect_lake import read_quarantine

        records = read_quarantine(spark, lake, tables or ())
        if as_json:
            print_json({"quarantine": records})
            return
        columns = ("flow", "microbatch", "reason", "detail", "file", "line", "offset")
        rows = [[record[column] for column in columns] for record in records]
        stdout_console().print(table(f"Quarantine of {lake}", columns, rows, right=("microbatch", "line", "offset")))


@quarantine.command("show")
def quarantine_show(
    flow: Flow,
    lake: Lake,
    as_json: AsJson = False,
    master: Master = "local[*]",
    conf: SparkConf = None,
) -> None:
    """Show a flow's quarantined records with their raw text."""
    with _spark("quarantine", master, conf) as (spark, _):
        from airflow_cdc.pipeline.inspect_lake import read_quarantine

        records = [record for record in read_quarantine(spark, lake) if record["flow"] == flow]
        if as_json:
            print_json({"flow": flow, "quarantine": records})
            return
        console = stdout_console()
        for record in records:
            place = f" {record['file']}:{record['line']} (microbatch {record['microbatch']})"
            console.print(Text.assemble((record["reason"], "bold"), place))
            console.print(record["detail"] or "", highlight=False, markup=False)
            console.print(record["raw"], highlight=False, markup=False, style="dim")


@app.command()
def demo(folder: Annotated[Path, typer.Option(help="Folder of the demo; wiped first.")] = Path(".airflow-cdc/demo")) -> None:
    """Run the main job end to end on a small archive: an Airflow Dag merges change events into Delta tables, twice."""
    from airflow_cdc.demo import run_demo

    raise typer.Exit(run_demo(stdout_console(), folder))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
