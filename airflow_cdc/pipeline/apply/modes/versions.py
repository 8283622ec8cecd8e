"""Mode of a table that keeps versions: events go to the flow's event log, and versions of the touched keys are recut from the log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import IS_CURRENT, OP, TABLE
from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.cut_touched_keys import Logged
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged
from airflow_cdc.pipeline.apply.log_versions import log_rows, merge_logged
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.resolve_documents import refuse_patches
from airflow_cdc.pipeline.apply.settled import Ready, decoder_of
from airflow_cdc.pipeline.apply.stage_events import (
    KeptEvents,
    Sieve,
    known_events,
    leave_out_known,
    settle_epochs,
    settle_snapshots,
    stage_events,
)
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.change_log import without_known
from airflow_cdc.pipeline.record.event_log import logged_rows
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.target_table import TargetTable, columns_of


def settle(run: MicrobatchRun, target: TargetTable | None) -> VersionedEvents:
    """Read and stage a microbatch's events."""
    return settle_epochs(run, partial(_settle, target=target))


def _settle(run: MicrobatchRun, target: TargetTable | None) -> VersionedEvents | Epochs:
    decoder = decoder_of(run, target)
    events = decoder.events(run.lines(), with_images=True)
    refuse_patches(run.flow.name, decoder, events)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    staged = stage_events(run, decoder, events, tables=tables, keeps_truncates=True)
    known = known_events(
        run,
        target,
        # Cut from what the archive holds now, older versions would be lost silently.
        lost="holds versions, and the events that they were cut from are gone",
        next_step="Restore that folder; or rebuild the flow, where the archive still holds what the history shall hold.",
    )
    snapshots = settle_snapshots(run, decoder, staged, tables=tables, known=_events_of_living(run, target, known))
    if isinstance(snapshots, Epochs):
        return snapshots
    return VersionedEvents(
        run=run,
        target=target,
        decoder=decoder,
        tables=tables,
        counted=staged.counted,
        snapshots=snapshots,
        new=leave_out_known(run, target, staged, sieve=_sieve(run, known, decoder)),
        known=known,
    )


def _events_of_living(run: MicrobatchRun, target: TargetTable | None, known: DataFrame | None) -> DataFrame | None:
    """Return the known events of the keys that have a current row."""
    if target is None or known is None:
        return None
    events = known.filter(F.col(OP).isin([operation.value for operation in ROW_OPERATIONS]))
    current = target.with_default_names(run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")).filter(IS_CURRENT)
    return events.alias("e").join(current.alias("c"), F.expr(sql.same_key("e", "c", target.keys)), "left_semi")


def _sieve(run: MicrobatchRun, known: DataFrame | None, decoder: Decoder) -> Sieve | None:
    if known is None:
        return None
    keys, columns, restarts = decoder.columns.keys, list(decoder.columns.types), decoder.change_restarts

    def sieve(events: DataFrame) -> tuple[DataFrame, int]:
        fresh = without_known(events, known, keys=keys, columns=columns, table=TABLE, change_restarts=restarts)
        fresh = run.write_down(fresh, "fresh")
        return fresh, fresh.count()

    return sieve


@dataclass(frozen=True, kw_only=True)
class VersionedEvents(KeptEvents):
    """Events from which versions are cut."""

    known: DataFrame | None
    """The log of the other microbatches' events; None where there is no log yet."""

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as known before the merge."""
        return replace(
            super().report(quarantined, changed),
            merge_plan="versions of touched keys: late events" if self.new.late else "versions of touched keys",
            pending_snapshots=self.snapshots.pending,
            replaced_by=self.snapshots.replacing,
        )

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Append the events to the event log, and the marks of a snapshot that the microbatch proves."""
        run, replacing = self.run, self.snapshots.replacing
        nothing = Ready(report=replace(report, merge_plan="nothing to merge"))
        # A redelivered event may be the one that proves a snapshot.
        if not (report.events.merged or replacing):
            return nothing
        # The log takes the table's types: an event's own type may be narrower.
        types = columns_of(run.spark, target.uri) if target else {}
        rows = logged_rows(self.new.events, self.decoder, types, microbatch=run.microbatch.number)
        rows = log_rows(run, rows, known=self.known, proven=replacing)
        if target is None:
            return nothing
        everything = bool(replacing) or self.counted.truncates.good > self.counted.truncates.ignored
        may_tie = self.new.late or self.counted.staged.hazards > 0
        logged = Logged(
            rows=rows,
            tables=self.tables,
            may_tie=may_tie,
            everything=everything,
            change_restarts=self.decoder.change_restarts,
            ended=self.snapshots.ended,
        )
        return Ready(report=report, merge=partial(merge_logged, run, replace(target, columns=types), logged, report=report))
