"""Apply many small flows in the tasks of one Spark job: where Spark has a cluster, its executors carry what the driver would do one by one.

A task does for its flows what the driver does, natively: it takes the lease, plans, merges and records, so that a task that is tried again
goes on where the first one ended. A flow that needs Spark ends before that microbatch is written, and the driver goes on with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import DEFAULT_ENGINE, Engine
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.pipeline.apply.native.handed_over import NATIVE_MODES
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.end_together import Together
from airflow_cdc.pipeline.run.flow_run import FlowRun
from airflow_cdc.pipeline.run.step import FAILED, Step
from airflow_cdc.pipeline.spark.late_session import late_session, started
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.task_job import TasksFailedError, call_in_tasks, has_cluster
from airflow_cdc.pipeline.survey.source_facts import facts_of

FROM_FLOWS = 16
"""Flows from which a job for all of them costs less than it spares."""
_MOST_TEXT_BYTES = 256 * 1024**2
"""Pending text of a flow that is small."""
_FLOWS_OF_TASK = 8
"""Each task reads the archive's surveys once."""


@dataclass(frozen=True)
class Applied:
    """What tasks did for a flow."""

    flow: FlowRun
    before: int
    """Number of the last microbatch before."""
    outcome: FlowOutcome | None = None
    """None where the driver has to go on."""

    def finish(self) -> FlowOutcome:
        """Return the flow's outcome; applies what is left."""
        state = self.flow.state
        done = range(self.before + 1, state.checkpoint().number + 1)
        if self.outcome and len(self.outcome.batches) == len(done):
            return self.outcome
        # A task that is tried again does not know what it did the first time; the flow's state does.
        reports = [report for number in done if (report := state.report(number))]
        return self.flow.apply(before=reports)


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What the tasks need of a run."""

    archive: str
    lake: str
    groups: Sequence[Sequence[str]]
    """Names of flows."""
    flows: Mapping[str, CdcFlow]
    interval: Interval
    engine: Engine | None
    wait_seconds: float


def apply_in_tasks(run: ArchiveRun, flows: Sequence[FlowRun]) -> dict[str, Applied]:
    """Return by flow what tasks did; nothing where there are few small flows, or no cluster."""
    if run.consistent or run.end_of or run.lease or run.only_planned or len(flows) < FROM_FLOWS or not has_cluster(run.spark):
        return {}
    applied = {flow.flow.name: Applied(flow, flow.state.checkpoint().number) for flow in flows if _is_small(flow)}
    if len(applied) < FROM_FLOWS:
        return {}
    small = list(applied)
    work = _Work(
        archive=run.archive,
        lake=run.lake,
        groups=[small[first : first + _FLOWS_OF_TASK] for first in range(0, len(small), _FLOWS_OF_TASK)],
        flows=run.flows,
        interval=run.interval,
        engine=run.engine,
        wait_seconds=run.wait_seconds,
    )
    run.progress(f"{len(small)} flows are applied by {len(work.groups)} tasks")
    try:
        found = call_in_tasks(started(run.spark), partial(_apply_group, work), len(work.groups))
    except TasksFailedError as error:
        run.progress(f"the tasks cannot apply flows: {error}")
        return applied
    for each in found:
        for line in each["lines"]:
            run.progress(line)
        for step in each["steps"]:
            run.watch(Step(**step))
        if each["outcome"]:
            name = each["flow"]
            applied[name] = replace(applied[name], outcome=FlowOutcome.from_json(each["outcome"]))
    return applied


def _is_small(flow: FlowRun) -> bool:
    settings = flow.flow
    is_native = (settings.engine or DEFAULT_ENGINE) is not Engine.SPARK and settings.mode in NATIVE_MODES
    if not is_native or settings.catalog_table:
        return False
    try:
        return 0 < flow.pending_text() <= _MOST_TEXT_BYTES
    except (CdcError, OSError):
        # Its own outcome will tell.
        return False


class _NeedsSparkError(Exception):
    """Raised where a task's flow would start Spark."""


@dataclass
class _Refusal:
    """Stands for the start of Spark in a task."""

    asked: bool = False

    def start(self) -> SparkSession:
        self.asked = True
        raise _NeedsSparkError("Spark is not started in a task.")


@dataclass
class _Told:
    """What a task's flow reports on the way."""

    lines: list[str] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


def _apply_group(work: _Work, number: int) -> Iterator[dict[str, Any]]:
    """Apply a group of flows; runs in a task."""
    lake_fs, lake_root = file_system(work.lake)
    state = ArchiveState(lake_fs, lake_root, work.archive)
    ledger = state.ledger()
    for name in work.groups[number]:
        refusal, told = _Refusal(), _Told()
        spark = late_session(refusal.start)
        run = ArchiveRun(
            spark,
            work.archive,
            work.lake,
            flows=work.flows,
            progress=told.lines.append,
            interval=work.interval,
            wait_seconds=work.wait_seconds,
            engine=work.engine,
            watch=told.steps.append,
        )
        flow = FlowRun(
            run,
            state,
            ledger,
            FlowState(lake_fs, lake_root, name),
            lake_fs,
            lake_root,
            facts_of(spark, state, ledger, work.lake),
            Together(),
        )
        outcome = flow.apply()
        yield {
            "flow": name,
            "outcome": None if refusal.asked else outcome.to_json(),
            # What failed for want of Spark is no failure.
            "lines": [line for line in told.lines if not refusal.asked or ": FAILED: " not in line],
            "steps": [asdict(step) for step in told.steps if not refusal.asked or step.stage != FAILED],
        }
