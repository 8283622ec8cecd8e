"""Mode of current rows by key: the last event of each key decides its row; deleted rows are removed or flagged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

from pyspark.sql import DataFrame

from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.places import delete_markers_uri, moves_uri
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged
from airflow_cdc.pipeline.apply.fold_changes import Folded, Latest, fold_changes, latest_changes, no_row_changes
from airflow_cdc.pipeline.apply.guard_late_events import guard_late_events
from airflow_cdc.pipeline.apply.guarded import Guarded, Unguarded
from airflow_cdc.pipeline.apply.known_snapshots import SnapshotFrames, find_known_snapshots, with_unconfirmed
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.rename_columns import rename_columns
from airflow_cdc.pipeline.apply.settled import ALL_STALE, EXPECTED, Ready, SettledEvents, decoder_of
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_epochs import find_epochs, may_have_fallen
from airflow_cdc.pipeline.evidence.find_voids import Voids, find_voids
from airflow_cdc.pipeline.evidence.snapshot_reads import SnapshotReads
from airflow_cdc.pipeline.microbatch.count_events import Counted, count_surveyed, find_truncates
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.append_once import append
from airflow_cdc.pipeline.record.delete_markers import markers_of
from airflow_cdc.pipeline.record.moves import moves_of
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.count_row_changes import count_row_changes
from airflow_cdc.pipeline.target.document_columns import with_document_columns
from airflow_cdc.pipeline.target.flag_voided import flag_voided
from airflow_cdc.pipeline.target.merge_row_changes import Merge, merge_row_changes
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True, kw_only=True)
class ReadElsewhere:
    """A microbatch's events, read and reduced to each key's last one by another engine."""

    decoder: Decoder
    latest: Latest
    reads: SnapshotReads | None
    """None: Spark finds them."""
    engine: str
    """For the report."""


def settle(run: MicrobatchRun, target: TargetTable | None, *, read: ReadElsewhere | None = None) -> RowChanges:
    """Read a microbatch's events and reconcile them by key; starts over with each epoch that is found to begin in it.

    :param read: the events, where they are read already; Spark reads them anew where an epoch begins.
    :raises SourceLogWentBackError: when the source's log went back without a snapshot, and the flow's policy is to stop.
    """
    renamed: dict[str, str] = {}
    while True:
        decoder = read.decoder if read else decoder_of(run, target)
        target, names = rename_columns(run, decoder.columns, target)
        renamed |= names
        settled = _settle(run, decoder, target, read=read)
        if not isinstance(settled, Epochs):
            return replace(settled, renamed=renamed, engine=read.engine if read else settled.engine)
        run, read = replace(run, found_epochs=settled), None


def _settle(run: MicrobatchRun, decoder: Decoder, target: TargetTable | None, *, read: ReadElsewhere | None) -> RowChanges | Epochs:
    """Settle a microbatch; or return the epochs, including a new one that begins in it."""
    surveyed = count_surveyed(decoder.shapes)
    events = decoder.events(run.lines())
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    truncates = find_truncates(events, surveyed, tables, applied=run.checkpoint.truncated_through)
    latest = read.latest if read else latest_changes(run, decoder, events, surveyed=surveyed) if surveyed.rows else None
    reads = SnapshotFrames(
        run=run,
        decoder=decoder,
        surveyed=surveyed,
        events=events,
        tables=tables,
        latest=latest.changes if latest else None,
        known=run.rows_of(target) if target else None,
        reads=read.reads if read else None,
    )
    snapshots = find_known_snapshots(reads)
    are_copies = snapshots.fell
    if are_copies:
        if epochs := find_epochs(run, decoder):
            return epochs
        snapshots = find_known_snapshots(reads, are_copies=True)
    while True:
        voids = find_voids(run, truncates, snapshots, tables=tables, are_copies=are_copies)
        folded = fold_changes(run, decoder, latest, surveyed=surveyed, target=target, voids=voids) if latest else Folded()
        if are_copies or not may_have_fallen(run, decoder, folded.staged):
            return RowChanges(
                run=run,
                target=target,
                decoder=decoder,
                tables=tables,
                counted=Counted(surveyed=surveyed, truncates=truncates, staged=folded.staged),
                snapshots=snapshots,
                voids=voids,
                folded=folded,
            )
        if epochs := find_epochs(run, decoder):
            return epochs
        are_copies = True


@dataclass(frozen=True, kw_only=True)
class RowChanges(SettledEvents):
    """A microbatch's change to each key."""

    voids: Voids
    """What truncates and snapshots void."""
    folded: Folded
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Columns of the target that took the source's newer name, by the older one."""
    engine: str = Engine.SPARK.value
    """For the report."""

    @property
    def taken(self) -> int:
        """Number of good events and truncates."""
        return self.counted.staged.events + self.counted.truncates.good

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as known before the merge."""
        staged, truncates, snapshots = self.counted.staged, self.counted.truncates, self.snapshots
        return replace(
            self.report_of_events(self._count(quarantined), quarantined.rejects, changed),
            merge_plan="merge",
            truncated_through=dict(truncates.through),
            reach=staged.reach | truncates.reach,
            pending_snapshots=snapshots.pending,
            replaced_by=snapshots.replacing,
            unpaired_moves=self.folded.unpaired,
            asks_target=bool(staged.left_out or staged.unknown),
            columns_renamed=dict(self.renamed),
            engine=self.engine,
        )

    def _count(self, quarantined: Quarantined) -> EventCounts:
        """Return the count of records by outcome."""
        surveyed, staged, truncates = quarantined.surveyed, self.counted.staged, self.counted.truncates
        applied_truncates = truncates.good - truncates.ignored - truncates.stale
        return EventCounts(
            read=surveyed.read,
            merged=staged.live + min(applied_truncates, 1),
            superseded=staged.events - staged.redelivered - staged.live - staged.shielded + max(applied_truncates - 1, 0),
            redelivered=staged.redelivered,
            stale=staged.shielded + truncates.stale,
            tombstones=surveyed.tombstones,
            control=surveyed.control + truncates.ignored,
            rejected=quarantined.count,
        )

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Write delete markers, so that no late event brings a row back."""
        run, staged, voids = self.run, self.counted.staged, self.voids
        if target is None or not (staged.live or voids.rows):
            return Ready(report=replace(report, merge_plan="nothing to merge"))
        live = self._row_changes().filter(f"NOT {voids.of_rows}")
        if self.snapshots.ended:
            ended = self.snapshots.ended
            report = with_unconfirmed(run, report, ended, target=target, row_changes=live, tables=self.tables)
        held, has_reads = self.target is not None, bool(self.counted.surveyed.reads)
        asked = Unguarded(
            run=run,
            decoder=self.decoder,
            target=target,
            live=live,
            staged=staged,
            held=held,
            has_reads=has_reads,
            voids=voids,
            moves=self.folded.moves,
        )
        guarded = guard_late_events(asked)
        report = guarded.in_report(report)
        if run.is_dry:
            counted = count_row_changes(run.spark, target, guarded.row_changes, vanishing=voids.rows)
            return Ready(report=replace(report, rows=counted, merge_plan="dry run"))
        if staged.has_deletes or guarded.rejoined:
            marking = guarded.row_changes if guarded.marking is None else guarded.marking
            markers = markers_of(marking, target.keys, run.microbatch.number)
            append(run.spark, markers, run.state(delete_markers_uri))
            run.after_effect("delete_markers")
        if guarded.moves:
            report = replace(report, moves_kept=self._keep_moves(guarded.moves, target))
        if guarded.stale == staged.live and not (guarded.paired or guarded.mended or voids.rows):
            return Ready(report=replace(report, merge_plan=ALL_STALE))
        return Ready(report=report, merge=partial(self.merge, target, guarded, report))

    def _keep_moves(self, moves: Sequence[DataFrame], target: TargetTable) -> int:
        """Write moves down, so that a late event under an old key finds its row, and return their number."""
        run = self.run
        kept = run.write_down(moves_of(reduce(DataFrame.unionByName, moves), target.keys, run.microbatch.number), "moves")
        if number := kept.count():
            append(run.spark, kept, run.state(moves_uri))
            run.after_effect("moves")
        return number

    def merge(self, target: TargetTable, guarded: Guarded, report: BatchReport) -> BatchReport:
        """Merge the row changes that passed the guard."""
        run, staged, voids = self.run, self.counted.staged, self.voids
        fresh = guarded.row_changes
        if voids.rows and target.flags_deletes:
            others = [name for name in self.decoder.columns.types if name not in target.keys]
            voided = flag_voided(self._row_changes().filter(voids.here), voids.rows[-1], others)
            fresh = fresh.unionByName(voided.select(*[sql.name(name) for name in fresh.columns]))
        fresh = with_document_columns(fresh, run.flow.document_columns)
        # Row changes folded again may have other keys, and rows that vanish may have any.
        within = () if guarded.rejoined or voids.rows else staged.ranges
        merge = Merge(
            row_changes=fresh,
            columns=[name for name in fresh.columns if name in target.columns],
            microbatch=run.microbatch.number,
            new_columns=[name for name in self.decoder.columns.types if not self.target or name not in self.target.columns],
            late=guarded.is_late,
            vanishing=voids.rows,
            unread=voids.unread.rows if voids.unread else "false",
            left_out=sorted({*staged.left_out, *staged.from_older_events}) if guarded.is_late else staged.left_out,
            document_columns=run.flow.document_columns,
            within=within,
        )
        with run.merging(target, report, within=within, **self.expected(target, is_late=guarded.is_late or guarded.rejoined)):
            merge_row_changes(run.spark, target, merge)
        return report

    def expected(self, target: TargetTable, *, is_late: bool) -> dict[str, Any]:
        """Return the metadata of a commit from which rows that were not found are counted; none where they are not.

        :param is_late: whether some changes were left out, or folded again.
        """
        if is_late or target.flags_deletes or self.voids.rows or self.snapshots.newest is None:
            return {}
        staged = self.counted.staged
        return {EXPECTED: {"to_delete": staged.to_delete, "to_insert": staged.to_insert}}

    def _row_changes(self) -> DataFrame:
        # With a truncate alone, MERGE still needs a source.
        return no_row_changes(self.run) if self.folded.row_changes is None else self.folded.row_changes
