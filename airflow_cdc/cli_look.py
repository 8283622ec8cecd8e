"""``airflow-cdc tables``, ``history``, ``show`` and ``diff``: what only looks at a lake. Spark starts where nothing else reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from airflow_cdc.cli_common import (
    EXIT_FAILED,
    AsJson,
    Connect,
    Flow,
    Globs,
    Lake,
    Master,
    SparkConf,
    SparkOptions,
    answer,
    usage,
)
from airflow_cdc.console import differing_columns, history_plot, history_table, print_json, shown_of, stdout_console, table
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.position.position import spelled_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_cdc.pipeline.look.differences import LakeComparison
    from airflow_cdc.pipeline.look.flow_rows import FlowRows
    from airflow_cdc.pipeline.look.flow_summaries import FlowSummary


def tables(lake: Lake, as_json: AsJson = False, master: Master = "local[*]", connect: Connect = None, conf: SparkConf = None) -> None:
    """List each flow: its table, rows, applied position, pending files, rejected records."""

    def natively() -> list[FlowSummary]:
        from airflow_cdc.pipeline.look.flow_summaries import summarize_natively

        return summarize_natively(lake)

    def in_spark(spark: SparkSession) -> list[FlowSummary]:
        from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows

        return summarize_flows(spark, lake)

    flows = answer("tables", natively, in_spark, SparkOptions(master, conf, connect))
    if as_json:
        print_json({"tables": [flow.to_json() for flow in flows]})
        return
    rows = [[flow.flow, flow.table, flow.rows, _positions(flow), flow.pending_files, flow.rejected] for flow in flows]
    columns = ("flow", "table", "rows", "applied position", "pending files", "rejected")
    stdout_console().print(table(f"Lake {lake}", columns, rows, right=("rows", "pending files", "rejected")))


def _positions(flow: FlowSummary) -> str:
    return "\n".join(f"{partition}: {spelled_commit(position, flow.connector)}" for partition, position in flow.applied_through.items())


def history(
    flow: Flow,
    lake: Lake,
    limit: Annotated[int, typer.Option(min=1, help="Most microbatches to show, the newest.")] = 20,
    every: Annotated[bool, typer.Option("--all", help="Show every microbatch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a flow's microbatches did: when, how many files, what became of the events, rows, seconds, engine, plan. Starts no Spark.

    Exit code 0 when it succeeded, 1 when the state cannot be read, 2 on usage and for a flow that the lake does not know.
    """
    from airflow_cdc.pipeline.look.microbatches import read_history

    with usage():
        found = read_history(lake, flow, None if every else limit)
    if as_json:
        print_json({"flow": flow, "microbatches": [each.to_json() for each in found.microbatches], "total": found.total})
        return
    console = stdout_console()
    console.print(history_table(found))
    if len(found.microbatches) > 1:
        console.print(history_plot(found), soft_wrap=True)


def show(
    flows: Annotated[list[str], typer.Argument(metavar="FLOW...", help="Names of flows.")],
    lake: Lake,
    limit: Annotated[int | None, typer.Option(min=0, help="Most rows to show.", show_default=False)] = None,
    history: Annotated[bool, typer.Option("--history", help="Show what is past too, with our own columns.")] = False,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Show the rows of flows' tables that the source has: its columns only, ordered by key."""

    def natively() -> list[FlowRows]:
        from airflow_cdc.pipeline.look.flow_rows import read_rows_natively

        return [read_rows_natively(lake, flow, limit, history=history) for flow in flows]

    def in_spark(spark: SparkSession) -> list[FlowRows]:
        from airflow_cdc.pipeline.upkeep.inspect_lake import read_rows

        return [read_rows(spark, lake, flow, limit, history=history) for flow in flows]

    found = answer("show", natively, in_spark, SparkOptions(master, conf, connect))
    if as_json:
        documents = [vars(flow) for flow in found]
        print_json(documents[0] if len(documents) == 1 else {"flows": documents})
        return
    for flow in found:
        title = f"{flow.flow} ({shown_of(len(flow.rows), flow.total, 'rows')})"
        stdout_console().print(table(title, flow.columns, [row.values() for row in flow.rows], data=True))


def diff(
    lake_a: Annotated[str, typer.Argument(metavar="LAKE_A", callback=absolute_uri)],
    lake_b: Annotated[str, typer.Argument(metavar="LAKE_B", callback=absolute_uri)],
    tables: Globs = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Compare same-named tables of two lakes exactly: schema and rows of the source's columns.

    Exit code 0 only when at least one table is in both and all that are in both are equal.
    """

    def natively() -> LakeComparison:
        from airflow_cdc.pipeline.look.differences import compare_natively

        return compare_natively(lake_a, lake_b, tables or ())

    def in_spark(spark: SparkSession) -> LakeComparison:
        from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes

        return compare_lakes(spark, lake_a, lake_b, tables or ())

    found = answer("diff", natively, in_spark, SparkOptions(master, conf, connect))
    if as_json:
        documents = [{**vars(item), "equal": item.equal} for item in found.tables]
        print_json({"equal": found.equal, "tables": documents, "only_left": found.only_left, "only_right": found.only_right})
    else:
        _print_differences(found)
    for name, only in (("A", found.only_left), ("B", found.only_right)):
        if only:
            Console(stderr=True).print(f"only in {name}, not compared: {', '.join(only)}", style="dim", highlight=False, soft_wrap=True)
    if not found.equal:
        raise typer.Exit(EXIT_FAILED)


def _print_differences(found: LakeComparison) -> None:
    rows = [
        [item.flow, "equal" if item.equal else "DIFFERENT", item.only_left, item.only_right, differing_columns(item)]
        for item in found.tables
    ]
    stdout_console().print(table("Compared", ("table", "result", "only in A", "only in B", "columns"), rows))
    for item in found.tables:
        if item.sample:
            keys = [list(sample.values()) for sample in item.sample]
            stdout_console().print(table(f"{item.flow}: keys that differ", item.sample[0], keys, data=True))
