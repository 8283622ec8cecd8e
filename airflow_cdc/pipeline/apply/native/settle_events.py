"""Settle a plain microbatch of a change log, and append its events by delta-rs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.policies import OnSnapshot
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.known_snapshots import SnapshotSearch
from airflow_cdc.pipeline.apply.native.all_events import NativeEvents, read_all_events
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver, voids_events
from airflow_cdc.pipeline.apply.native.merge import append_rows, events_for
from airflow_cdc.pipeline.apply.native.names_gtids import names_gtids
from airflow_cdc.pipeline.apply.native.take_plain import REPEATED, WAYS, WENT_BACK, NoDoubts, Plain, named_failure
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.settled import Ready, may_repeat
from airflow_cdc.pipeline.apply.stage_events import KeptEvents, NewEvents
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_epochs import may_have_fallen
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots, find_snapshots
from airflow_cdc.pipeline.microbatch.count_events import Counted, count_surveyed
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from airflow_cdc.pipeline.target.open_natively import brought_up_to_date
from airflow_cdc.pipeline.target.target_table import TargetTable


def settle_events(plain: Plain) -> NativeAppend:
    """Read all events of a microbatch.

    :raises HandedOver: where some may be in the log already, or have to be put in order first.
    """
    if plain.left_to_spark:
        raise HandedOver(plain.left_to_spark)
    run, decoder = plain.run, plain.decoder
    surveyed = count_surveyed(decoder.shapes)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    if tables.are_several:
        raise HandedOver("events of several tables")
    if voids_events(run):
        raise HandedOver("an earlier truncate or snapshot may void some events")
    if surveyed.is_mixed:
        raise HandedOver("snapshot reads among changes")
    events = read_all_events(decoder, run.microbatch.archive, threads=plain.threads)
    decoder, surveyed = events.decoder, count_surveyed(events.decoder.shapes)
    if may_repeat(run, plain.target, events.staged):
        raise HandedOver(REPEATED)
    if may_have_fallen(run, decoder, events.staged):
        raise HandedOver(WENT_BACK)
    search = SnapshotSearch(run=run, decoder=decoder, surveyed=surveyed, tables=tables)
    settled = NativeAppend(
        run=run,
        target=plain.target,
        decoder=decoder,
        tables=tables,
        counted=Counted(surveyed=surveyed, staged=events.staged),
        snapshots=_snapshots(search, events),
        new=NewEvents(events=events.rows),
    )
    # Where Spark has staged the events, they are in memory here.
    run.after_effect("stage")
    return settled


def _snapshots(search: SnapshotSearch, events: NativeEvents) -> Snapshots:
    """Return the full snapshots, as :func:`airflow_cdc.pipeline.apply.stage_events.watch_snapshots`: none removes a row."""
    run = search.run
    policy = OnSnapshot.STOP if run.flow.on_snapshot is OnSnapshot.STOP else OnSnapshot.KEEP
    kept = replace(search, run=replace(run, flow=replace(run.flow, on_snapshot=policy)))
    snapshots = find_snapshots(kept.asked(events.reads, NoDoubts(), names_gtids=names_gtids))
    if snapshots.fell or snapshots.replacing or snapshots.ended:
        raise HandedOver("another snapshot than the table's first")
    return snapshots


@dataclass(frozen=True, kw_only=True)
class NativeAppend(KeptEvents):
    """A plain microbatch's events to append, in this process."""

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Create the target by delta-rs, or leave it: it has the events' columns."""
        return fit_table(self.run, self.decoder, self.target, ways=WAYS)

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as known before the append."""
        return replace(super().report(quarantined, changed), merge_plan="append", engine=Engine.NATIVE.value)

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Log nothing: the target is the log."""
        assert target is not None
        # Fitting the target may have committed to it.
        table = brought_up_to_date(target.uri, target.opened)
        rows = events_for(table, self.new.events, list(self.decoder.columns.types), microbatch=self.run.microbatch.number)
        return Ready(report=report, merge=partial(self._append, table, rows, report), effect="append")

    def _append(self, table: Any, rows: Any, report: BatchReport) -> BatchReport:
        run = self.run
        of = CommitOf(application=run.application, version=run.microbatch.number, metadata=run.commit_metadata(report))
        with named_failure(run, "the events could not be appended"):
            append_rows(table, run.table, rows, of=of)
        return report
