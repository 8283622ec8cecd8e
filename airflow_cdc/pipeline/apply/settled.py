"""What a mode makes of a microbatch, and the steps that are left: the same for each mode, in the order of ``apply_microbatch``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined, quarantine_rejects
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots
from airflow_cdc.pipeline.microbatch.count_events import Counted, Staged
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.settle.plan_decoding import plan_decoding
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True, kw_only=True)
class Ready:
    """What the log step leaves to do: one Delta commit, or nothing."""

    report: BatchReport
    merge: Callable[[], BatchReport] | None = None
    """Makes the commit and returns the report that it carries. None: nothing is to be committed."""
    effect: str = "merge"
    """Name of the commit as an effect."""


@dataclass(frozen=True, kw_only=True)
class Settled(ABC):
    """A microbatch as it is before anything outside the staging folder is touched."""

    run: MicrobatchRun
    """With the epochs of the source's log that begin in it."""
    target: TargetTable | None
    """As the microbatch finds it; None where there is none."""

    def quarantine(self) -> Quarantined:
        """Set the rejects aside; where no file is read there are none."""
        return Quarantined()

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Make or widen the target; where no file is read it stays as it is."""
        return self.target, ColumnsChanged()

    @abstractmethod
    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as far as it is known before the log step."""

    @abstractmethod
    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Write the log of events, or the delete markers.

        :param target: as it is now.
        """


@dataclass(frozen=True, kw_only=True)
class SettledEvents(Settled):
    """A microbatch of which files were read."""

    decoder: Decoder
    tables: PhysicalTables
    """The source's tables that the topic holds."""
    counted: Counted
    snapshots: Snapshots
    """Those that the flow knows now."""

    @property
    @abstractmethod
    def taken(self) -> int:
        """How many events are taken in: all others are rejects."""

    def quarantine(self) -> Quarantined:
        """Set aside what is not taken in; a second look at the archive, taken only where there is anything."""
        return quarantine_rejects(self.run, self.decoder, self.counted.surveyed, taken=self.taken)

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Make the target, or add and widen columns as the events need it."""
        return fit_table(self.run, self.decoder, self.target)

    def report_of_events(self, events: EventCounts, rejects: Mapping[str, int], changed: ColumnsChanged) -> BatchReport:
        """Return what the report of each mode has: where the events went, how far they reach, and what became of the columns."""
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
            order_conflicts=staged.conflicts,
            columns_added=changed.added,
            columns_widened=changed.widened,
            columns_as_text=changed.as_text,
            columns_filled=changed.filled,
            misfits=changed.misfits,
            types=dict(changed.types),
        )


def decoder_of(run: MicrobatchRun, target: TargetTable | None) -> Decoder:
    """Return how the microbatch's lines are decoded."""
    return plan_decoding(run.spark, run.flow, run.microbatch, target=target, facts=run.facts, epochs=run.epochs)


def may_be_late(run: MicrobatchRun, target: TargetTable | None, staged: Staged) -> bool:
    """Tell whether rows or delete markers newer than the microbatch may exist.

    :param target: as the microbatch finds it.
    """
    if target is None:
        return False
    # A table without checkpoint was filled by somebody else, or its state was lost.
    unknown_history = not run.checkpoint.reach.partitions and target.size > 0
    return unknown_history or staged.reach.may_meet(run.checkpoint.reach)
