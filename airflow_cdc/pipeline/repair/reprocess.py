"""Reprocess: read again a range of what a flow has applied, and restore what its live table lacks."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConcurrentRunError, ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.model.position.as_of import AsOf
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.batch_report import BatchReport, RowCounts
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import WAIT_SECONDS, Lease, Leases
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.apply.apply_microbatch import apply_microbatch
from airflow_cdc.pipeline.locate.find_applied import find_applied, known_epochs
from airflow_cdc.pipeline.locate.find_range import find_range
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.quarantine import count_replaced
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.check_state import StateCheck
from airflow_cdc.pipeline.run.explain_failure import explain_failure
from airflow_cdc.pipeline.run.select_flows import check_known
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.source_facts import facts_of


@dataclass(frozen=True)
class Reprocessing:
    """What to read again, and whether to change anything."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the lake's root."""
    flow: str
    """Name of the flow."""
    first: AsOf | None = None
    """Position of the first transaction, or a time; None: from the beginning."""
    last: AsOf | None = None
    """Position of the last transaction, or a time; None: to the end of what is applied."""
    dry_run: bool = False
    """Whether to report only what would change."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as in the flow's runs."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Receives the name of each effect once it is done; tests crash there."""
    files: frozenset[str] | None = None
    """Paths of the only files to read; None: all of the range."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes the flow."""


@dataclass(frozen=True)
class Reprocessed:
    """Result of reprocessing: what was found, and what was done."""

    found: BatchReport
    """What a microbatch of the range would do: fully reconciled, guarded and joined with the target. ``events.stale`` are changes older
    than the row or its delete marker."""
    report: ApplyReport | None = None
    """What was done; None after a dry run, and if no row had to change."""


def reprocess(order: Reprocessing) -> Reprocessed:
    """Apply the events of a range again through the guarded path: correct rows stay, missing changes are restored.

    It starts with a dry run. It writes an intent only if a row is to change, or if fewer records are rejected than the quarantine has of
    these files: an intent that cannot be carried out would block the flow. From then on it is a microbatch like any other. After a crash
    it is resumed by the next run, or by the next reprocessing that is not a dry run, before its own search.

    :raises ConfigurationError: when the lake has applied nothing of the flow, its table keeps history, or its events have no positions of
        the given form.
    :raises ConcurrentRunError: when another run is writing the flow, or a microbatch of new files is planned and not done; in a dry run,
        any microbatch.
    :raises CdcError: when the range cannot be read or merged; nothing was changed.
    """
    if order.dry_run:
        return _reprocess(order, None)
    fs, root = file_system(absolute_uri(order.lake))
    check_known(ArchiveState(fs, root, absolute_uri(order.archive)), order.lake, order.flow)
    with Leases(fs, root, order.wait_seconds, progress=order.progress).hold(order.flow) as lease:
        return _reprocess(order, lease)


def _reprocess(order: Reprocessing, lease: Lease | None) -> Reprocessed:
    run = ArchiveRun(
        order.spark,
        absolute_uri(order.archive),
        absolute_uri(order.lake),
        order.flows,
        (glob.escape(order.flow),),
        order.progress,
        order.after_effect,
        lease=lease,
        only_planned=True,
    )
    fs, root = file_system(run.lake)
    state, flow = ArchiveState(fs, root, run.archive), FlowState(fs, root, order.flow)
    settings = settings_of(order.flows, order.flow)
    if settings.mode is not TableMode.CURRENT:
        raise ConfigurationError(
            f"Flow {order.flow}: its table keeps history ({settings.mode.value}); only tables of rows as they are can be reprocessed.",
            next_step="Rebuild the flow in a lake of its own (`airflow-cdc rebuild`) and compare.",
        )
    check_known(state, run.lake, order.flow)
    taken_up = _take_up(order, run, flow)
    number = flow.checkpoint().number + 1
    if taken_up and not taken_up.ok:
        return Reprocessed(BatchReport(order.flow, number, files=0, bytes=0), taken_up)
    try:
        found = _look(order, run, state, flow, settings)
    except SPARK_ERRORS as problem:
        raise explain_failure(flow, number, problem, archive=run.archive) from problem
    if found.microbatch is None or order.dry_run:
        return Reprocessed(found.report, taken_up)
    if lease:
        lease.check()
    if not flow.write_intent(found.microbatch):
        raise ConcurrentRunError(
            f"Flow {order.flow}: another run planned microbatch {number} first.", next_step="Nothing is lost; run again."
        )
    return Reprocessed(found.report, _joined(taken_up, apply_archive(run)))


def _take_up(order: Reprocessing, run: ArchiveRun, flow: FlowState) -> ApplyReport | None:
    """Finish an earlier, interrupted reprocessing: a retried task would otherwise wait for the flow's next run."""
    number = flow.checkpoint().number + 1
    planned = flow.intent(number)
    if planned is None:
        return None
    if planned.is_again and not order.dry_run:
        return apply_archive(run)
    raise ConcurrentRunError(
        f"Flow {order.flow}: microbatch {number} is planned and not done; another run may be at it.",
        next_step="Let it end, or take it up with `airflow-cdc apply`; then reprocess again.",
    )


def _joined(earlier: ApplyReport | None, report: ApplyReport) -> ApplyReport:
    if earlier is None:
        return report
    batches = tuple(batch for flow in earlier.flows for batch in flow.batches)
    return replace(report, flows=tuple(replace(flow, batches=(*batches, *flow.batches)) for flow in report.flows))


@dataclass(frozen=True)
class _Found:
    report: BatchReport
    microbatch: Microbatch | None = None
    """None where there is nothing to do."""


def _look(order: Reprocessing, run: ArchiveRun, state: ArchiveState, flow: FlowState, settings: CdcFlow) -> _Found:
    """Return what there is to do in the range; writes nothing."""
    checkpoint = flow.checkpoint()
    StateCheck(order.spark, run.lake, settings, flow).before(checkpoint, repairs=True)
    applied = known_epochs(flow, checkpoint, state.archive)
    within = find_range(order.spark, state, order.flow, order.first, order.last, applied=applied)
    microbatch = find_applied(order.spark, state, flow, checkpoint, replace(within, files=order.files)) if within else None
    if microbatch is None:
        return _Found(BatchReport(order.flow, checkpoint.number + 1, files=0, bytes=0))
    order.progress(f"{order.flow}: looking into {len(microbatch.files)} applied files")
    session = session_for_batch(order.spark, batch_bytes=microbatch.text_size)
    attempt = MicrobatchRun(
        spark=session,
        lake=run.lake,
        flow=settings,
        application=f"{order.flow}:{flow.incarnation()}",
        checkpoint=checkpoint,
        microbatch=microbatch,
        past=flow,
        facts=facts_of(order.spark, state, state.ledger(), run.lake),
        is_dry=True,
    )
    report = apply_microbatch(attempt)
    set_aside = count_replaced(order.spark, attempt.state(quarantine_uri), microbatch, flow)
    is_right = report.rows == RowCounts() and report.events.rejected >= set_aside
    return _Found(report, None if is_right else microbatch)
