"""Settle a plain microbatch of a table of current rows by key, and merge it by delta-rs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.flow.engine import MIXED, Engine
from airflow_cdc.model.places import delete_markers_uri
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.fold_changes import Folded, Latest
from airflow_cdc.pipeline.apply.known_snapshots import SnapshotSearch
from airflow_cdc.pipeline.apply.modes.by_key import ReadElsewhere, RowChanges, settle
from airflow_cdc.pipeline.apply.native.bounds import MOST_TOUCHED_BYTES, touched_bytes
from airflow_cdc.pipeline.apply.native.flag_deleted import flag_deleted
from airflow_cdc.pipeline.apply.native.fold import NativeChanges, NativeFold, changes_of, folding
from airflow_cdc.pipeline.apply.native.for_spark import StagedFold, changes_for_spark, count_for_spark, stage_changes
from airflow_cdc.pipeline.apply.native.guard import leave_out_stale
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver, voids_events
from airflow_cdc.pipeline.apply.native.in_tasks import fold_in_tasks
from airflow_cdc.pipeline.apply.native.mark_rows import OF_NEW_TABLE, Marks, UnmarkableError, copy_and_add, find_marks, mark_and_add
from airflow_cdc.pipeline.apply.native.merge import append_markers, rows_for
from airflow_cdc.pipeline.apply.native.names_gtids import names_gtids
from airflow_cdc.pipeline.apply.native.table_values import Completed, complete
from airflow_cdc.pipeline.apply.native.take_plain import WAYS, WENT_BACK, NoDoubts, Plain, named_failure
from airflow_cdc.pipeline.apply.settled import ALL_STALE, Ready, without_stale
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_epochs import may_have_fallen
from airflow_cdc.pipeline.evidence.find_snapshot import find_snapshots
from airflow_cdc.pipeline.evidence.find_voids import find_voids
from airflow_cdc.pipeline.evidence.snapshot_reads import SnapshotReads
from airflow_cdc.pipeline.microbatch.count_events import Counted, Truncates, count_surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.spark.late_session import started
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from airflow_cdc.pipeline.target.key_range import ranged
from airflow_cdc.pipeline.target.merge_plan import detailed_plan
from airflow_cdc.pipeline.target.open_natively import brought_up_to_date
from airflow_cdc.pipeline.target.target_table import TargetTable
from airflow_cdc.pipeline.target.writable import why_not_written


def settle_rows(plain: Plain) -> RowChanges:
    """Fold a microbatch's events by key, for delta-rs to merge them, or else for Spark.

    :raises HandedOver: as :func:`airflow_cdc.pipeline.apply.native.fold.folding`, and where only Spark can go on from its rows.
    """
    if plain.too_large:
        run = _of_spark(plain, plain.too_large)
        of_tasks = fold_in_tasks(run, plain.decoder)
        _check_joined(plain, run, joins_events=of_tasks.joins_events)
        return _merged_by_spark(plain, run, of_tasks)
    # What is folded is let go before Spark begins: it may be gigabytes.
    with folding(plain.decoder, plain.run.microbatch.archive, threads=plain.threads) as fold:
        plain = replace(plain, decoder=fold.decoder)
        try:
            return _for_delta_rs(plain, fold)
        except HandedOver as reason:
            run = _of_spark(plain, str(reason))
            staged, reads = _staged(plain, run, fold), fold.reads
    return _merged_by_spark(plain, run, staged, reads=reads)


def _of_spark(plain: Plain, reason: str) -> MicrobatchRun:
    return replace(plain.run, spark=started(plain.run.spark), engine_reason=reason)


def _staged(plain: Plain, run: MicrobatchRun, fold: NativeFold) -> StagedFold:
    """Stage the row changes for Spark.

    :raises HandedOver: where Spark has to fold them too.
    """
    joins_events = fold.joins_events
    _check_joined(plain, run, joins_events=joins_events)
    types, target = plain.decoder.columns.sql_types, plain.target
    staged = count_for_spark(fold, ranged(types, target.keys, table_bytes=target.size) if target else {})
    changes = stage_changes(run, fold.stream(changes_for_spark(fold.how)), types)
    return StagedFold(changes, joins_events, staged)


def _check_joined(plain: Plain, run: MicrobatchRun, *, joins_events: bool) -> None:
    if joins_events and (voids_events(run) or count_surveyed(plain.decoder.shapes).reads):
        raise HandedOver("rows that follow from several events, and a truncate or a snapshot that may void some of those")


def _merged_by_spark(plain: Plain, run: MicrobatchRun, fold: StagedFold, *, reads: SnapshotReads | None = None) -> RowChanges:
    """Hand over staged row changes, so that Spark does all that follows."""
    run.note(f"{run.flow.name}: Spark merges microbatch {run.microbatch.number}: {run.engine_reason}")
    latest = Latest(fold.changes, hazardous=fold.changes.filter("false"), staged=fold.staged)
    return settle(run, plain.target, read=ReadElsewhere(decoder=plain.decoder, latest=latest, reads=reads, engine=MIXED))


def _for_delta_rs(plain: Plain, fold: NativeFold) -> NativeRowChanges:
    """Return the row changes for delta-rs.

    :raises HandedOver: where Spark has to merge them.
    """
    if plain.left_to_spark:
        raise HandedOver(plain.left_to_spark)
    run, target, decoder = plain.run, plain.target, plain.decoder
    changes = changes_of(fold)
    if target and target.size > MOST_TOUCHED_BYTES and touched_bytes(plain.table, changes.rows, target.keys) > MOST_TOUCHED_BYTES:
        raise HandedOver("few events touch many files of a large table")
    settled = _settled(plain, changes)
    if may_have_fallen(run, decoder, changes.staged):
        raise HandedOver(WENT_BACK)
    if voids_events(run, None if settled.counted.surveyed.reads else changes.staged):
        raise HandedOver("an earlier truncate or snapshot may void some events")
    rows, stale = changes.rows, 0
    if target is not None:
        rows, stale = leave_out_stale(run, fold, changes=changes, table=plain.table)
    completed = _completed(plain.table, run.table, rows, decoder=decoder)
    marks = _marks(plain.table, target, completed.rows) if target else OF_NEW_TABLE
    # Where Spark has staged the row changes, they are in memory here.
    run.after_effect("stage")
    return replace(settled, changes=rows, stale=stale, completed=completed, marks=marks)


def _completed(table: Any, uri: str, changes: Any, *, decoder: Decoder) -> Completed:
    if decoder.keeps_deleted:
        return flag_deleted(table, uri, changes, keys=decoder.columns.keys)
    return complete(table, uri, changes, keys=decoder.columns.keys)


def _marks(table: Any, target: TargetTable, rows: Any) -> Marks:
    try:
        return find_marks(table, target.uri, rows, keys=target.keys)
    except UnmarkableError as reason:
        raise HandedOver(f"the table's rows cannot be found from the driver: {reason}") from reason


def _settled(plain: Plain, changes: NativeChanges) -> NativeRowChanges:
    run, decoder = plain.run, plain.decoder
    surveyed = count_surveyed(decoder.shapes)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    if surveyed.reads and tables.are_several:
        raise HandedOver("snapshot reads of several tables")
    search = SnapshotSearch(run=run, decoder=decoder, surveyed=surveyed, tables=tables)
    snapshots = find_snapshots(search.asked(changes.reads, NoDoubts(), names_gtids=names_gtids))
    voids = find_voids(run, Truncates(), snapshots, tables=tables)
    if snapshots.fell or snapshots.replacing or snapshots.ended or voids.rows or voids.unread:
        raise HandedOver("another snapshot than the table's first")
    return NativeRowChanges(
        run=run,
        target=plain.target,
        decoder=decoder,
        tables=tables,
        counted=Counted(surveyed=surveyed, staged=changes.staged),
        snapshots=snapshots,
        voids=voids,
        folded=Folded(staged=changes.staged),
        changes=changes.rows,
        completed=Completed(changes.rows),
        engine=Engine.NATIVE.value,
    )


@dataclass(frozen=True, kw_only=True)
class NativeRowChanges(RowChanges):
    """A plain microbatch's change to each key, in this process."""

    changes: Any
    """Arrow table, see :class:`NativeChanges`."""
    completed: Completed
    """The same with the table's values, as of when they were settled."""
    marks: Marks = OF_NEW_TABLE
    """The table's rows of these keys, as of when they were settled."""
    stale: int = 0
    """Number of row changes left out: the table, or a delete marker, is newer."""

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Create the target by delta-rs, or leave it: it has the events' columns."""
        return fit_table(self.run, self.decoder, self.target, ways=WAYS)

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Write delete markers, so that no late event brings a row back."""
        assert target is not None
        run = self.run
        # Fitting the target may have committed to it.
        table = brought_up_to_date(target.uri, target.opened)
        completed = self._completed_for(table, target)
        report = replace(without_stale(report, self.stale), unavailable_unresolved=completed.unresolved)
        rows = rows_for(table, completed.rows, list(self.decoder.columns.types), microbatch=run.microbatch.number)
        if self.counted.staged.has_deletes and self.changes.num_rows:
            # Of the changes, because a row that is kept stands for none of them.
            changes = rows_for(table, self.changes, target.keys, microbatch=run.microbatch.number)
            with named_failure(run, "the delete markers could not be appended"):
                append_markers(run.state(delete_markers_uri), changes, target.keys)
            run.after_effect("delete_markers")
        if not completed.rows.num_rows and self.stale:
            return Ready(report=replace(report, merge_plan=ALL_STALE))
        return Ready(report=report, merge=partial(self._merge, table, rows=rows, target=target, report=report))

    def _completed_for(self, table: Any, target: TargetTable) -> Completed:
        if self.completed.of_version in (None, table.version()):
            return self.completed
        with self._unless_changed(target):
            return _completed(table, target.uri, self.changes, decoder=self.decoder)

    def _marks_for(self, table: Any, target: TargetTable, rows: Any) -> Marks:
        if self.marks.of_version == table.version():
            return self.marks
        with self._unless_changed(target):
            if reason := why_not_written(table):
                raise HandedOver(reason)
            return _marks(table, target, rows)

    @contextmanager
    def _unless_changed(self, target: TargetTable) -> Iterator[None]:
        """Turn what a newer version of the table does not allow into the error of a run that came too late."""
        try:
            yield
        except HandedOver as reason:
            raise ConcurrentRunError(
                f"Another run committed to {target.uri} since its rows were looked at ({reason}).", next_step="Nothing is lost; run again."
            ) from reason

    def _merge(self, table: Any, *, rows: Any, target: TargetTable, report: BatchReport) -> BatchReport:
        run = self.run
        marks = self._marks_for(table, target, rows)
        report = replace(report, merge_plan=detailed_plan(report.merge_plan, deletion_vectors=target.deletion_vectors, within=()))
        of = CommitOf(
            application=run.application,
            version=run.microbatch.number,
            metadata=run.commit_metadata(report, files=target.files, **self.expected(target, is_late=bool(self.stale))),
        )
        write = mark_and_add if target.deletion_vectors else copy_and_add
        with named_failure(run, "the changed rows could not be written"):
            write(table, target.uri, marks, rows=rows, keys=target.keys, of=of)
        return report
