"""``airflow-cdc confirm-snapshot``: decide about the rows that a snapshot did not find."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from airflow_cdc.cli_common import EXIT_FAILED, AsJson, Connect, Flow, FlowsFile, Lake, Master, SparkConf, progress_on, spark_command, usage
from airflow_cdc.console import print_errors, print_json, stdout_console, table
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.lives import lane_text
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.model.position.snapshot import Snapshot, SnapshotChoice
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.pipeline.run.select_flows import known_flow


def confirm_snapshot(
    flow: Flow,
    lake: Lake,
    position: Annotated[
        str | None, typer.Option(help="Position of the snapshot, as listed; none: the only one.", show_default=False)
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Remove the rows that it did not find, once it is proven.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep them, whatever the flow's on_snapshot is.")] = False,
    flows: FlowsFile = None,
    as_json: AsJson = False,
    master: Master = "local[*]",
    connect: Connect = None,
    conf: SparkConf = None,
) -> None:
    """List the full snapshots of a flow about whose missing rows nobody has decided; with a choice decide about one.

    Exit code 0 when it succeeded, 1 when it failed, 2 on usage. Without a choice it starts no Spark and changes nothing.
    """
    with usage():
        choice = _choice(replace=replace, keep=keep)
        settings = read_flows(flows)
    if choice is None:
        _list(lake, flow, as_json=as_json)
        return
    with spark_command("confirm-snapshot", master, conf, connect) as (spark, console):
        from airflow_cdc.pipeline.repair.confirm_snapshot import SnapshotConfirmation
        from airflow_cdc.pipeline.repair.confirm_snapshot import confirm_snapshot as confirm

        report = confirm(SnapshotConfirmation(spark, lake, flow, choice, position, settings, progress_on(console)))
        if as_json:
            print_json(report.to_json())
        print_errors(console, report)
        if not report.ok:
            raise typer.Exit(EXIT_FAILED)
        if not as_json:
            deleted = sum(outcome.rows.deleted for outcome in report.flows)
            stdout_console().print(_done(choice, deleted, lake, flow), markup=False, highlight=False, soft_wrap=True)


def _choice(*, replace: bool, keep: bool) -> SnapshotChoice | None:
    if replace and keep:
        raise ConfigurationError("--replace and --keep exclude each other.", next_step="Give one of them, or none to list the snapshots.")
    return SnapshotChoice.REPLACE if replace else SnapshotChoice.KEEP if keep else None


def _done(choice: SnapshotChoice, deleted: int, lake: str, flow: str) -> str:
    if choice is SnapshotChoice.KEEP:
        return f"{flow}: the rows that the snapshot did not find are kept"
    checkpoint = known_flow(lake, flow).checkpoint()
    waiting = [each for each in checkpoint.known_snapshots.values() if each.decision is choice and each.cut is None]
    if waiting:
        return f"{flow}: rows go once the snapshot is proven to be whole; {_lacks(waiting[-1], checkpoint)}"
    return f"{flow}: {deleted} rows removed that the snapshot did not find"


def _list(lake: str, flow: str, *, as_json: bool) -> None:
    with usage():
        checkpoint = known_flow(lake, flow).checkpoint()
    facts = [_facts(snapshot, checkpoint) for snapshot in checkpoint.undecided_snapshots]
    if as_json:
        print_json({"flow": flow, "snapshots": facts})
        return
    named, columns = (
        ("position", "kind", "reads", "rows_unconfirmed"),
        ("position", "kind", "reads", "rows unconfirmed", "partitions", "proof"),
    )
    rows = [[*(each[name] for name in named), _lines(each["lanes"]), each["proof"]] for each in facts]
    stdout_console().print(table(f"Snapshots of {flow} without a decision", columns, rows, right=("reads", "rows unconfirmed")))


def _facts(snapshot: Snapshot, checkpoint: FlowCheckpoint) -> dict[str, Any]:
    lanes = {lane: [snapshot.begins.get(lane), last] for lane, last in sorted(snapshot.last_offsets.items())}
    return {
        "position": str(snapshot.position),
        "kind": "initial" if snapshot.is_initial else "blocking, ad-hoc or not recognised",
        "reads": snapshot.reads,
        "rows_unconfirmed": snapshot.unconfirmed,
        "lanes": lanes,
        "proof": snapshot.doubt or _lacks(snapshot, checkpoint),
    }


def _lacks(snapshot: Snapshot, checkpoint: FlowCheckpoint) -> str:
    """Return what the snapshot lacks to be proven, as far as the last microbatch with reads of it knew."""
    if not snapshot.is_complete:
        return "its last read is not applied yet"
    lanes = sorted(snapshot.lacks(checkpoint.reach.partitions))
    return f"no event behind it yet in {', '.join(map(_lane, lanes))}" if lanes else "whole"


def _lane(lane: str) -> str:
    return "a partition that the archive does not record" if lane == UNKNOWN_PARTITION else lane_text(int(lane))


def _lines(lanes: dict[str, list[int | None]]) -> str:
    return "\n".join(f"{_lane(lane)}: offsets {first}–{last}" for lane, (first, last) in lanes.items())
