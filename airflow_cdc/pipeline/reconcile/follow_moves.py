"""Follow rows through their moves: which rows an event under an old key may be about, and under which keys their events stand.

A move (:attr:`airflow_cdc.pipeline.reconcile.trace_moved_rows.Traced.moves`) is an edge from an old key to the key of a row whose values
depend on it. Runs Spark jobs: each step is staged, and the next one taken only if it reached another key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import POSITION
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import reach_of
from airflow_cdc.pipeline.reconcile.rule import may_precede_move
from airflow_cdc.pipeline.reconcile.trace_moved_rows import FROM, IN_DOUBT, TO, numbered
from airflow_cdc.pipeline.spark import sql


def rows_told_of(row_changes: DataFrame, moves: DataFrame, keys: Sequence[str], *, has_reads: bool) -> DataFrame:
    """Return the keys of rows that moved away from a key of a row change, of which some event stands before the move."""
    same = " AND ".join(f"m.{old} = s.{sql.name(key)}" for old, key in zip(numbered(FROM, keys), keys, strict=True))
    before = may_precede_move("m", "s", reach_of("s"), has_reads=has_reads)
    met = moves.alias("m").join(row_changes.alias("s"), F.expr(f"{same} AND {before}"), "left_semi")
    return met.select(*_as_keys(TO, keys)).distinct()


def rows_paired(deletes: DataFrame, moves: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys of moved rows whose old key no event had named, and is that of one of the deletes.

    :param deletes: with position.
    """
    here = F.expr(f"m.{POSITION}.commit = d.{POSITION}.commit AND m.{POSITION}.change = d.{POSITION}.change")
    return _unnamed(moves, keys).alias("m").join(deletes.alias("d"), here, "left_semi").select(*_as_keys(TO, keys)).distinct()


def rows_in_doubt(moves: DataFrame, markers: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    """Return the keys of moved rows whose old key is known beyond the move, or not at all: the row from before it stands in the archive
    alone. A delete that came before and was stale, because another row has its key, left no marker by which to find it.

    :param moves: of the microbatch.
    :param markers: the delete markers.
    """
    doubted = moves.filter(IN_DOUBT).select(*_as_keys(TO, keys)).unionByName(_unnamed(moves, keys).select(*_as_keys(TO, keys)))
    if markers is None:
        return doubted.distinct()
    same = " AND ".join(f"m.{old} = d.{sql.name(key)}" for old, key in zip(numbered(FROM, keys), keys, strict=True))
    at, since = (f"struct({alias}.{POSITION}.commit, {alias}.{POSITION}.change)" for alias in ("m", "d"))
    gone = moves.alias("m").join(markers.alias("d"), F.expr(f"{same} AND {since} >= {at}"), "left_semi").select(*_as_keys(TO, keys))
    return doubted.unionByName(gone).distinct()


def _unnamed(moves: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the moves whose old key no event named, and no delete has shown since."""
    named = _is_named(keys)
    return moves.filter(f"NOT ({named})").join(moves.filter(named), [*numbered(TO, keys), POSITION], "left_anti")


def places_unnamed(moves: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the places of moves whose old key no event has named."""
    return _unnamed(moves, keys).selectExpr(f"{POSITION}.commit AS commit", f"{POSITION}.change AS change").distinct()


def old_keys(moves: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the old keys of moves, where they are known."""
    return moves.filter(_is_named(keys)).select(*_as_keys(FROM, keys)).distinct()


def _is_named(keys: Sequence[str]) -> str:
    """Return the SQL that is true for a move whose old key is known."""
    return " AND ".join(f"{name} IS NOT NULL" for name in numbered(FROM, keys))


def _as_keys(prefix: str, keys: Sequence[str]) -> list[Column]:
    return [F.col(name).alias(key) for key, name in zip(keys, numbered(prefix, keys), strict=True)]


def reached(
    starts: DataFrame, moves: DataFrame, keys: Sequence[str], *, write_down: Callable[[DataFrame, str], DataFrame], back: bool = False
) -> DataFrame:
    """Return the keys, and all to which moves lead from them, through any number of moves.

    >>> #  moves 1 → 2, 2 → 3, 4 → 3
    >>> #  starts 1: 1, 2, 3; starts 3, back: 3, 2, 4, 1

    :param back: follow the moves to where the rows came from.
    """
    here, there = (TO, FROM) if back else (FROM, TO)
    found = newest = starts.distinct()
    named = moves.filter(_is_named(keys))
    # Each step keeps new keys alone, and there are no more keys than the moves name: cycles end too.
    for step in count():
        at = newest.toDF(*numbered(here, keys))
        further = named.join(at, numbered(here, keys), "left_semi").select(*_as_keys(there, keys)).distinct()
        newest = write_down(further.join(found, list(keys), "left_anti"), f"{'behind' if back else 'reached'}-{step}")
        if newest.isEmpty():
            return found
        found = found.unionByName(newest)
    raise AssertionError
