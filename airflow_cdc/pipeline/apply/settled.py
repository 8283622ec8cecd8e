"""A mode's result for a microbatch, and its remaining steps: the same for each mode, in the order of ``apply_microbatch``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from airflow_cdc.model.archive.completeness import ArchivedOffsets
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined, quarantine_rejects
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots
from airflow_cdc.pipeline.microbatch.count_events import Counted, Staged
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.settle.plan_decoding import look_at_updates, plan_decoding
from airflow_cdc.pipeline.target.target_table import TargetTable

LATE_PLAN = "guarded merge: late events"
"""Merge plan where some events met newer ones of their keys, or ones of their own transaction."""
ALL_STALE = "nothing to merge: every event is stale"
"""Merge plan where nothing was news."""


def without_stale(report: BatchReport, stale: int) -> BatchReport:
    """Return a report with so many merged events counted as stale."""
    if not stale:
        return report
    events = replace(report.events, merged=report.events.merged - stale, stale=report.events.stale + stale)
    return replace(report, events=events, merge_plan=LATE_PLAN)


EXPECTED = "expected"
"""Member of a commit's metadata: what :func:`rows_not_found` compares its rows with."""


def rows_not_found(rows: RowCounts, *, to_delete: int, to_insert: int) -> int:
    """Return at least how many rows events should have found and did not.

    :param rows: what the merge did.
    :param to_delete: deletes whose row was there before the microbatch, if the table equals the source.
    :param to_insert: upserts that need no row.
    """
    return max(0, to_delete - rows.deleted) + max(0, rows.inserted - to_insert)


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What remains after the log step: one Delta commit, or nothing."""

    report: BatchReport
    merge: Callable[[], BatchReport] | None = None
    """Makes the commit and returns the report that it carries. None: nothing to commit."""
    effect: str = "merge"
    """The commit's name as an effect."""


@dataclass(frozen=True, kw_only=True)
class Settled(ABC):
    """A microbatch before anything outside the staging folder is touched."""

    run: MicrobatchRun
    """Includes the epochs of the source's log that begin in it."""
    target: TargetTable | None
    """The target before the microbatch; None where it does not exist."""

    def quarantine(self) -> Quarantined:
        """Quarantine the rejects; there are none if no file is read."""
        return Quarantined()

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Create or widen the target; unchanged if no file is read."""
        return self.target, ColumnsChanged()

    @abstractmethod
    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as known before the log step."""

    @abstractmethod
    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Write the event log, or the delete markers.

        :param target: as it is now.
        """


@dataclass(frozen=True, kw_only=True)
class SettledEvents(Settled):
    """A microbatch whose files were read."""

    decoder: Decoder
    tables: PhysicalTables
    """The source's tables that the topic holds."""
    counted: Counted
    snapshots: Snapshots
    """The flow's snapshots, as known now."""

    @property
    @abstractmethod
    def taken(self) -> int:
        """Number of events taken in; all others are rejects."""

    def quarantine(self) -> Quarantined:
        """Quarantine the rejects; costs a second pass over the archived files, made only where there are any."""
        return quarantine_rejects(self.run, self.decoder, self.counted.surveyed, taken=self.taken)

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Create the target, or add and widen the columns that the events need."""
        return fit_table(self.run, self.decoder, self.target)

    def report_of_events(self, events: EventCounts, rejects: Mapping[str, int], changed: ColumnsChanged) -> BatchReport:
        """Return the part of the report that all modes share: event counts, the reach of the events, and column changes."""
        staged, microbatch = self.counted.staged, self.run.microbatch
        return BatchReport(
            flow=self.run.flow.name,
            microbatch=microbatch.number,
            files=len(microbatch.files),
            bytes=microbatch.size,
            events=events,
            rejects=dict(rejects),
            applied_through=staged.last,
            committed_through=staged.committed_through,
            reach=staged.reach,
            snapshot=self.snapshots.newest,
            epochs=self.run.epochs,
            updates_without_old_key=self.decoder.updates_without_old_key,
            order_conflicts=staged.conflicts,
            columns_added=changed.added,
            columns_widened=changed.widened,
            columns_as_text=changed.as_text,
            columns_filled=changed.filled,
            misfits=changed.misfits,
            types=dict(changed.types),
            engine_reason=self.run.engine_reason,
        )


def decoder_of(run: MicrobatchRun, target: TargetTable | None) -> Decoder:
    """Return the microbatch's decoder. Runs a job where the flow's keys are not the records'."""
    return look_at_updates(run.spark, planned_decoder(run, target), run.microbatch)


def planned_decoder(run: MicrobatchRun, target: TargetTable | None) -> Decoder:
    """Return the microbatch's decoder before a look at its updates."""
    return plan_decoding(run.spark, run.flow, run.microbatch, target=target, facts=run.facts, epochs=run.epochs)


def may_meet_markers(run: MicrobatchRun, staged: Staged, *, has_reads: bool) -> bool:
    """Return whether a delete marker may stand at or after an event: a marker stands at an event that was applied.

    :param has_reads: whether some events are snapshot reads, whose positions do not compare with all others.
    """
    reach, applied = staged.reach, run.checkpoint.reach
    return has_reads or run.microbatch.is_again or not reach.follows(applied) or reach.shares_transaction(applied)


def may_have_been_applied(run: MicrobatchRun) -> bool:
    """Return whether the microbatch may hold events that were applied before: copies, files that grew, records without offsets.

    They may be older than any marker is kept: then the expired ones are asked too.
    """
    microbatch = run.microbatch
    applied = run.checkpoint.offsets.get(microbatch.archive, ArchivedOffsets())
    return microbatch.is_again or microbatch.has_unnumbered or bool(applied.overlaps(microbatch.offsets))


def may_repeat(run: MicrobatchRun, target: TargetTable | None, staged: Staged) -> bool:
    """Return whether a log of events may hold some of the microbatch's.

    :param target: the target before the microbatch.
    """
    if target is None:
        return False
    # A table without a checkpoint was filled by another writer, or its state was lost.
    unknown_history = not run.checkpoint.reach.partitions and target.size > 0
    return unknown_history or staged.reach.may_repeat(run.checkpoint.reach)
