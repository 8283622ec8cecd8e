"""Fold changes: reduce each key's events of a microbatch to at most one row change, staged and counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import ABSENT, MOVED, OP_IF_ABSENT, RAW, UNAVAILABLE
from airflow_cdc.pipeline.apply.resolve_documents import resolve_documents
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT, LINE_HASH, MOVED_TYPE, Decoder
from airflow_cdc.pipeline.evidence.find_voids import Voids
from airflow_cdc.pipeline.microbatch.count_events import Staged, Surveyed, count_staged
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import HAZARD, IS_HAZARD, IS_LAST, REACH, REACH_MEMBERS, READS, keep_latest_per_key
from airflow_cdc.pipeline.reconcile.order_events import order_events
from airflow_cdc.pipeline.reconcile.settle_ties import in_settled_order
from airflow_cdc.pipeline.reconcile.trace_moved_rows import trace_moved_rows, unpaired_moves
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.key_range import ranged
from airflow_cdc.pipeline.target.target_table import TargetTable


def no_row_changes(run: MicrobatchRun) -> DataFrame:
    """Return an empty frame of row changes with the target's columns."""
    none = {
        OP_IF_ABSENT: "STRING",
        UNAVAILABLE: "ARRAY<STRING>",
        ABSENT: "ARRAY<STRING>",
        MOVED: MOVED_TYPE,
        REACH: sql.struct_type(REACH_MEMBERS),
    }
    columns = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in none.items())
    return run.spark.sql(f"SELECT *, {columns} FROM {sql.delta(run.table)} WHERE false")


@dataclass(frozen=True)
class Latest:
    """Each key's last event, and the keys for which it alone does not decide the row."""

    changes: DataFrame
    """As :func:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key` returns them."""
    hazardous: DataFrame | None = None
    """Key, line hash and :data:`HAZARD` of every event of such keys; None for documents, which are separated later."""
    staged: Staged | None = None
    """Counts of the changes if nothing voids any; None where they are not known."""


def latest_changes(run: MicrobatchRun, decoder: Decoder, events: DataFrame, *, surveyed: Surveyed) -> Latest:
    """Return each key's last event, materialized once: MERGE reads its source twice, and the counts come from it too."""
    keys, columns = decoder.columns.keys, list(decoder.columns.types)
    events = events.filter(IS_ROW_EVENT)
    has_versions = not decoder.dialect.documents
    restarts = decoder.change_restarts
    ordered = order_events(events, keys, reads_among_changes=surveyed.is_mixed, change_restarts=restarts)
    names = not decoder.dialect.commit_identifies_transaction
    latest = keep_latest_per_key(
        ordered,
        keys,
        columns,
        and_hazardous=has_versions,
        names_transactions=names,
        may_lack_offsets=run.microbatch.has_unnumbered,
        change_restarts=restarts,
        dropped=decoder.columns.dropped,
    )
    written = run.write_down(latest, "latest")
    if not has_versions:
        return Latest(written)
    hazardous = written.filter(IS_HAZARD).select(*map(sql.name, keys), LINE_HASH, HAZARD)
    return Latest(written.filter(IS_LAST).drop(IS_LAST, LINE_HASH), hazardous)


@dataclass(frozen=True, kw_only=True)
class Folded:
    """The row changes of a microbatch."""

    row_changes: DataFrame | None = None
    """At most one per key; None where the microbatch has none."""
    staged: Staged = field(default_factory=Staged)
    """Their counts."""
    unpaired: int = 0
    """Number of rows moved from a key whose delete is not in this microbatch."""
    moves: DataFrame | None = None
    """The key changes that the row changes were traced through; None where there are none."""


def fold_changes(
    run: MicrobatchRun, decoder: Decoder, latest: Latest, *, surveyed: Surveyed, target: TargetTable | None, voids: Voids
) -> Folded:
    """Return the row changes; folds only the keys whose last event alone does not decide the row."""
    if latest.staged and voids.are_none:
        return Folded(row_changes=latest.changes.drop(READS), staged=latest.staged)
    names = not decoder.dialect.commit_identifies_transaction
    # The events' types: the table's own type may still have to be widened.
    types = decoder.columns.sql_types
    asked = ranged(types, target.keys, table_bytes=target.size) if target else {}
    count = partial(count_staged, cancelled=voids.here, shielded=voids.before, names_transactions=names, ranged=asked)
    if latest.hazardous is not None:
        # Counted as if nothing had to be folded, in the job that finds out; usually nothing has.
        staged = count(latest.changes, and_hazards=True)
        if not staged.hazards:
            return Folded(row_changes=latest.changes.drop(READS), staged=staged)
    folded = resolve_hazards(run, decoder, latest, surveyed=surveyed, target=target, voided=voids.of_events)
    return replace(folded, staged=count(folded.row_changes)) if folded.row_changes is not None else folded


def resolve_hazards(
    run: MicrobatchRun, decoder: Decoder, latest: Latest, *, surveyed: Surveyed, target: TargetTable | None, voided: str = "false"
) -> Folded:
    """Return the row changes, not counted yet, folded where the last event alone does not decide.

    :param voided: SQL over an event: whether a truncate or a snapshot voids what it wrote.
    """
    keys, columns = decoder.columns.keys, list(decoder.columns.types)
    if latest.hazardous is None:
        return Folded(row_changes=resolve_documents(run, decoder, latest.changes, target=target))
    changes, hazardous = latest.changes.drop(READS), latest.hazardous
    restarts = decoder.change_restarts

    def with_images(lines: DataFrame) -> DataFrame:
        events = decoder.events(lines, with_images=True).filter(IS_ROW_EVENT)
        return order_events(events, keys, reads_among_changes=surveyed.is_mixed, change_restarts=restarts)

    # Images are costly: read only the lines of these keys. A line with the same hash as one of them may be about another key.
    lines = run.lines().join(F.broadcast(hazardous.select(LINE_HASH)), F.xxhash64(RAW) == F.col(LINE_HASH), "left_semi")
    theirs = with_images(lines).join(F.broadcast(hazardous.drop(LINE_HASH)), list(keys), "left_semi")
    if not hazardous.filter(f"{HAZARD} = 2").isEmpty():
        theirs = in_settled_order(run.write_down(theirs, "tied"), keys, place=run.name, change_restarts=restarts)
    folded = fold_row_versions(theirs, keys, columns, keeps_deleted=decoder.keeps_deleted, voided=voided, change_restarts=restarts)
    folded = run.write_down(folded, "folded")
    moved = folded.filter(f"{MOVED} IS NOT NULL")
    unpaired, moves = 0, None
    if not moved.isEmpty():
        rows = run.rows_of(target) if target else None
        types = decoder.columns.types
        # Each step of the trace reads the events again.
        everything = run.write_down(with_images(run.lines()), "events")
        traced = trace_moved_rows(folded, everything, rows, keys=keys, columns=types, change_restarts=restarts, write_down=run.write_down)
        folded, moves = traced.row_changes, traced.moves
        unpaired = unpaired_moves(moved, everything).count()
    return Folded(row_changes=changes.filter(f"NOT {IS_HAZARD}").unionByName(folded), unpaired=unpaired, moves=moves)
