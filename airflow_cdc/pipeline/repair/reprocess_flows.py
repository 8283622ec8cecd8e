"""Reprocess flows, or replay their quarantines, each on its own, in one Spark application."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.as_of import AsOf, check_range
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport, check_reasons
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.lease import WAIT_SECONDS
from airflow_cdc.pipeline.repair.replay_quarantine import replay_quarantine
from airflow_cdc.pipeline.repair.reprocess import Reprocessed, Reprocessing, reprocess
from airflow_cdc.pipeline.run.select_flows import select_flows
from airflow_cdc.pipeline.spark.spark_errors import unforeseen
from airflow_cdc.pipeline.spark.storage import file_system

_SIDE_BY_SIDE = 2


@dataclass(frozen=True)
class FlowsAgain:
    """Which flows to read again, which range, and whether to change anything."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the lake's root."""
    tables: tuple[str, ...] = ()
    """Globs of flow names, each of which must match; empty: all."""
    first: AsOf | None = None
    last: AsOf | None = None
    """The range, as in :class:`airflow_cdc.pipeline.repair.reprocess.Reprocessing`; ignored by a replay."""
    dry_run: bool = False
    """Whether to report only what would change."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as in the flows' runs."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes a flow."""


def reprocess_flows(run: FlowsAgain) -> ReprocessReport:
    """Reprocess a range of flows; a flow that fails does not stop the others. A repetition does what is left.

    :raises ConfigurationError: when a glob matches no flow, or the range ends before it begins.
    """
    check_range(run.first, run.last)
    return _each(run, reprocess)


def replay_flows(run: FlowsAgain, reasons: Collection[str] = ()) -> ReprocessReport:
    """Replay the quarantines of flows; a flow that fails does not stop the others. A repetition does what is left.

    :param reasons: as in :func:`airflow_cdc.pipeline.repair.replay_quarantine.replay_quarantine`.
    :raises ConfigurationError: when a glob matches no flow, or a reason is unknown.
    """
    check_reasons(reasons)
    return _each(run, lambda order: replay_quarantine(order, reasons).again, and_held=True)


def _each(run: FlowsAgain, work: Callable[[Reprocessing], Reprocessed | None], *, and_held: bool = False) -> ReprocessReport:
    archive, lake = absolute_uri(run.archive), absolute_uri(run.lake)
    # A topic that was held and has been declared since is a flow that has applied nothing yet.
    declared = run.flows if and_held else ()
    names = select_flows(ArchiveState(*file_system(lake), archive), lake, run.tables, declared)

    def one(name: str) -> FlowReprocess:
        try:
            order = Reprocessing(run.spark, archive, lake, name, run.first, run.last, run.dry_run, run.flows, run.progress)
            outcome = _outcome(name, work(replace(order, wait_seconds=run.wait_seconds)))
        except CdcError as problem:
            outcome = FlowReprocess(name, error=problem.to_json())
        except Exception as problem:  # noqa: BLE001 - one flow's trouble, whatever it is, must not stop the others.
            outcome = FlowReprocess(name, error=unexpected_error(name, problem).to_json())
        for line in outcome.lines():
            run.progress(line)
        return outcome

    with ThreadPoolExecutor(max(1, min(_SIDE_BY_SIDE, len(names)))) as pool:
        return ReprocessReport(archive, lake, run.dry_run, tuple(pool.map(one, names)))


def _outcome(name: str, again: Reprocessed | None) -> FlowReprocess:
    if again is None:
        return FlowReprocess(name)
    flows = again.report.flows if again.report else ()
    done = tuple(batch for flow in flows for batch in flow.batches)
    error = next((flow.error for flow in flows if flow.error), None)
    return FlowReprocess(name, again.found, done, error)


def unexpected_error(name: str, problem: Exception) -> CdcError:
    """Return an unexpected failure of reprocessing a flow as an error of ours."""
    next_step = "See the job's log; nothing is lost, a retry does what is left."
    return unforeseen(problem, f"Flow {name} could not be read again", next_step)
