"""Apply one microbatch: the only place that knows the order of effects.

    read archive → decode → order → reconcile → stage     nothing outside the staging folder is touched
    write quarantine                                        an append with the microbatch's transaction identifier
    make or widen the target                                only adds what events need
    write delete markers                                    an append that may be done twice
    MERGE                                                   one Delta commit, with the same kind of identifier
    write the commit marker                                 by the caller; rebuilt from the Delta commit when lost

A crash after any of them is harmless. The quarantine knows its microbatch, so a second append of it changes nothing; the
markers know theirs, and do not count against itself. A target that was made or widened but not merged into holds
the same rows as before. A merge without commit marker is found again in the table's history.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import ABSENT, KIND, MOVED, OP_IF_ABSENT, RAW, REJECT, UNAVAILABLE
from airflow_cdc.model.epochs import Epochs
from airflow_cdc.model.errors import CountMismatchError
from airflow_cdc.model.places import delete_markers_uri, quarantine_uri
from airflow_cdc.model.report import BatchReport, EventCounts
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.apply.apply_once import apply_once, report_of_commit
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged, fit_table
from airflow_cdc.pipeline.apply.guard_late_events import guard_late_events
from airflow_cdc.pipeline.apply.known_snapshots import find_known_snapshots, with_unconfirmed
from airflow_cdc.pipeline.apply.refuse_mismatch import refuse_mismatch
from airflow_cdc.pipeline.apply.rename_columns import rename_columns
from airflow_cdc.pipeline.apply.resolve_documents import resolve_documents
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT, LINE_HASH, Decoder
from airflow_cdc.pipeline.document_columns import with_document_columns
from airflow_cdc.pipeline.find_epochs import find_epochs, may_have_fallen
from airflow_cdc.pipeline.find_snapshot import Snapshots
from airflow_cdc.pipeline.find_voids import Voids, find_voids
from airflow_cdc.pipeline.microbatch.count_events import (
    Staged,
    Surveyed,
    Truncates,
    count_kinds,
    count_staged,
    count_surveyed,
    find_truncates,
)
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.order import order_events
from airflow_cdc.pipeline.physical_tables import PhysicalTables
from airflow_cdc.pipeline.plan_decoding import plan_decoding
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import HAZARD, IS_LAST, READS, keep_latest_per_key
from airflow_cdc.pipeline.reconcile.trace_moved_rows import count_unpaired, trace_moved_rows
from airflow_cdc.pipeline.record.append_once import append, append_once
from airflow_cdc.pipeline.record.delete_markers import markers_of
from airflow_cdc.pipeline.record.quarantine import quarantined_rows
from airflow_cdc.pipeline.target.count_row_changes import count_row_changes
from airflow_cdc.pipeline.target.flag_voided import flag_voided
from airflow_cdc.pipeline.target.key_range import ranged
from airflow_cdc.pipeline.target.merge_row_changes import Merge, merge_row_changes
from airflow_cdc.pipeline.target.target_table import TargetTable


def apply_microbatch(run: MicrobatchRun) -> BatchReport:
    """Apply a microbatch and return what it did; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """
    return apply_once(run, apply_by_key)


def apply_by_key(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    """Merge a microbatch's row changes by key.

    :raises SourceLogWentBackError: when the source's log went back without a snapshot, and the flow's policy is to stop.
    """
    settled = _settle(run, target)
    run, decoder, staged, voids = settled.run, settled.decoder, settled.staged, settled.voids
    rejects, surveyed = quarantine(run, decoder, settled.surveyed, taken=staged.events + settled.truncates.good)
    late = may_be_late(run, settled.target, staged)
    target, changed = fit_table(run, decoder, settled.target)
    report = settled.report(_count(surveyed, staged, settled.truncates, rejects), rejects, changed)
    report = replace(report, merge_plan="guarded merge: late events" if late else "merge")
    if target is None or not (staged.live or voids.rows):
        return replace(report, merge_plan="nothing to merge")
    # Where there is nothing but a truncate the merge needs a source all the same.
    row_changes = no_row_changes(run) if settled.row_changes is None else settled.row_changes
    live = row_changes.filter(f"NOT ({voids.here}) AND NOT ({voids.before})")
    if settled.snapshots.ended:
        report = with_unconfirmed(run, report, settled.snapshots.ended, target, live, tables=settled.tables)
    others = [name for name in decoder.columns.types if name not in target.keys]
    voided = flag_voided(row_changes.filter(voids.here), voids.rows[-1], others) if voids.rows and target.flags_deletes else None
    return _merge(run, decoder, target, live, report, staged=staged, late=late, voids=voids, voided=voided)


@dataclass(frozen=True)
class _Settled:
    """What a microbatch amounts to, once it is known which epochs of the source's log begin in it."""

    run: MicrobatchRun
    """With these epochs."""
    decoder: Decoder
    target: TargetTable | None
    renamed: dict[str, str]
    """Columns of the target that took the source's newer name, by the older one."""
    surveyed: Surveyed
    tables: PhysicalTables
    truncates: Truncates
    snapshots: Snapshots
    voids: Voids
    row_changes: DataFrame | None
    """None where the microbatch has none."""
    staged: Staged
    unpaired: int
    """Row changes that came from a key whose delete is not here."""

    def report(self, events: EventCounts, rejects: dict[str, int], changed: ColumnsChanged) -> BatchReport:
        """Return the report of the microbatch as far as it is known before the merge."""
        staged, snapshots, microbatch = self.staged, self.snapshots, self.run.microbatch
        return BatchReport(
            flow=self.run.flow.name,
            microbatch=microbatch.number,
            files=len(microbatch.files),
            bytes=microbatch.size,
            events=events,
            rejects=rejects,
            applied_through=staged.last,
            truncated_through=dict(self.truncates.through),
            committed_through=staged.committed_through,
            reach=staged.reach | self.truncates.reach,
            snapshot=snapshots.newest,
            pending_snapshots=snapshots.pending,
            replaced_by=snapshots.replacing,
            epochs=self.run.epochs,
            unpaired_moves=self.unpaired,
            asks_target=bool(staged.untold or staged.unknown),
            order_conflicts=staged.conflicts,
            columns_added=changed.added,
            columns_renamed=self.renamed,
            columns_widened=changed.widened,
            columns_as_text=changed.as_text,
            columns_filled=changed.filled,
            misfits=changed.misfits,
            types=dict(changed.types),
        )


def _settle(run: MicrobatchRun, target: TargetTable | None) -> _Settled:
    """Settle a microbatch; anew with each epoch that is found to begin in it."""
    renamed: dict[str, str] = {}
    while True:
        decoder = plan_decoding(run.spark, run.flow, run.microbatch, target, run.facts, epochs=run.epochs)
        target, names = rename_columns(run, decoder.columns, target)
        renamed |= names
        settled = _settle_with(run, decoder, target, renamed)
        if isinstance(settled, _Settled):
            return settled
        run = replace(run, found_epochs=settled)


def _settle_with(run: MicrobatchRun, decoder: Decoder, target: TargetTable | None, renamed: dict[str, str]) -> _Settled | Epochs:
    """Settle a microbatch; or return the epochs with one more that begins in it."""
    surveyed = count_surveyed(decoder.shapes)
    events = decoder.events(run.lines())
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    truncates = find_truncates(events, surveyed, tables, run.checkpoint.truncated_through)
    latest = latest_changes(run, decoder, events, surveyed) if surveyed.rows else None
    changes, rows = latest.changes if latest else None, run.rows_of(target) if target else None
    asked = partial(find_known_snapshots, run, decoder, events, surveyed, tables, latest=changes, known=rows)
    snapshots = asked()
    are_copies = snapshots.fell
    if snapshots.fell:
        if epochs := find_epochs(run, decoder):
            return epochs
        snapshots = asked(are_copies=True)
    while True:
        voids = find_voids(run, truncates, snapshots, tables, are_copies=are_copies)
        row_changes, staged, unpaired = _fold(run, decoder, latest, surveyed, target, voids=voids) if latest else (None, Staged(), 0)
        if are_copies or not may_have_fallen(run, decoder, staged):
            return _Settled(run, decoder, target, renamed, surveyed, tables, truncates, snapshots, voids, row_changes, staged, unpaired)
        if epochs := find_epochs(run, decoder):
            return epochs
        are_copies = True


def no_row_changes(run: MicrobatchRun) -> DataFrame:
    """Return row changes of the target's columns, none."""
    none = {OP_IF_ABSENT: "STRING", UNAVAILABLE: "ARRAY<STRING>", ABSENT: "ARRAY<STRING>"}
    columns = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in none.items())
    return run.spark.sql(f"SELECT *, {columns} FROM {sql.delta(run.table)} WHERE false")


@dataclass(frozen=True)
class Latest:
    """Each key's last event, and of which keys it does not tell what is left."""

    changes: DataFrame
    """As :func:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key` returns them."""
    hazardous: DataFrame | None = None
    """Key and line hash of every event of the others; None for documents, which are told apart later."""


def latest_changes(run: MicrobatchRun, decoder: Decoder, events: DataFrame, surveyed: Surveyed) -> Latest:
    """Return each key's last event, written down once: MERGE reads its source twice, and the counts come from there too."""
    keys, columns = decoder.columns.keys, list(decoder.columns.types)
    events = events.filter(IS_ROW_EVENT)
    has_versions = not decoder.dialect.documents
    ordered = order_events(events, keys, reads_among_changes=surveyed.is_mixed)
    names = not decoder.dialect.commit_tells_transaction
    written = run.write_down(keep_latest_per_key(ordered, keys, columns, and_hazardous=has_versions, names_transactions=names), "latest")
    if not has_versions:
        return Latest(written)
    hazardous = written.filter(f"{HAZARD} = 1").select(*map(sql.name, keys), LINE_HASH)
    return Latest(written.filter(IS_LAST).drop(IS_LAST, LINE_HASH), hazardous)


def _fold(
    run: MicrobatchRun, decoder: Decoder, latest: Latest, surveyed: Surveyed, target: TargetTable | None, *, voids: Voids
) -> tuple[DataFrame, Staged, int]:
    """Return the row changes, what they amount to, and how many came from a key whose delete is not here."""
    names = not decoder.dialect.commit_tells_transaction
    # As the events are typed: the table's own type may have to be widened yet.
    types = {name: rule.sql_type for name, rule in decoder.columns.types.items()}
    asked = ranged(types, target.keys, table_bytes=target.size) if target else {}
    count = partial(count_staged, cancelled=voids.here, shielded=voids.before, names_transactions=names, ranged=asked)
    if latest.hazardous is not None:
        # Counted as if nothing had to be folded, in the job that tells whether: mostly nothing has.
        staged = count(latest.changes, and_hazards=True)
        if not staged.hazards:
            return latest.changes.drop(READS), staged, 0
    row_changes, unpaired = resolve_hazards(run, decoder, latest, surveyed, target, voided=voids.of_events)
    return row_changes, count(row_changes), unpaired


def resolve_hazards(
    run: MicrobatchRun, decoder: Decoder, latest: Latest, surveyed: Surveyed, target: TargetTable | None, *, voided: str = "false"
) -> tuple[DataFrame, int]:
    """Return the row changes, folded where the last event alone does not tell, and how many came from a key whose delete is not here.

    :param voided: SQL over an event: whether a truncate or a snapshot took what it wrote.
    """
    keys, columns = decoder.columns.keys, list(decoder.columns.types)
    if latest.hazardous is None:
        return resolve_documents(run, decoder, latest.changes, target), 0
    changes, hazardous = latest.changes.drop(READS), latest.hazardous

    def with_images(lines: DataFrame) -> DataFrame:
        events = decoder.events(lines, with_images=True).filter(IS_ROW_EVENT)
        return order_events(events, keys, reads_among_changes=surveyed.is_mixed)

    # Images are dear: only of the lines that tell of these keys. A line that hashes like one of them tells of another.
    lines = run.lines().join(F.broadcast(hazardous.select(LINE_HASH)), F.xxhash64(RAW) == F.col(LINE_HASH), "left_semi")
    theirs = with_images(lines).join(F.broadcast(hazardous.drop(LINE_HASH)), list(keys), "left_semi")
    folded = fold_row_versions(theirs, keys, columns, keeps_deleted=decoder.keeps_deleted, voided=voided)
    folded = run.write_down(folded, "folded")
    moved = folded.filter(f"{MOVED} IS NOT NULL")
    unpaired = 0
    if not moved.isEmpty():
        rows = run.rows_of(target) if target else None
        types = decoder.columns.types
        # Each step of the way back asks the events again.
        everything = run.write_down(with_images(run.lines()), "events")
        folded = trace_moved_rows(folded, everything, rows, keys=keys, columns=types, write_down=run.write_down)
        unpaired = count_unpaired(moved, everything)
    return changes.filter(f"{HAZARD} = 0").unionByName(folded), unpaired


def quarantine(run: MicrobatchRun, decoder: Decoder, surveyed: Surveyed, *, taken: int) -> tuple[dict[str, int], Surveyed]:
    """Write the rejects to the flow's quarantine; a second look at the archive, taken only where there are any.

    :param taken: how many events were taken in.
    :return: how many rejects by reason, and the survey's count; of odd records decoding may know better what they are.
    :raises CountMismatchError: when records are lost between the two.
    :raises ColumnMismatchError: when one column does not fit most of the events.
    """
    if surveyed.to_account_for == taken:
        return {}, surveyed
    decoded = decoder.events(run.lines(numbered=True))
    rows = quarantined_rows(decoded.filter(F.col(REJECT).isNotNull()), topic=run.flow.topic, microbatch=run.microbatch.number)
    by_reason = {row["reason"]: int(row["count"]) for row in rows.groupBy("reason").count().collect()}
    rejected = sum(by_reason.values())
    if surveyed.to_account_for != taken + rejected:
        told = count_kinds({row[KIND]: int(row["count"]) for row in decoded.groupBy(KIND).count().collect()})
        if told.read != surveyed.read or told.to_account_for != taken + rejected:
            raise CountMismatchError(
                f"Flow {run.flow.name}, microbatch {run.microbatch.number}: the archive was found to hold {surveyed.read} records, of which"
                f" {told.read} were read; {taken} are taken in and {rejected} rejected ({by_reason}) of {told.to_account_for}.",
                next_step="Nothing was merged. Please report this with the microbatch's intent file.",
            )
        surveyed = told
    refuse_mismatch(run, rows, by_reason, events=surveyed.rows)
    if rejected and not run.is_dry:
        uri = run.state(quarantine_uri)
        append_once(run.spark, rows, uri, application=f"quarantine:{run.application}", version=run.microbatch.number)
        run.after_effect("quarantine")
    return by_reason, surveyed


def _count(surveyed: Surveyed, staged: Staged, truncates: Truncates, rejects: dict[str, int]) -> EventCounts:
    """Return where every record went (design, section 1)."""
    applied_truncates = truncates.good - truncates.ignored - truncates.stale
    return EventCounts(
        read=surveyed.read,
        merged=staged.live + min(applied_truncates, 1),
        superseded=staged.events - staged.redelivered - staged.live - staged.shielded + max(applied_truncates - 1, 0),
        redelivered=staged.redelivered,
        stale=staged.shielded + truncates.stale,
        tombstones=surveyed.tombstones,
        control=surveyed.control + truncates.ignored,
        rejected=sum(rejects.values()),
    )


def _merge(
    run: MicrobatchRun,
    decoder: Decoder,
    target: TargetTable,
    live: DataFrame,
    report: BatchReport,
    *,
    staged: Staged,
    late: bool,
    voids: Voids,
    voided: DataFrame | None,
) -> BatchReport:
    vanishing = voids.rows
    guarded = guard_late_events(run, decoder, target, live, staged, late=late)
    events = replace(report.events, merged=report.events.merged - guarded.stale, stale=report.events.stale + guarded.stale)
    report = replace(report, events=events, unpaired_moves=report.unpaired_moves - guarded.paired, transactions_unjoined=guarded.unjoined)
    fresh = guarded.row_changes
    if run.is_dry:
        counted = count_row_changes(run.spark, target, fresh, vanishing=vanishing)
        return replace(report, rows=counted, merge_plan="dry run")
    if staged.has_deletes or guarded.rejoined:
        markers = markers_of(fresh, target.keys, run.microbatch.number)
        append(run.spark, markers, run.state(delete_markers_uri))
        run.after_effect("delete_markers")
    if guarded.stale == staged.live and not guarded.paired and not vanishing:
        return replace(report, merge_plan="nothing to merge: every event is stale")
    if voided is not None:
        fresh = fresh.unionByName(voided.select(*[sql.name(name) for name in fresh.columns]))
    fresh = with_document_columns(fresh, run.flow.document_columns)
    # What is taken up again may have other keys, and what vanishes may have any.
    within = () if guarded.rejoined or vanishing else staged.ranges
    with run.merging(target, report, within=within):
        merge = Merge(
            row_changes=fresh,
            columns=[name for name in fresh.columns if name in target.columns],
            microbatch=run.microbatch.number,
            late=late,
            vanishing=vanishing,
            unread=voids.unread.rows if voids.unread else "false",
            untold=sorted({*staged.untold, *staged.retold}) if late else staged.untold,
            document_columns=run.flow.document_columns,
            within=within,
        )
        merge_row_changes(run.spark, target, merge)
    run.after_effect("merge")
    return report_of_commit(run) or report


def may_be_late(run: MicrobatchRun, target: TargetTable | None, staged: Staged) -> bool:
    """Tell whether rows or delete markers newer than the microbatch may exist."""
    if target is None:
        return False
    # A table without checkpoint was filled by somebody else, or its state was lost.
    unknown_history = not run.checkpoint.reach.partitions and target.size > 0
    return unknown_history or staged.reach.may_meet(run.checkpoint.reach)
