"""Mode of a table without a key: rows are counted by content, from all known events, which the flow's row log keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import CONTENT, IDENTITY
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.places import events_uri
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.fit_table import wider_columns
from airflow_cdc.pipeline.apply.known_snapshots import may_be_base, with_unconfirmed_rows
from airflow_cdc.pipeline.apply.settled import Ready, decoder_of
from airflow_cdc.pipeline.apply.stage_events import (
    KeptEvents,
    Sieve,
    known_events,
    leave_out_known,
    settle_epochs,
    stage_events,
    watch_snapshots,
)
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.reconcile.count_copies import contents_of, count_copies, unconfirmed_copies
from airflow_cdc.pipeline.reconcile.find_base import find_bases
from airflow_cdc.pipeline.record.event_log import append_to_log
from airflow_cdc.pipeline.record.row_log import logged_rows, with_contents, without_known_rows
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.merge_copies import copy_changes, count_missing, merge_copies
from airflow_cdc.pipeline.target.target_table import TargetTable, columns_of


def settle(run: MicrobatchRun, target: TargetTable | None) -> CountedEvents:
    """Read and stage a microbatch's events.

    :raises ConfigurationError: in a dry run.
    """
    if run.is_dry:
        raise ConfigurationError(
            f"Flow {run.flow.name}: its table has no key; an event does not show whether its row is there already or missing.",
            next_step="Rebuild the flow in a lake of its own (`airflow-cdc rebuild`) and compare.",
        )
    return settle_epochs(run, partial(_settle, target=target))


def _settle(run: MicrobatchRun, target: TargetTable | None) -> CountedEvents | Epochs:
    decoder = decoder_of(run, target)
    types = _types(run, decoder, target)
    events = with_contents(decoder.events(run.lines()), decoder, types)
    # Equal rows are counted together: nothing shows which table one belongs to.
    tables = PhysicalTables(run.flow, (), run.tables)
    staged = stage_events(run, decoder, events, tables=tables, keeps_truncates=True, keys=(IDENTITY,))
    snapshots = watch_snapshots(run, decoder, staged, tables=tables)
    if isinstance(snapshots, Epochs):
        return snapshots
    known = known_events(
        run,
        target,
        lost="has no key, and the events by which its rows were counted are gone",
        next_step="Restore that folder, or rebuild the flow.",
    )
    return CountedEvents(
        run=run,
        target=target,
        decoder=decoder,
        tables=tables,
        counted=staged.counted,
        snapshots=snapshots,
        new=leave_out_known(run, target, staged, sieve=_sieve(known)),
        types=types,
    )


def _sieve(known: DataFrame | None) -> Sieve | None:
    if known is None:
        return None

    def sieve(events: DataFrame) -> tuple[DataFrame, int]:
        new = without_known_rows(events, known, archived_before=False).count()
        return without_known_rows(events, known, archived_before=True), new

    return sieve


def _types(run: MicrobatchRun, decoder: Decoder, target: TargetTable | None) -> dict[str, str]:
    """Return the Spark SQL types of the microbatch's columns, as they are or will be in the target."""
    types = decoder.columns.sql_types
    held: Mapping[str, str] = {}
    if target:
        wider_columns(target, types, run.flow.name)
        held = {name.lower(): kind for name, kind in target.columns.items()}
    return {name: held.get(name.lower(), kind) for name, kind in types.items()}


@dataclass(frozen=True, kw_only=True)
class CountedEvents(KeptEvents):
    """Events from which rows are counted."""

    types: Mapping[str, str]
    """Spark SQL types of the microbatch's columns, as they are or will be in the target."""

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Append the events to the row log."""
        run = self.run
        nothing = Ready(report=replace(report, merge_plan="nothing to merge"))
        rows = logged_rows(self.new.events, self.decoder, self.types, microbatch=run.microbatch.number)
        if self.new.late:
            rows = run.write_down(rows, "logged")
        if rows.isEmpty() if self.new.late else not report.events.merged:
            return nothing
        append_to_log(run.spark, run.state(events_uri), rows, application=run.application, microbatch=run.microbatch.number)
        run.after_effect("log")
        if target is None:
            return nothing
        target = replace(target, columns=columns_of(run.spark, target.uri))
        return Ready(report=report, merge=partial(self.merge, target, rows, report))

    def merge(self, target: TargetTable, rows: DataFrame, report: BatchReport) -> BatchReport:
        """Recount the touched rows; all rows, where another snapshot or truncate sets where counting begins."""
        run, ended = self.run, self.snapshots.ended
        log = run.spark.read.format("delta").load(run.state(events_uri))
        floor = max(run.checkpoint.truncated_through.values(), default=None)
        before, bases = find_bases(log, run.microbatch.number, floor, may_replace=may_be_base(run, self.decoder))
        # Rows of only NULLs create no table, but may already be logged.
        was_empty = self.target is None or not self.target.size
        everything = was_empty or bases != before
        touched = None if everything else contents_of(rows)
        counted = run.write_down(count_copies(log, bases, touched), "counted")
        # A file of earlier events may change what an earlier microbatch found of the newest snapshot.
        newest = ended or (report.snapshot if everything else None)
        if newest and bases.later:
            of_all = counted if everything else count_copies(log, bases, None)
            rows_left = unconfirmed_copies(log, of_all, bases.later[0]).collect()[0][0]
            report = with_unconfirmed_rows(report, newest, int(rows_left or 0))
        held = run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")
        held = held if touched is None else held.join(F.broadcast(touched), CONTENT, "left_semi")
        changes = run.write_down(copy_changes(target, held, counted, log=log), "changes")
        plan = "copies of all rows: another snapshot or truncate" if everything else "copies of touched rows"
        report = replace(report, merge_plan=plan, rows_missing=count_missing(changes))
        with run.merging(target, report):
            merge_copies(run.spark, target, changes, microbatch=run.microbatch.number)
        return report
