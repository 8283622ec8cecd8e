"""``airflow-cdc retype``: make a table anew with the types that are known now."""

from __future__ import annotations

from airflow_cdc.cli_common import (
    Archive,
    AsJson,
    Connect,
    DryRun,
    Flow,
    FlowsFile,
    Lake,
    Master,
    SparkConf,
    check_archive,
    progress_on,
    spark_command,
    usage,
)
from airflow_cdc.console import print_json, stdout_console
from airflow_cdc.flows_file import read_flows


def retype(
    flow: Flow,
    archive: Archive,
    lake: Lake,
    dry_run: DryRun = False,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """Make a flow's table anew from the archive with the types that are known now, and put it in the place of the old one.

    Beside the table first: the rows are read again by the flow's settings of today, a handed over schema among them. Records that the
    quarantine holds are read again too. One that is cut off goes on when it is run again.

    Exit code 0 when it succeeded, 1 when it failed, 2 on usage.
    """
    with usage():
        settings = read_flows(flows)
        check_archive(archive)
    with spark_command("retype", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.repair.retype import Retyping
        from airflow_cdc.pipeline.repair.retype import retype as retype_flow

        done = retype_flow(Retyping(spark, archive, lake, flow, dry_run, settings, progress_on(console)))
        if as_json:
            print_json(done.to_json())
            return
        out = stdout_console()
        for line in (*done.lines(), "done" if done.is_done else "nothing was changed; run it without --dry-run to do it"):
            out.print(f"{flow}: {line}", markup=False, highlight=False, soft_wrap=True)
