"""Mend moved rows: where late events are about a row that has taken other keys since, fold that row again from the archive.

A row's values may stand under each key that it had, in events of any file: no state of the table in between is surely that of the row, as
another row may have its old key by then. So the row is folded from all events that the flow has applied. This is done only for rows that
the log of moves, or a move of the microbatch itself, shows to be concerned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MOVED, OP, POSITION
from airflow_cdc.model.errors import ArchivedFileMissingError, StateUnreadableError
from airflow_cdc.model.operation import FILL, KEEP
from airflow_cdc.model.places import moves_uri
from airflow_cdc.pipeline.apply.earlier_events import folded, in_order, with_earlier
from airflow_cdc.pipeline.apply.guarded import Guarded, Unguarded
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT
from airflow_cdc.pipeline.microbatch.reading_earlier import reading_earlier
from airflow_cdc.pipeline.reconcile.follow_moves import old_keys, places_unnamed, reached, rows_in_doubt, rows_paired, rows_told_of
from airflow_cdc.pipeline.reconcile.mend_rows import rows_to_mend, with_found_values
from airflow_cdc.pipeline.reconcile.settle_ties import in_settled_order
from airflow_cdc.pipeline.reconcile.trace_moved_rows import IN_DOUBT, Traced, trace_moved_rows
from airflow_cdc.pipeline.reconcile.value_positions import HAS_UNKNOWN
from airflow_cdc.pipeline.record.moves import read_moves
from airflow_cdc.pipeline.spark import sql

_FIRST_MICROBATCH = 1


def mend_moved_rows(asked: Unguarded, guarded: Guarded, read_markers: Callable[[], DataFrame | None]) -> Guarded:
    """Return the row changes with those of rows that are mended.

    A value is left as it is where a file of an earlier microbatch, or the record of which files it had, is gone.
    """
    run, keys = asked.run, asked.keys
    log = read_moves(run.spark, run.state(moves_uri), except_microbatch=run.microbatch.number) if run.checkpoint.moves_kept else None
    starts = [*_told_by_log(asked, log), *_told_by_own(asked, guarded, read_markers)]
    if not starts:
        return guarded
    concerned = run.write_down(reduce(DataFrame.unionByName, starts).distinct(), "concerned")
    if concerned.isEmpty():
        return guarded
    own = [each.drop(IN_DOUBT) for each in guarded.moves]
    moves = reduce(DataFrame.unionByName, [*own, *([log] if log is not None else [])])
    rows = reached(concerned, moves, keys, write_down=run.write_down)
    try:
        traced = _fold_again(asked, rows, moves)
    except (ArchivedFileMissingError, StateUnreadableError) as gone:
        run.note(f"{run.flow.name}: values that key changes left out stay as they are: {gone}")
        return guarded
    return _mended(asked, guarded, traced)


def _told_by_log(asked: Unguarded, log: DataFrame | None) -> list[DataFrame]:
    """Return the keys of rows that moved in earlier microbatches, and that an event of this one is about."""
    if log is None:
        return []
    told = rows_told_of(asked.live, log, asked.keys, has_reads=asked.has_reads)
    if not asked.staged.has_deletes or places_unnamed(log, asked.keys).isEmpty():
        return [told]
    deletes = asked.decoder.events(asked.run.lines()).filter(f"{IS_ROW_EVENT} AND {OP} = 'd'").select(POSITION)
    # Also of rows that lack nothing any more: others may have moved on from them.
    return [told, rows_paired(deletes, log, asked.keys)]


def _told_by_own(asked: Unguarded, guarded: Guarded, read_markers: Callable[[], DataFrame | None]) -> list[DataFrame]:
    """Return the keys of rows that moved in this microbatch and still need values, of which earlier microbatches saw the old key."""
    keys, own = asked.keys, guarded.moves
    if not own or asked.run.microbatch.number == _FIRST_MICROBATCH:
        return []
    is_open = f"{MOVED} IS NOT NULL AND {HAS_UNKNOWN}"
    opened = [each.filter(is_open).select(*map(sql.name, keys)) for each in (asked.live, guarded.row_changes)]
    still_open = reduce(DataFrame.unionByName, opened).distinct().join(_whole(guarded, keys), keys, "left_anti")
    in_doubt = rows_in_doubt(reduce(DataFrame.unionByName, own), read_markers(), keys)
    return [still_open.join(in_doubt, keys, "left_semi")]


def _whole(guarded: Guarded, keys: list[str]) -> DataFrame:
    """Return the keys of row changes that lack no value."""
    return guarded.row_changes.filter(f"{OP} <> '{FILL}' AND NOT coalesce({HAS_UNKNOWN}, false)").select(*map(sql.name, keys))


def _fold_again(asked: Unguarded, rows: DataFrame, moves: DataFrame) -> Traced:
    """Return the rows as all events under their keys leave them.

    :param rows: their keys.
    :param moves: all known ones.
    """
    run, keys, types = asked.run, asked.keys, asked.decoder.columns.types
    restarts = asked.decoder.change_restarts
    lineage = reached(rows, moves, keys, write_down=run.write_down, back=True)
    with reading_earlier(run, rows):
        everything = with_earlier(asked, _FIRST_MICROBATCH)
        while True:
            theirs = run.write_down(in_order(everything.join(F.broadcast(lineage), keys, "left_semi"), asked), "lineage")
            theirs = in_settled_order(theirs, keys, place=run.name, change_restarts=restarts)
            of_rows = theirs.join(F.broadcast(rows), keys, "left_semi")
            again = folded(of_rows, asked, "folded-again")
            traced = trace_moved_rows(again, theirs, None, keys=keys, columns=types, change_restarts=restarts, write_down=run.write_down)
            # An edge is not written down where a microbatch needed no value from behind it: the events themselves show it.
            behind = old_keys(traced.moves, keys).unionByName(_deleted_at(places_unnamed(traced.moves, keys), everything, keys))
            further = run.write_down(behind.distinct().join(lineage, keys, "left_anti"), "further")
            if further.isEmpty():
                return traced
            lineage = lineage.unionByName(further)


def _deleted_at(places: DataFrame, everything: DataFrame, keys: list[str]) -> DataFrame:
    """Return the keys that were deleted at some places: of moves whose old key no other event names."""
    if places.isEmpty():
        return everything.select(*map(sql.name, keys)).filter("false")
    here = F.expr(f"d.{POSITION}.commit = p.commit AND d.{POSITION}.change = p.change")
    deletes = everything.filter(f"{OP} = 'd'").alias("d").join(F.broadcast(places).alias("p"), here, "left_semi")
    return deletes.select(*map(sql.name, keys))


def _mended(asked: Unguarded, guarded: Guarded, traced: Traced) -> Guarded:
    """Return the row changes with the values that the rows folded again know, and row changes of target rows that lack some of them."""
    run, keys, columns = asked.run, asked.keys, list(asked.decoder.columns.types)
    found = traced.row_changes.select(*map(sql.name, guarded.row_changes.columns))
    fresh = with_found_values(guarded.row_changes, found, keys=keys, columns=columns)
    held = run.spark.sql(f"SELECT * FROM {sql.delta(asked.target.uri)}")
    changing = fresh.filter(f"{OP} NOT IN ('{FILL}', '{KEEP}')").select(*map(sql.name, keys))
    untouched = held.join(F.broadcast(found.select(*map(sql.name, keys))), keys, "left_semi").join(changing, keys, "left_anti")
    mended = run.write_down(rows_to_mend(untouched, found, keys=keys, columns=columns), "to-mend")
    # What a late event of the row itself fills in is known to the row folded again; a row that is kept is the one to mend.
    others = fresh.join(mended.select(*map(sql.name, keys)), keys, "left_anti").select(*map(sql.name, fresh.columns))
    row_changes = run.write_down(others.unionByName(mended), "guarded")
    return replace(
        guarded,
        row_changes=row_changes,
        marking=guarded.row_changes,
        is_late=True,
        rejoined=True,
        moves=(*guarded.moves, traced.moves),
        mended=mended.count(),
    )
