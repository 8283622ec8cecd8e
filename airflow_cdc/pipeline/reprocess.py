"""Reprocess: read again what a flow has applied of a range, and give its live table what it lacks."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.model.as_of import AsOf
from airflow_cdc.model.errors import ConcurrentRunError, ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow import CdcFlow
from airflow_cdc.model.lake import ArchiveState, FlowState
from airflow_cdc.model.outcome import ApplyReport
from airflow_cdc.model.places import quarantine_uri
from airflow_cdc.model.report import BatchReport, RowCounts
from airflow_cdc.model.table_mode import TableMode
from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.apply_multiset import apply_rows
from airflow_cdc.pipeline.archive_run import ArchiveRun
from airflow_cdc.pipeline.commit_positions import comparable_connector
from airflow_cdc.pipeline.explain_failure import explain_failure
from airflow_cdc.pipeline.find_applied import CommitRange, find_applied
from airflow_cdc.pipeline.find_end import connector_of, connectors_of
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.quarantine import count_replaced
from airflow_cdc.pipeline.schema_changes import SchemaChanges
from airflow_cdc.pipeline.session import session_for_batch
from airflow_cdc.pipeline.storage import file_system


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
    """Position of the first transaction; None: from the beginning."""
    last: AsOf | None = None
    """Position of the last transaction; None: to the end of what is applied."""
    dry_run: bool = False
    """Whether to tell only what would become of the rows."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as the flow's runs have them."""
    progress: Callable[[str], None] = lambda line: None
    """Told what happens, a line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Told the name of each effect when it is done; tests crash there."""
    files: frozenset[str] | None = None
    """Paths of the only files to read; None: all of the range."""


@dataclass(frozen=True)
class Reprocessed:
    """What was found, and what was done about it."""

    found: BatchReport
    """What a microbatch of the range would do, really reconciled, guarded and joined with the target; ``events.stale`` are the changes
    that are older than the row or its delete marker."""
    report: ApplyReport | None = None
    """What was done; None after a dry run, and where no row was to be changed."""


def reprocess(order: Reprocessing) -> Reprocessed:
    """Put the applied events of a range through the guarded path once more: rows that are right stay, what they lack comes back.

    It looks first, as a dry run does, and writes an intent only where a row is to be changed, or where fewer records are rejected than
    the quarantine has of these files: one that cannot be done would stand in the flow's way. From there on it is a microbatch like any
    other, which the next run takes up after a crash.

    :raises ConfigurationError: when the lake has applied nothing of the flow, its table keeps history, or its events do not spell positions
        so.
    :raises ConcurrentRunError: when a microbatch of the flow is planned and not done.
    :raises CdcError: when the range cannot be read or merged; nothing was changed.
    """
    run = ArchiveRun(
        order.spark,
        absolute_uri(order.archive),
        absolute_uri(order.lake),
        order.flows,
        (glob.escape(order.flow),),
        order.progress,
        order.after_effect,
        only_planned=True,
    )
    fs, root = file_system(run.lake)
    state, flow = ArchiveState(fs, root, run.archive), FlowState(fs, root, order.flow)
    checkpoint = flow.checkpoint()
    settings = order.flows.get(order.flow, CdcFlow(order.flow))
    if settings.mode is not TableMode.CURRENT:
        raise ConfigurationError(
            f"Flow {order.flow}: its table keeps history ({settings.mode.value}); only tables of rows as they are can be reprocessed.",
            next_step="Rebuild the flow in a lake of its own (`airflow-cdc rebuild`) and compare.",
        )
    within = _range(order, state)
    number = checkpoint.number + 1
    if flow.intent(number):
        raise ConcurrentRunError(
            f"Flow {order.flow}: microbatch {number} is planned and not done; another run may be at it.",
            next_step="Let it end, or take it up with `airflow-cdc apply`; then reprocess again.",
        )
    try:
        microbatch = find_applied(order.spark, state, flow, checkpoint, within)
        if microbatch is None:
            return Reprocessed(BatchReport(order.flow, number, files=0, bytes=0))
        order.progress(f"{order.flow}: looking into {len(microbatch.files)} applied files")
        session = session_for_batch(order.spark, batch_bytes=microbatch.text_size)
        application = f"{order.flow}:{flow.incarnation()}"
        changes_of = SchemaChanges(order.spark, state, state.ledger()).of
        attempt = MicrobatchRun(session, run.lake, settings, application, checkpoint, microbatch, flow, changes_of=changes_of, is_dry=True)
        found = apply_rows(attempt)
    except PySparkException as problem:
        raise explain_failure(flow, number, problem) from problem
    set_aside = count_replaced(order.spark, attempt.state(quarantine_uri), microbatch, flow)
    if order.dry_run or (found.rows == RowCounts() and found.events.rejected >= set_aside):
        return Reprocessed(found)
    if not flow.write_intent(microbatch):
        raise ConcurrentRunError(
            f"Flow {order.flow}: another run planned microbatch {number} first.", next_step="Nothing is lost; run again."
        )
    return Reprocessed(found, apply_archive(run))


def _range(order: Reprocessing, state: ArchiveState) -> CommitRange:
    ledger = state.ledger()
    if order.flow not in ledger.topics:
        raise ConfigurationError(
            f"Lake {order.lake} knows no flow {order.flow} of archive {order.archive}; its flows are {ledger.tables()}.",
            next_step="Correct the flow's name or the roots; a flow is reprocessed after it was applied.",
        )
    connectors = connectors_of(state.surveys(ledger.topics[order.flow], ledger.surveyed_through), order.flow)
    if order.first is None and order.last is None:
        return CommitRange(comparable_connector(connectors), files=order.files)
    connector = connector_of(connectors, order.flow)
    first, last = (bound.commit(connector, order.flow) if bound else None for bound in (order.first, order.last))
    if first is not None and last is not None and first > last:
        raise ConfigurationError(
            f"Flow {order.flow}: the range from commit position {first} to {last} is empty.",
            next_step="Give the lower position first.",
        )
    return CommitRange(connector, first, None if last is None else last + 1, order.files)
