"""Stage events: the good events of a microbatch, each once, for a table that keeps all events, in itself or in a log beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH, OFFSET, OP, PARTITION, POSITION, SNAPSHOT, TABLE
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.flow.policies import OnSnapshot
from airflow_cdc.model.operation import Operation
from airflow_cdc.model.places import events_uri
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged
from airflow_cdc.pipeline.apply.known_snapshots import SnapshotFrames, find_known_snapshots
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.settled import SettledEvents, may_repeat
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_epochs import find_epochs, may_have_fallen
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots
from airflow_cdc.pipeline.microbatch.count_events import (
    TABLE_OF_EVENT,
    Counted,
    count_staged,
    count_surveyed,
    find_truncates,
)
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import READS, REDELIVERED, read_columns, read_place
from airflow_cdc.pipeline.record.change_log import flag_events, good_events
from airflow_cdc.pipeline.record.event_log import read_log
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.target_table import TargetTable

S = TypeVar("S", bound=SettledEvents)
Sieve = Callable[[DataFrame], tuple[DataFrame, int]]
"""From events to those not known yet, and the number that count as new."""


@dataclass(frozen=True, kw_only=True)
class NewEvents:
    """The events of a microbatch that are not known yet."""

    events: Any
    """Frame, including the columns of :func:`~airflow_cdc.pipeline.record.change_log.flag_events`; by the native engine an Arrow table."""
    stale: int = 0
    """Number of known events left out."""
    late: bool = False
    """Whether events newer than the microbatch may have been applied."""


@dataclass(frozen=True, kw_only=True)
class KeptEvents(SettledEvents):
    """A microbatch whose events are all kept, in the table or in a log beside it."""

    new: NewEvents

    @property
    def taken(self) -> int:
        """Number of good events, plus the truncates that the flow's policy ignores."""
        return self.counted.staged.events + self.counted.truncates.ignored

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report: every new event counts as merged."""
        surveyed, staged = quarantined.surveyed, self.counted.staged
        events = EventCounts(
            read=surveyed.read,
            merged=staged.events - staged.redelivered - self.new.stale,
            redelivered=staged.redelivered,
            stale=self.new.stale,
            tombstones=surveyed.tombstones,
            control=surveyed.control + self.counted.truncates.ignored,
            rejected=quarantined.count,
        )
        report = self.report_of_events(events, quarantined.rejects, changed)
        return replace(report, pending_snapshots=self.run.checkpoint.pending_snapshots)


@dataclass(frozen=True, kw_only=True)
class StagedEvents:
    """The good events of a microbatch, materialized and counted."""

    events: DataFrame
    """Without redelivered copies, including the columns of :func:`~airflow_cdc.pipeline.record.change_log.flag_events`."""
    counted: Counted
    all_events: DataFrame
    """All events, including copies and rejects."""


def settle_epochs(run: MicrobatchRun, settle: Callable[[MicrobatchRun], S | Epochs]) -> S:
    """Settle a microbatch; starts over with each epoch that is found to begin in it."""
    while isinstance(settled := settle(run), Epochs):
        run = replace(run, found_epochs=settled)
    return settled


def stage_events(
    run: MicrobatchRun,
    decoder: Decoder,
    events: DataFrame,
    *,
    tables: PhysicalTables,
    keeps_truncates: bool,
    keys: Sequence[str] | None = None,
) -> StagedEvents:
    """Materialize a microbatch's good events and count them.

    :param tables: the source's tables that the topic holds.
    :param keys: columns that, with the position, identify an event; None: the table's keys.
    :param keeps_truncates: whether a truncate, which has no columns, can be stored.
    """
    surveyed = count_surveyed(decoder.shapes)
    whole = decoder.events(run.lines()) if surveyed.truncates else events
    truncates = find_truncates(whole, surveyed, tables, applied={})
    if not keeps_truncates:
        truncates = replace(truncates, ignored=truncates.good)
    applies = truncates.ignored < truncates.good
    good = good_events(events, truncates=applies)
    identity = decoder.columns.keys if keys is None else keys
    if applies and not decoder.without_key:
        good = _with_tables_of_truncates(good, whole)
        # One statement truncates several tables at one position.
        identity = (*identity, TABLE)
    columns = list(decoder.columns.types)
    restarts = decoder.change_restarts
    flagged = flag_events(good, identity, columns=columns, reads_among_changes=surveyed.is_mixed, change_restarts=restarts)
    flagged = run.write_down(flagged, "events")
    staged = count_staged(flagged, cancelled="false", shielded="false", and_hazards=True)
    once = flagged.filter(f"{REDELIVERED} = 0")
    counted = Counted(surveyed=surveyed, truncates=truncates, staged=staged)
    return StagedEvents(events=once, counted=counted, all_events=events)


def _with_tables_of_truncates(good: DataFrame, whole: DataFrame) -> DataFrame:
    """Return good events with :data:`~airflow_cdc.model.columns.TABLE`: the table that a truncate names; NULL for other events.

    :param whole: all events, with the raw text.
    """
    is_truncate = F.col(OP) == Operation.TRUNCATE.value
    named = good_events(whole, truncates=True).filter(is_truncate).withColumn(TABLE, F.expr(TABLE_OF_EVENT))
    rows = good.filter(~is_truncate).withColumn(TABLE, F.lit(None).cast("string"))
    return rows.unionByName(named, allowMissingColumns=True).select(*[sql.name(name) for name in rows.columns])


def watch_snapshots(run: MicrobatchRun, decoder: Decoder, staged: StagedEvents, *, tables: PhysicalTables) -> Snapshots | Epochs:
    """As :func:`settle_snapshots`, where a proven snapshot removes no row: in a change log, and in a table without a key, which is counted
    from a snapshot on, by all known events.

    :raises SnapshotRefusedError: when the flow's policy is to stop.
    """
    policy = run.flow.on_snapshot
    flow = replace(run.flow, on_snapshot=policy if policy is OnSnapshot.STOP else OnSnapshot.KEEP)
    return settle_snapshots(replace(run, flow=flow), decoder, staged, tables=tables)


def settle_snapshots(
    run: MicrobatchRun, decoder: Decoder, staged: StagedEvents, *, tables: PhysicalTables, known: DataFrame | None = None
) -> Snapshots | Epochs:
    """Return the full snapshots; or the epochs, including one that begins in the microbatch, where the source's log went back.

    :param known: rows or events that may be newer than a read.
    """
    reads = staged.events.filter(f"{OP} = 'r' AND {SNAPSHOT} <> 'incremental'")
    keys = [sql.name(key) for key in decoder.columns.keys if key in staged.events.columns]
    # Each read carries the fields of a row change that the search needs.
    newest = F.struct(F.struct(*read_columns()).alias("newest"), read_place().alias("oldest")).alias(READS)
    latest = reads.select(*keys, POSITION, OP, PARTITION, OFFSET, newest) if staged.counted.surveyed.rows else None
    asked = SnapshotFrames(
        run=run,
        decoder=decoder,
        surveyed=staged.counted.surveyed,
        events=staged.all_events,
        tables=tables,
        latest=latest,
        known=known,
    )
    snapshots = find_known_snapshots(asked)
    if (snapshots.fell or may_have_fallen(run, decoder, staged.counted.staged)) and (epochs := find_epochs(run, decoder)):
        return epochs
    return find_known_snapshots(asked, are_copies=True) if snapshots.fell else snapshots


def known_events(run: MicrobatchRun, target: TargetTable | None, *, lost: str, next_step: str) -> DataFrame | None:
    """Return the log of the flow's events from other microbatches, None where it has none yet.

    :param lost: the consequence of a table with rows that has no log, as a phrase of the error.
    :raises StateUnreadableError: when a table with rows has no log.
    """
    log = read_log(run.spark, run.state(events_uri), files_are_in_order=run.flow.files_are_in_order)
    if log is None and target and target.size:
        raise StateUnreadableError(f"Flow {run.flow.name}: table {run.table} {lost} ({run.state(events_uri)}).", next_step=next_step)
    return None if log is None else log.filter(F.col(MICROBATCH) != run.microbatch.number)


def leave_out_known(run: MicrobatchRun, target: TargetTable | None, staged: StagedEvents, *, sieve: Sieve | None) -> NewEvents:
    """Return the events that the table, or its log, does not hold yet; compares only where it may hold some.

    :param sieve: None where no event is known.
    """
    counted = staged.counted.staged
    late = may_repeat(run, target, counted)
    if sieve is None or not late:
        return NewEvents(events=staged.events, late=late)
    events, new = sieve(staged.events)
    return NewEvents(events=events, stale=counted.events - counted.redelivered - new, late=late)
