"""Keep late events from overwriting newer rows, and complete transactions and key changes that earlier microbatches hold in part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial, reduce
from typing import TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import are_values
from airflow_cdc.model.columns import DELETED, DEPENDS, OFFSET, OP, ORDINAL, PARTITION, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.errors import ArchivedFileMissingError, TableHistoryGoneError
from airflow_cdc.model.flow.policies import OnMissingFile
from airflow_cdc.model.places import delete_markers_uri, expired_markers_uri
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.earlier_events import IS_NEW, folded, in_order, with_earlier
from airflow_cdc.pipeline.apply.guarded import Guarded, Unguarded
from airflow_cdc.pipeline.apply.mend_moved_rows import mend_moved_rows
from airflow_cdc.pipeline.apply.resolve_documents import fold_late_documents
from airflow_cdc.pipeline.apply.settled import may_have_been_applied, may_meet_markers
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE, IS_ROW_EVENT
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.microbatch.reading_earlier import reading_earlier
from airflow_cdc.pipeline.reconcile.drop_stale import drop_stale, known_of, leave_to_rows
from airflow_cdc.pipeline.reconcile.fold_documents import drop_known_documents
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH, reach_of
from airflow_cdc.pipeline.reconcile.order_events import comparable, shared_place
from airflow_cdc.pipeline.reconcile.rejoin_transactions import (
    CUT_AT,
    find_awaited_moves,
    find_cut_keys,
    find_parted_moves,
    find_parted_transactions,
    find_unsettled,
    first_part,
    upon_prior,
)
from airflow_cdc.pipeline.reconcile.rule import is_tie, may_meet
from airflow_cdc.pipeline.reconcile.settle_ties import in_settled_order
from airflow_cdc.pipeline.reconcile.trace_moved_rows import Traced, trace_moved_rows
from airflow_cdc.pipeline.record.delete_markers import newest_per_transaction, read_markers, without_own
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.flag_deletes import IS_LIVE
from airflow_cdc.pipeline.target.table_history import read_history
from airflow_cdc.pipeline.target.target_table import TargetTable

_Folded = TypeVar("_Folded")
_CONTENT, _IS_MIXED = "__cdc_content_of_event", "__cdc_is_mixed"
_MOST_BROADCAST = 1_000_000
"""Row changes that each task of a look at the table holds: their keys and places alone."""


def guard_late_events(asked: Unguarded) -> Guarded:
    """Return the row changes that are not stale; those of cut transactions and split key changes are folded again, and rows are mended that
    late events under earlier keys are about.

    :raises TableHistoryGoneError: when the table version on which a cut transaction began is gone.
    :raises ArchivedFileMissingError: when a file with its beginning is gone, and the flow's policy is to stop.
    """
    known = _look_up(asked)
    if asked.decoder.dialect.documents:
        return _guard_documents(asked, known) if known else Guarded(row_changes=asked.live)
    return mend_moved_rows(asked, _guard(asked, known), partial(_markers, asked.run))


def _guard(asked: Unguarded, known: _Known | None) -> Guarded:
    run, live, staged, keys = asked.run, asked.live, asked.staged, asked.keys
    moves = () if asked.moves is None else (asked.moves,)
    awaited = bool(run.checkpoint.unpaired_moves and staged.has_deletes)
    voids = asked.held and bool(asked.voids.rows)
    if not (known or awaited or staged.unknown or voids):
        return Guarded(row_changes=live, moves=moves)
    parted = _parted(asked, _markers(run) if staged.unknown or voids else None, awaited=awaited)
    # Read for the reach and for the table's version; each is a file of the lake's state.
    report_of = cache(run.past.report)
    markers = known.markers if known else None
    again = run.microbatch.is_again
    if markers is not None and again:
        markers = without_own(markers, live, keys)
    cut = None
    # A microbatch that is read again was completed when it was new.
    if known and not again:
        of_text = find_parted_transactions(report_of, run.microbatch.number, staged.reach)
        cut = find_cut_keys(live, known.rows, markers, keys=keys, has_reads=asked.has_reads, parted=of_text)
        cut = run.write_down(cut.unionByName(_find_other_events(asked, known.rows)), "cut")
    traced, unjoined = _unless_gone(run, partial(_rejoin, asked, report_of, cut=cut, parted=parted))
    rejoined, moves = (traced.row_changes, (*moves, traced.moves)) if traced else (None, moves)
    live, kept = _without_doubtful_deletes(live, cut if unjoined else None, keys)
    if known is None and rejoined is None:
        return Guarded(row_changes=live, moves=moves, unjoined=unjoined)
    if rejoined is not None:
        live = live.join(rejoined.select(*map(sql.name, keys)), keys, "left_anti")
    fresh, stale = live, 0
    if known:
        fresh, beaten = drop_stale(live, known.rows, markers, keys=keys, deleted=known.deleted)
        stale = beaten.count()
    if known and staged.from_older_events:
        fresh = leave_to_rows(fresh, known.rows, keys)
    if rejoined is not None:
        fresh = fresh.unionByName(rejoined)
    return Guarded(
        # MERGE and the delete markers each read this frame twice.
        row_changes=run.write_down(fresh, "guarded"),
        is_late=known is not None,
        rejoined=rejoined is not None,
        stale=stale + kept,
        paired=parted.count() if parted is not None and rejoined is not None else 0,
        unjoined=unjoined,
        moves=moves,
    )


def _unless_gone(run: MicrobatchRun, fold: Callable[[], _Folded | None]) -> tuple[_Folded | None, int]:
    """Return the folded changes and 0; or None and the number of keys that a missing file leaves open, if the policy is to go on."""
    try:
        return fold(), 0
    except ArchivedFileMissingError as gone:
        if run.flow.on_missing_file is OnMissingFile.STOP:
            raise
        return None, int(gone.facts["keys"])


def _find_other_events(asked: Unguarded, rows: DataFrame) -> DataFrame:
    """Return the keys (and :data:`CUT_AT`) whose row has the position of its row change, and holds other values than that carries: it is
    of another event at the same position.

    :param rows: what is known of the target's rows.
    """
    keys, live = asked.keys, asked.live
    is_tied = is_tie("k", "s", are_values=are_values(asked.decoder.shapes))
    on = F.expr(f"{sql.same_key('s', 'k', keys)} AND {is_tied}")
    tied = live.alias("s").join(rows.alias("k"), on, "left_semi")
    held = asked.run.spark.sql(f"SELECT * FROM {sql.delta(asked.target.uri)}")
    columns = [name for name in asked.decoder.columns.types if name not in keys and name in held.columns]
    differs = " OR ".join(
        f"(NOT coalesce(array_contains(s.{UNAVAILABLE}, {sql.text(name)}), false)"
        f" AND NOT {comparable(live, name, 's')} <=> {comparable(held, name, 't')})"
        for name in columns
    )
    met = tied.alias("s").join(held.alias("t"), F.expr(f"{sql.same_key('s', 't', keys)} AND ({differs or 'false'})"))
    return met.select(*[F.col(f"s.{sql.name(key)}") for key in keys], F.expr(f"s.{POSITION}.commit").alias(CUT_AT))


def _without_doubtful_deletes(live: DataFrame, cut: DataFrame | None, keys: list[str]) -> tuple[DataFrame, int]:
    """Return the row changes without deletes of keys whose transaction cannot be completed, and the number of those deletes.

    Such a delete may remove the transaction's own row or the row before it: too weak to delete on.
    """
    if cut is None:
        return live, 0
    doubtful = live.filter(f"{OP} = 'd'").join(cut.select(*map(sql.name, keys)), keys, "left_semi").select(*map(sql.name, keys))
    count = doubtful.count()
    return (live.join(doubtful, keys, "left_anti").select(*map(sql.name, live.columns)), count) if count else (live, 0)


def _markers(run: MicrobatchRun) -> DataFrame | None:
    expired = run.state(expired_markers_uri) if may_have_been_applied(run) else None
    return read_markers(run.spark, run.state(delete_markers_uri), except_microbatch=run.microbatch.number, expired_uri=expired)


@dataclass(frozen=True, kw_only=True)
class _Known:
    """State of a microbatch's keys in the target and the delete markers."""

    rows: DataFrame
    """Live rows: keys, position, operation, offset, and which values are older."""
    deleted: DataFrame | None
    """As above, for rows flagged as deleted; None where the table keeps none."""
    markers: DataFrame | None
    """One per key and transaction, for documents all; None where there are none."""


def _look_up(asked: Unguarded) -> _Known | None:
    """Return what is known of the row changes' keys and may meet their events, materialized: each further read of the target would scan
    all of it. None where there is nothing, as usual.
    """
    if not (asked.held and asked.staged.live):
        return None
    run, target = asked.run, asked.target
    flag = [DELETED] if target.flags_deletes else []
    rows = run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")
    ours = (POSITION, OP, PARTITION, OFFSET, VALUE_POSITIONS, *flag)
    held = run.write_down(_met(asked, rows.select(*map(sql.name, target.keys), *ours)), "known")
    markers = _known_markers(asked, rows) if may_meet_markers(run, asked.staged, has_reads=asked.has_reads) else None
    if held.isEmpty() and (markers is None or markers.isEmpty()):
        return None
    if target.flags_deletes:
        return _Known(rows=held.filter(IS_LIVE), deleted=held.filter(DELETED), markers=markers)
    return _Known(rows=held, deleted=None, markers=markers)


def _met(asked: Unguarded, known: DataFrame) -> DataFrame:
    """Return the known states that may meet the events of a row change."""
    met = may_meet("k", "s", reach_of("s"), has_reads=asked.has_reads)
    if asked.staged.reach.shares_transaction(asked.run.checkpoint.reach):
        # Of one transaction, known by its text alone, the later part has higher positions.
        met = "true"
    changes = asked.live.select(*map(sql.name, asked.keys), POSITION, OFFSET, PARTITION, REACH, VALUE_POSITIONS)
    # To sort the rows of a large table would cost more than the look.
    changes = F.broadcast(changes) if asked.staged.keys <= _MOST_BROADCAST else changes
    within = " AND ".join(keys.of_rows("k") for keys in asked.staged.ranges) or "true"
    return known.alias("k").filter(within).join(changes.alias("s"), F.expr(f"{sql.same_key('s', 'k', asked.keys)} AND {met}"), "left_semi")


def _known_markers(asked: Unguarded, rows: DataFrame) -> DataFrame | None:
    """Return the delete markers that may meet events.

    A marker of a key that the table holds says nothing: the row came later, or the run that wrote the marker did not merge. Except where
    the row stayed while others came and went.

    :param rows: of the target.
    """
    run, keys = asked.run, asked.keys
    markers = _markers(run)
    if markers is None:
        return None
    live = rows.filter(IS_LIVE) if asked.target.flags_deletes else rows
    theirs = _met(asked, markers)
    gone = theirs.filter(f"{OP} = 'd' AND NOT {DEPENDS}").join(live.select(*map(sql.name, keys)), keys, "left_anti")
    theirs = theirs.filter(f"{OP} <> 'd' OR {DEPENDS}").unionByName(gone)
    return run.write_down(theirs if asked.decoder.dialect.documents else newest_per_transaction(theirs, keys), "markers")


def _guard_documents(asked: Unguarded, known: _Known) -> Guarded:
    """As :func:`guard_late_events`, for documents: no document takes another's key, but each event may carry a part of the document."""
    run, target, live, keys = asked.run, asked.target, asked.live, asked.keys
    of_keys = known_of(known.rows, known.markers, known.deleted, keys=keys)
    folded, unjoined = _unless_gone(run, partial(fold_late_documents, run, asked.decoder, live, known=of_keys, target=target))
    others = live if folded is None else live.join(folded.select(*map(sql.name, keys)), keys, "left_anti")
    fresh, beaten = drop_stale(others, known.rows, known.markers, keys=keys, deleted=known.deleted)
    stale = beaten.count()
    if folded is not None:
        news, old = drop_known_documents(folded, run.rows_of(target), of_keys, keys=keys)
        fresh, stale = fresh.unionByName(news), stale + old.count()
    row_changes = run.write_down(fresh, "guarded")
    return Guarded(row_changes=row_changes, is_late=True, rejoined=folded is not None, stale=stale, unjoined=unjoined)


def _with_tables(markers: DataFrame, column: str | None) -> DataFrame:
    """Return markers with the column that names a row's table; NULL, and so of no table, where it is none of the key."""
    return markers if column is None or column in markers.columns else markers.withColumn(column, F.lit(None).cast("string"))


def _parted(asked: Unguarded, markers: DataFrame | None, *, awaited: bool) -> DataFrame | None:
    """Return the keys of moved rows of which this microbatch holds only the create or only the delete; and of rows whose outcome depends on
    what it voids.

    :param awaited: whether rows of the target still lack a delete.
    """
    run, found = asked.run, []
    if asked.staged.unknown and markers is not None:
        found.append(find_parted_moves(asked.live, markers, asked.keys))
    if asked.voids.rows and markers is not None:
        found.append(find_unsettled(_with_tables(markers, run.flow.table_column), asked.keys, gone=asked.voids.of_rows))
    if awaited:
        deletes = asked.decoder.events(run.lines()).filter(f"{IS_ROW_EVENT} AND {OP} = 'd'").select(POSITION)
        found.append(find_awaited_moves(deletes, run.rows_of(asked.target), asked.keys))
    if not found:
        return None
    parted = run.write_down(reduce(DataFrame.unionByName, found).distinct(), "parted")
    return None if parted.isEmpty() else parted


def _rejoin(
    asked: Unguarded, report_of: Callable[[int], BatchReport | None], *, cut: DataFrame | None, parted: DataFrame | None
) -> Traced | None:
    """Return the row changes of keys whose transaction an earlier microbatch applied in part; None where there are none.

    :param cut: keys with the rest of a transaction in this microbatch.
    :param parted: keys to fold again whatever this microbatch holds of them (:func:`_parted`).
    """
    run, decoder, target, keys = asked.run, asked.decoder, asked.target, asked.keys
    named = [sql.name(key) for key in keys]
    concerned = [frame for frame in (cut, parted) if frame is not None]
    if not concerned:
        return None
    commits = sorted(int(row[0]) for row in reduce(DataFrame.unionByName, concerned).select(CUT_AT).distinct().collect())
    if not commits:
        return None
    first = first_part(report_of, run.microbatch.number, commits, reach=asked.staged.reach)
    if first is None:
        return None
    columns = list(decoder.columns.types)
    with reading_earlier(run, reduce(DataFrame.unionByName, concerned).select(*named)):
        everything = run.write_down(in_order(with_earlier(asked, first), asked), "everything")
    theirs = everything.join(_touched(everything, asked, cut=cut, parted=parted), keys, "left_semi")
    restarts = decoder.change_restarts
    theirs = in_settled_order(theirs, keys, place=run.name, change_restarts=restarts)
    rejoined = folded(theirs, asked, "rejoined")
    prior = _rows_before(run, target, first, report_of=report_of).filter(f"NOT {asked.voids.of_rows}")
    lived = prior.filter(IS_LIVE) if target.flags_deletes else prior
    outcome = upon_prior(rejoined, prior, keys, columns=columns, flags_deletes=target.flags_deletes)
    types = decoder.columns.types
    traced = trace_moved_rows(outcome, everything, lived, keys=keys, columns=types, change_restarts=restarts, write_down=run.write_down)
    row_changes = traced.row_changes.select(*map(sql.name, asked.live.columns))
    return Traced(run.write_down(row_changes, "outcome"), traced.moves)


def _touched(everything: DataFrame, asked: Unguarded, *, cut: DataFrame | None, parted: DataFrame | None) -> DataFrame:
    """Return the keys to fold again: those of moved rows, and those of cut transactions with new events in this microbatch."""
    keys = asked.keys
    named = [sql.name(key) for key in keys]
    wanted = [] if parted is None else [parted.select(*named)]
    if cut is not None:
        # A file that arrives again brings no new event. Neither does a copy with another offset, if all that share its position are alike.
        place, content = [*named, POSITION], [OP, BEFORE, AFTER]
        theirs = everything.join(cut.select(*named), keys, "left_semi").withColumn(_CONTENT, F.xxhash64(*content))
        shared = shared_place(change_restarts=asked.decoder.change_restarts)
        at_place = Window.partitionBy(*named, F.expr(shared))
        mixed = F.min(_CONTENT).over(at_place) != F.max(_CONTENT).over(at_place)
        judged = theirs.withColumn(_IS_MIXED, mixed)
        same = [f"s.{name} <=> k.{name}" for name in (*place, *content)]
        same.append(f"(NOT s.{_IS_MIXED} OR coalesce(s.{PARTITION} = k.{PARTITION} AND s.{ORDINAL}.offset = k.{ORDINAL}.offset, true))")
        seen = judged.filter(f"NOT {IS_NEW}").alias("k")
        wanted.append(judged.filter(IS_NEW).alias("s").join(seen, F.expr(" AND ".join(same)), "left_anti").select(*named))
    return reduce(DataFrame.unionByName, wanted).distinct()


def _rows_before(run: MicrobatchRun, target: TargetTable, first: int, *, report_of: Callable[[int], BatchReport | None]) -> DataFrame:
    """Return the target's rows, including flagged deletes, as of just before the first of some microbatches was merged."""
    reports = (report_of(number) for number in range(first, run.microbatch.number))
    version = next((report.table_version for report in reports if report and report.table_version is not None), None)
    if version is None:
        return run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")
    try:
        rows = run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)} VERSION AS OF {version - 1}")
    except AnalysisException as error:
        raise _gone(run, target, first, version=version - 1, why=str(error.getCondition())) from error
    # The log still lists versions whose files were vacuumed. Reading them would fail only later, and look like a transient error.
    if not read_history(run.spark, target.uri).is_readable(version - 1):
        raise _gone(run, target, first, version=version - 1, why="its files were vacuumed")
    return rows


def _gone(run: MicrobatchRun, target: TargetTable, first: int, *, version: int, why: str) -> TableHistoryGoneError:
    return TableHistoryGoneError(
        f"Flow {run.flow.name}, microbatch {run.microbatch.number}: it holds the rest of a transaction that microbatch {first} began,"
        f" and version {version} of {target.uri}, upon which that one was merged, is gone ({why}).",
        next_step="Rebuild the table from the archive; keep table versions longer than late files take to arrive.",
    )
