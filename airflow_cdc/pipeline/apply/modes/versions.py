"""Apply one microbatch to a table that keeps history: the order of effects, as ``apply_microbatch`` has it for all other tables.

    change log:   quarantine, make or widen the target, append the events to it
    versions:     quarantine, append the events to the flow's change log, make or widen the target, MERGE the versions of their keys

The last of them is one Delta commit with the microbatch's identifier, and carries the report. A crash after any of them is harmless: the
appends know their microbatch, and what was appended but not merged is found in the log by the same microbatch, taken up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import COMMITTED_AT, IS_CURRENT, MICROBATCH, OFFSET, OP, PARTITION, POSITION, SNAPSHOT, TABLE
from airflow_cdc.model.epochs import Epochs
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.flow import OnSnapshot
from airflow_cdc.model.operation import ROW_OPERATIONS, Operation
from airflow_cdc.model.places import events_uri
from airflow_cdc.model.report import BatchReport, EventCounts
from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.apply.apply_once import apply_once, report_of_commit
from airflow_cdc.pipeline.apply.cut_touched_keys import cut_touched_keys
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.known_snapshots import find_known_snapshots, with_unconfirmed_versions
from airflow_cdc.pipeline.apply.modes.by_key import may_be_late, quarantine
from airflow_cdc.pipeline.apply.resolve_documents import refuse_patches
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.document_columns import with_document_columns
from airflow_cdc.pipeline.find_epochs import find_epochs, may_have_fallen
from airflow_cdc.pipeline.find_snapshot import Snapshots
from airflow_cdc.pipeline.microbatch.count_events import (
    TABLE_OF_EVENT,
    Staged,
    Surveyed,
    Truncates,
    count_staged,
    count_surveyed,
    find_truncates,
)
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.physical_tables import PhysicalTables
from airflow_cdc.pipeline.plan_decoding import plan_decoding
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import READS, REDELIVERED, read_columns, read_place
from airflow_cdc.pipeline.record.append_once import read_appended
from airflow_cdc.pipeline.record.change_log import flag_events, good_events, without_known
from airflow_cdc.pipeline.record.event_log import append_to_log, is_read_of, logged_rows, mark_of
from airflow_cdc.pipeline.target.merge_versions import current_versions, merge_versions
from airflow_cdc.pipeline.target.target_table import TargetTable, columns_of


def apply_to_change_log(run: MicrobatchRun) -> BatchReport:
    """Append a microbatch's events to the target and return what it did; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """
    return apply_once(run, _append)


def _append(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    decoder = plan_decoding(run.spark, run.flow, run.microbatch, target, run.facts, epochs=run.epochs)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    keeps_truncates = target is not None or bool(decoder.columns.types)
    told = stage_events(run, decoder, decoder.events(run.lines()), tables, keeps_truncates=keeps_truncates)
    snapshots, epochs = watch_snapshots(run, decoder, told, tables)
    if epochs:
        return _append(replace(run, found_epochs=epochs), target)
    rejects, told = told.quarantine(run, decoder)
    late = may_be_late(run, target, told.staged)
    fresh, stale = tables.named_in_rows(told.events), 0
    if target and late:
        fresh = run.write_down(without_known(fresh, run.rows_of(target), target.keys, table=tables.column), "fresh")
        stale = told.staged.events - told.staged.redelivered - fresh.count()
    target, changed = fit_table(run, decoder, target)
    plan = "append: known events left out" if late else "append"
    report = replace(told.report(run, rejects, stale=stale, changed=changed), merge_plan=plan, snapshot=snapshots.newest)
    if target is None or not report.events.merged:
        return replace(report, merge_plan="nothing to append")
    fresh = with_document_columns(fresh, run.flow.document_columns)
    rows = in_columns_of(run.spark.sql(f"SELECT * FROM {sql.delta(run.table)}"), fresh, microbatch=run.microbatch.number)
    with run.committing(report):
        rows.write.format("delta").mode("append").save(run.table)
    run.after_effect("append")
    return report_of_commit(run) or report


def apply_to_versions(run: MicrobatchRun) -> BatchReport:
    """Merge the versions that a microbatch's events make and return what it did; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """
    return apply_once(run, _cut)


def _cut(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    decoder = plan_decoding(run.spark, run.flow, run.microbatch, target, run.facts, epochs=run.epochs)
    events = decoder.events(run.lines(), with_images=True)
    refuse_patches(run.flow.name, decoder, events)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    told = stage_events(run, decoder, events, tables, keeps_truncates=True)
    log = known_events(
        run,
        target,
        # Cut from what the archive holds today, older versions would be lost without a word.
        lost="holds versions, and the events that they were cut from are gone",
        next_step="Restore that folder; or rebuild the flow, where the archive still holds what the history shall hold.",
    )
    known = None if log is None else log.filter(F.col(MICROBATCH) != run.microbatch.number)
    snapshots, epochs = _settle_snapshots(run, decoder, told, tables, known=_events_of_living(run, target, known))
    if epochs:
        return _cut(replace(run, found_epochs=epochs), target)
    rejects, told = told.quarantine(run, decoder)
    late = may_be_late(run, target, told.staged)
    fresh, stale = told.events, 0
    if late and known is not None:
        fresh = run.write_down(without_known(fresh, known, decoder.columns.keys, table=TABLE), "fresh")
        stale = told.staged.events - told.staged.redelivered - fresh.count()
    target, changed = fit_table(run, decoder, target)
    plan = "versions of touched keys: late events" if late else "versions of touched keys"
    report = replace(told.report(run, rejects, stale=stale, changed=changed), merge_plan=plan)
    report = replace(report, snapshot=snapshots.newest, pending_snapshots=snapshots.pending, replaced_by=snapshots.replacing)
    # A copy may be what proves a snapshot.
    if not (report.events.merged or snapshots.replacing):
        return replace(report, merge_plan="nothing to merge")
    # The log's columns are the table's: an event's own type may be narrower.
    types = columns_of(run.spark, target.uri) if target else {}
    rows = log_rows(run, logged_rows(fresh, decoder, types, run.microbatch.number), known, snapshots.replacing)
    if target is None:
        return replace(report, merge_plan="nothing to merge")
    target = replace(target, columns=types)
    everything = bool(snapshots.replacing) or told.truncates.good > told.truncates.ignored
    return merge_logged(run, target, rows, report, tables, ended=snapshots.ended, everything=everything)


def log_rows(run: MicrobatchRun, rows: DataFrame, known: DataFrame | None, proven: Snapshot | None) -> DataFrame:
    """Append a microbatch's rows to the log, and the marks of a snapshot that it proves; return them as they are there."""
    if proven:
        told = [each.select(POSITION, OP, COMMITTED_AT) for each in (rows, known) if each is not None]
        reads = reduce(DataFrame.unionByName, told).filter(is_read_of(proven))
        rows = rows.unionByName(mark_of(proven, reads, run.microbatch.number), allowMissingColumns=True)
    rows = run.write_down(rows, "logged")
    append_to_log(run.spark, run.state(events_uri), rows, application=run.application, microbatch=run.microbatch.number)
    run.after_effect("log")
    return rows


def known_events(run: MicrobatchRun, target: TargetTable | None, *, lost: str, next_step: str) -> DataFrame | None:
    """Return the log of all events of the flow, None where it has none yet.

    :param lost: what it means that a table with rows has no log.
    :raises StateUnreadableError: when it has none.
    """
    log = read_appended(run.spark, run.state(events_uri))
    if log is None and target and target.size:
        raise StateUnreadableError(f"Flow {run.flow.name}: table {run.table} {lost} ({run.state(events_uri)}).", next_step=next_step)
    return log


def merge_logged(
    run: MicrobatchRun,
    target: TargetTable,
    rows: DataFrame,
    report: BatchReport,
    tables: PhysicalTables,
    *,
    ended: Snapshot | None,
    everything: bool,
) -> BatchReport:
    """Cut the versions of the keys that a microbatch's rows of the log touch anew, and merge what differs.

    :param ended: a snapshot that came to its end and removes nothing: the versions that it did not find are counted.
    :param everything: whether all keys are touched, as by a truncate.
    """
    log = run.spark.read.format("delta").load(run.state(events_uri))
    changes = cut_touched_keys(run, target, log, rows, tables=tables, everything=everything)
    report = replace(report, unavailable_unresolved=changes.unresolved)
    if ended:
        report = with_unconfirmed_versions(report, ended, current_versions(run.spark, target, changes.rows), log, tables=tables)
    with run.merging(target, report):
        merge_versions(run.spark, target, changes.rows, microbatch=run.microbatch.number)
    run.after_effect("merge")
    return report_of_commit(run) or report


def watch_snapshots(run: MicrobatchRun, decoder: Decoder, told: Told, tables: PhysicalTables) -> tuple[Snapshots, Epochs | None]:
    """Return what :func:`_settle_snapshots` does where no snapshot removes a row by being proven: in a change log, and in a table without a
    key, which is counted from a snapshot on by all known events.

    :raises SnapshotRefusedError: when the flow's policy is to stop.
    """
    policy = run.flow.on_snapshot
    flow = replace(run.flow, on_snapshot=policy if policy is OnSnapshot.STOP else OnSnapshot.KEEP)
    return _settle_snapshots(replace(run, flow=flow), decoder, told, tables)


def _settle_snapshots(
    run: MicrobatchRun, decoder: Decoder, told: Told, tables: PhysicalTables, *, known: DataFrame | None = None
) -> tuple[Snapshots, Epochs | None]:
    """Return the full snapshots; and the epochs with one that begins in the microbatch, None where the source's log did not go back.

    :param known: what reads may lose against.
    """
    reads = told.events.filter(f"{OP} = 'r' AND {SNAPSHOT} <> 'incremental'")
    keys = [sql.name(key) for key in decoder.columns.keys if key in told.events.columns]
    # What they need of row changes each read tells by itself.
    newest = F.struct(F.struct(*read_columns()).alias("newest"), read_place().alias("oldest")).alias(READS)
    latest = reads.select(*keys, POSITION, OP, PARTITION, OFFSET, newest) if told.surveyed.rows else None
    asked = partial(find_known_snapshots, run, decoder, told.all_events, told.surveyed, tables, latest=latest, known=known)
    snapshots = asked()
    if (snapshots.fell or may_have_fallen(run, decoder, told.staged)) and (epochs := find_epochs(run, decoder)):
        return snapshots, epochs
    return asked(are_copies=True) if snapshots.fell else snapshots, None


def _events_of_living(run: MicrobatchRun, target: TargetTable | None, known: DataFrame | None) -> DataFrame | None:
    """Return the known events of the keys that live."""
    if target is None or known is None:
        return None
    events = known.filter(F.col(OP).isin([operation.value for operation in ROW_OPERATIONS]))
    current = run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}").filter(IS_CURRENT)
    return events.alias("e").join(current.alias("c"), F.expr(sql.same_key("e", "c", target.keys)), "left_semi")


@dataclass(frozen=True)
class Told:
    """What a microbatch tells, and its counts."""

    events: DataFrame
    """Its good events without copies of each other, with what :func:`flag_events` adds."""
    surveyed: Surveyed
    staged: Staged
    truncates: Truncates
    all_events: DataFrame
    """The same before copies were left out, and with what is rejected."""

    def quarantine(self, run: MicrobatchRun, decoder: Decoder) -> tuple[dict[str, int], Told]:
        """Write what was not taken in to the quarantine; how many rejects by reason, and what is told with the records counted anew."""
        rejects, surveyed = quarantine(run, decoder, self.surveyed, taken=self.staged.events + self.truncates.ignored)
        return rejects, replace(self, surveyed=surveyed)

    def report(self, run: MicrobatchRun, rejects: dict[str, int], *, stale: int, changed: ColumnsChanged) -> BatchReport:
        """Return the report: every event that is new counts as merged."""
        return BatchReport(
            flow=run.flow.name,
            microbatch=run.microbatch.number,
            files=len(run.microbatch.files),
            bytes=run.microbatch.size,
            events=EventCounts(
                read=self.surveyed.read,
                merged=self.staged.events - self.staged.redelivered - stale,
                redelivered=self.staged.redelivered,
                stale=stale,
                tombstones=self.surveyed.tombstones,
                control=self.surveyed.control + self.truncates.ignored,
                rejected=sum(rejects.values()),
            ),
            rejects=rejects,
            applied_through=self.staged.last,
            committed_through=self.staged.committed_through,
            reach=self.staged.reach,
            snapshot=run.checkpoint.snapshot,
            pending_snapshots=run.checkpoint.pending_snapshots,
            epochs=run.epochs,
            order_conflicts=self.staged.conflicts,
            columns_added=changed.added,
            columns_widened=changed.widened,
            columns_as_text=changed.as_text,
            columns_filled=changed.filled,
            misfits=changed.misfits,
            types=dict(changed.types),
        )


def stage_events(
    run: MicrobatchRun,
    decoder: Decoder,
    events: DataFrame,
    tables: PhysicalTables,
    *,
    keeps_truncates: bool,
    keys: Sequence[str] | None = None,
) -> Told:
    """Write down a microbatch's good events and count them.

    :param tables: the source's tables that the topic holds.
    :param keys: columns that tell an event with its position from any other; None: the table's keys.
    :param keeps_truncates: whether there is a place for a truncate, which has no columns.
    """
    surveyed = count_surveyed(decoder.shapes)
    whole = decoder.events(run.lines()) if surveyed.truncates else events
    truncates = find_truncates(whole, surveyed, tables, {})
    if not keeps_truncates:
        truncates = replace(truncates, ignored=truncates.good)
    applies = truncates.ignored < truncates.good
    good = good_events(events, truncates=applies)
    identity = decoder.columns.keys if keys is None else keys
    if applies and not decoder.without_key:
        good = _with_tables_of_truncates(good, whole)
        # One statement truncates several tables at one position.
        identity = (*identity, TABLE)
    flagged = run.write_down(flag_events(good, identity, reads_among_changes=surveyed.is_mixed), "events")
    staged = count_staged(flagged, cancelled="false", shielded="false")
    return Told(flagged.filter(f"{REDELIVERED} = 0"), surveyed, staged, truncates, events)


def _with_tables_of_truncates(good: DataFrame, whole: DataFrame) -> DataFrame:
    """Return good events with :data:`~airflow_cdc.model.columns.TABLE`, the table that a truncate names; NULL of any other.

    :param whole: all events, with the raw text.
    """
    is_truncate = F.col(OP) == Operation.TRUNCATE.value
    named = good_events(whole, truncates=True).filter(is_truncate).withColumn(TABLE, F.expr(TABLE_OF_EVENT))
    rows = good.filter(~is_truncate).withColumn(TABLE, F.lit(None).cast("string"))
    return rows.unionByName(named, allowMissingColumns=True).select(*[sql.name(name) for name in rows.columns])


def in_columns_of(table: DataFrame, rows: DataFrame, *, microbatch: int) -> DataFrame:
    """Return rows with exactly the columns of a table, in its types; NULL where they have none."""
    ours = {name.lower() for name in rows.columns}
    held = {field.name: F.col(sql.name(field.name)) if field.name.lower() in ours else F.lit(None) for field in table.schema.fields}
    held[MICROBATCH] = F.lit(microbatch)
    return rows.select(*[held[field.name].cast(field.dataType).alias(field.name) for field in table.schema.fields])
