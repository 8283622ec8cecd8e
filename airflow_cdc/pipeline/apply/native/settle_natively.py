"""Settle a microbatch by the native engine, or by the mode's own way in Spark where it is not plain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from airflow_cdc.model.errors import ConcurrentRunError, ConfigurationError, UnexpectedError, first_line
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import DEFAULT_ENGINE, Engine
from airflow_cdc.model.places import delete_markers_uri
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.fold_changes import Folded
from airflow_cdc.pipeline.apply.known_snapshots import SnapshotSearch
from airflow_cdc.pipeline.apply.modes.by_key import RowChanges
from airflow_cdc.pipeline.apply.native.bounds import THREADED_FROM_BYTES, most_touched_bytes, touched_bytes
from airflow_cdc.pipeline.apply.native.fold import NativeChanges, fold_natively
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver, why_not_decoded, why_not_read
from airflow_cdc.pipeline.apply.native.merge import append_markers, may_write, merge_rows, rows_for
from airflow_cdc.pipeline.apply.native.misread_times import misread_file
from airflow_cdc.pipeline.apply.native.table_values import Completed, complete
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.settled import Ready, Settled, decoder_of
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_epochs import may_have_fallen
from airflow_cdc.pipeline.evidence.find_snapshot import find_snapshots
from airflow_cdc.pipeline.evidence.find_voids import find_voids
from airflow_cdc.pipeline.microbatch.count_events import Counted, Truncates, count_surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.spark.exclusive_writes import excludes_writers
from airflow_cdc.pipeline.target.create_natively import create_natively
from airflow_cdc.pipeline.target.merge_plan import detailed_plan
from airflow_cdc.pipeline.target.open_natively import open_natively, open_table
from airflow_cdc.pipeline.target.target_table import TargetTable

_THREADS = 4
Settle = Callable[[MicrobatchRun, TargetTable | None], Settled]


def natively(settle: Settle) -> Settle:
    """Return the first step of a mode of current rows by key: the native engine's for a plain microbatch, else the mode's own."""

    def choose(run: MicrobatchRun, target: TargetTable | None) -> Settled:
        if (run.flow.engine or DEFAULT_ENGINE) is Engine.SPARK:
            return settle(run, target)
        _check_packages(run.flow)
        try:
            return _settle(run, target)
        except HandedOver as reason:
            run.note(f"{run.flow.name}: Spark applies microbatch {run.microbatch.number}: {reason}")
            return settle(replace(run, engine_reason=str(reason)), target)

    return choose


def _check_packages(flow: CdcFlow) -> None:
    """Stop a flow that asks for the native engine alone where its packages are missing.

    :raises ConfigurationError: with the packages.
    """
    if flow.engine is Engine.NATIVE and (missing := _missing_packages()):
        raise ConfigurationError(
            f"Flow {flow.name}: engine is native, and the driver's Python ({sys.executable}) lacks {', '.join(missing)}.",
            next_step="Install them where the driver runs, or set the flow's engine to auto.",
        )


def _missing_packages() -> list[str]:
    return [name for name in ("duckdb", "deltalake", "pyarrow") if find_spec(name) is None]


def _settle(run: MicrobatchRun, target: TargetTable | None) -> NativeRowChanges:
    if missing := _missing_packages():
        raise HandedOver(f"the driver's Python lacks {', '.join(missing)}")
    if reason := why_not_read(run, target):
        raise HandedOver(reason)
    decoder = decoder_of(run, target)
    if reason := why_not_decoded(decoder, target):
        raise HandedOver(reason)
    table = _open(target.uri) if target else None
    if not excludes_writers(run.lake):
        raise HandedOver("the lake's store does not refuse to replace an object (If-None-Match)")
    threads = _THREADS if run.microbatch.text_size >= THREADED_FROM_BYTES else 1
    changes = fold_natively(decoder, run.microbatch.archive, threads=threads)
    most = most_touched_bytes(run.microbatch.text_size)
    if target and target.size > most and touched_bytes(table, changes.rows, target.keys) > most:
        raise HandedOver("few events touch many files of a large table")
    settled = _settled(run, target, decoder, changes=changes)
    if settled.late or may_have_fallen(run, decoder, changes.staged):
        raise HandedOver("some events may be late, or the source's log went back")
    settled = replace(settled, completed=complete(table, run.table, changes.rows, keys=decoder.columns.keys))
    # Where Spark has staged the row changes, they are in memory here.
    run.after_effect("stage")
    return settled


def _open(uri: str) -> Any:
    """Return the table, if delta-rs may merge into it.

    :raises HandedOver: where it may not.
    """
    table = open_natively(uri)
    if table is None or not may_write(table):
        raise HandedOver("the table has a feature that only Spark writes, or delta-rs cannot read it")
    if misread := _misread(table, uri):
        raise HandedOver(misread)
    return table


def _misread(table: Any, uri: str) -> str | None:
    try:
        path = misread_file(table, uri)
    except (OSError, ValueError) as error:
        return f"a file of the table cannot be read from the driver: {first_line(error)}"
    return path and f"delta-rs may read other times from {path}, whose timestamps are INT96"


def _settled(run: MicrobatchRun, target: TargetTable | None, decoder: Decoder, *, changes: NativeChanges) -> NativeRowChanges:
    surveyed = count_surveyed(decoder.shapes)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    if surveyed.reads and tables.are_several:
        raise HandedOver("snapshot reads of several tables")
    search = SnapshotSearch(run=run, decoder=decoder, surveyed=surveyed, tables=tables)
    snapshots = find_snapshots(search.asked(changes.reads, _NoDoubts()))
    voids = find_voids(run, Truncates(), snapshots, tables=tables)
    if snapshots.fell or snapshots.replacing or snapshots.ended or voids.rows or voids.unread:
        raise HandedOver("another snapshot than the table's first")
    return NativeRowChanges(
        run=run,
        target=target,
        decoder=decoder,
        tables=tables,
        counted=Counted(surveyed=surveyed, staged=changes.staged),
        snapshots=snapshots,
        voids=voids,
        folded=Folded(staged=changes.staged),
        changes=changes.rows,
        completed=Completed(changes.rows),
    )


class _NoDoubts:
    """Stands for :class:`~airflow_cdc.pipeline.evidence.doubt_snapshot.Doubts`, which only a later snapshot asks."""

    def of(self, position: Position, *, stays: str, has_other_lanes: bool) -> str | None:
        """Hand the microbatch over."""
        raise HandedOver(f"another snapshot than the table's first, at position {position}")


@dataclass(frozen=True, kw_only=True)
class NativeRowChanges(RowChanges):
    """A plain microbatch's change to each key, in this process."""

    changes: Any
    """Arrow table, see :class:`NativeChanges`."""
    completed: Completed
    """The same with the table's values, as of when they were settled."""

    def fit_target(self) -> tuple[TargetTable | None, ColumnsChanged]:
        """Create the target by delta-rs, or leave it: it has the events' columns."""
        return fit_table(self.run, self.decoder, self.target, create=create_natively)

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as known before the merge."""
        return replace(super().report(quarantined, changed), engine=Engine.NATIVE.value)

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Write delete markers, so that no late event brings a row back."""
        assert target is not None
        run = self.run
        # Anew, because fitting the target may have committed to it.
        table = open_table(target.uri)
        completed = self._completed_for(table, target)
        report = replace(report, unavailable_unresolved=completed.unresolved)
        rows = rows_for(table, completed.rows, list(self.decoder.columns.types), microbatch=run.microbatch.number)
        if self.counted.staged.has_deletes:
            with _named_failure(run, "delta-rs could not append the delete markers"):
                append_markers(run.state(delete_markers_uri), rows, target.keys)
            run.after_effect("delete_markers")
        return Ready(report=report, merge=partial(self._merge, table, rows=rows, target=target, report=report))

    def _completed_for(self, table: Any, target: TargetTable) -> Completed:
        if self.completed.of_version in (None, table.version()):
            return self.completed
        try:
            return complete(table, target.uri, self.changes, keys=target.keys)
        except HandedOver as reason:
            raise ConcurrentRunError(
                f"Another run committed to {target.uri} since version {self.completed.of_version} ({reason}).",
                next_step="Nothing is lost; run again.",
            ) from reason

    def _merge(self, table: Any, *, rows: Any, target: TargetTable, report: BatchReport) -> BatchReport:
        run = self.run
        plan = detailed_plan(report.merge_plan, deletion_vectors=False, within=())
        report = replace(report, merge_plan=plan)
        metadata = run.commit_metadata(report, files=target.files)
        with _named_failure(run, "delta-rs could not merge"):
            merge_rows(table, rows, target.keys, application=run.application, version=run.microbatch.number, metadata=metadata)
        return report


@contextmanager
def _named_failure(run: MicrobatchRun, failure: str) -> Iterator[None]:
    """Name the way out where delta-rs fails: what Spark would do then is no longer the same microbatch."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except DeltaError as error:
        raise UnexpectedError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: {failure} ({first_line(error)}).",
            next_step="Nothing is lost; run again. Where it fails again, set the flow's engine to spark.",
        ) from error
