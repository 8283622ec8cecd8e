"""``airflow-cdc explain``: what a flow's next microbatch would do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_cdc.cli_common import AsJson, Flow, FlowsFile, Lake, usage
from airflow_cdc.console import print_json, stdout_console
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.files import absolute_uri

if TYPE_CHECKING:
    from airflow_cdc.pipeline.look.explain_flow import ExplainedPlan, FlowExplained

_MOST_FILES = 10
_OnlyArchive = Annotated[
    str | None,
    typer.Option(
        "--archive",
        help="Root URI of one archive; none: each that holds the flow.",
        show_default=False,
        callback=lambda uri: uri and absolute_uri(uri),
    ),
]


def explain(flow: Flow, lake: Lake, flows: FlowsFile = None, archive: _OnlyArchive = None, as_json: AsJson = False) -> None:
    """Show what a flow's next microbatch would do and why: files, events, table, engine, what waits, who writes. Starts no JVM.

    Exit code 0 when it succeeded, 1 when the state cannot be read, 2 on usage and for a flow that the lake does not know.
    """
    from airflow_cdc.pipeline.look.explain_flow import explain_flow

    with usage():
        found = explain_flow(lake, flow, read_flows(flows), archive)
    if as_json:
        print_json(found.to_json())
        return
    for line in _lines(found):
        stdout_console().print(printable(line), markup=False, highlight=False, soft_wrap=True)


def _lines(found: FlowExplained) -> Iterator[str]:
    yield f"{found.flow}: {found.applied} microbatches are committed"
    yield f"table: {found.table}, keeps {found.mode} ({found.mode_reason})"
    yield f"lease: {found.lease or 'nobody writes the flow'}"
    if found.last_engine:
        reason = f" ({found.last_engine_reason})" if found.last_engine_reason else ""
        yield f"last microbatch: engine {found.last_engine}{reason}, plan {found.last_merge_plan}"
    if found.undecided_snapshots:
        yield f"snapshots: {found.undecided_snapshots} await a decision (airflow-cdc confirm-snapshot)"
    for plan in found.plans:
        yield from _of_archive(plan)
    yield "only the run shows:"
    yield from (f"  {line}" for line in found.only_the_run_shows)


def _of_archive(plan: ExplainedPlan) -> Iterator[str]:
    yield f"archive {plan.archive}:"
    if plan.files:
        how = "is planned and not committed: the next run takes it up" if plan.is_planned else "would be next"
        kinds = " ".join(f"{kind}:{count}" for kind, count in plan.records.items())
        yield f"  microbatch {plan.number} {how}"
        yield f"  {len(plan.files):,} files, {plan.bytes:,} bytes, {sum(plan.records.values()):,} records ({kinds})"
        yield from (f"    {path}" for path in plan.files[:_MOST_FILES])
        if len(plan.files) > _MOST_FILES:
            yield f"    {len(plan.files) - _MOST_FILES:,} more"
        yield f"  engine: {plan.engine}: {plan.engine_reason}"
    else:
        yield "  nothing is ready to be applied"
    yield f"  pending: {plan.pending_files:,} surveyed files, {plan.pending_bytes:,} bytes"
    unsurveyed = (
        "the archive cannot be listed from here" if plan.unsurveyed_files is None else f"{plan.unsurveyed_files:,} files, of any topic"
    )
    yield f"  not surveyed yet: {unsurveyed}"
    for what, paths in (("a transaction", plan.waits_for_transaction), ("missing offsets", plan.waits_for_offsets)):
        if paths:
            yield f"  waiting for {what}: {len(paths):,} files, the first is {paths[0]}"
    yield from (f"  gap: {gap}" for gap in plan.gaps[:_MOST_FILES])
    yield from (f"  set aside: {path}" for path in plan.unreadable_files[:_MOST_FILES])
    if plan.stops:
        yield f"  the next run would stop the flow: {plan.stops}"
