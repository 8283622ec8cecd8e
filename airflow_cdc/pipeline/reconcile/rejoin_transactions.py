"""Rejoin transactions that a microbatch's boundary split: their events are folded together, whichever microbatch holds them.

Inside a transaction a key may hold two rows (:mod:`airflow_cdc.pipeline.reconcile.fold_row_versions`). If an earlier microbatch
applied the create and this one holds the delete, or vice versa, neither alone determines which row goes. The archive does: the
events of all microbatches since the transaction began are folded again, onto the row that the target held before them. This is
done only for keys whose known operation and new one could concern two rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    COMMITTED_AT,
    DELETED,
    DEPENDS,
    MOVED,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.model.operation import KEEP
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH, reach_of
from airflow_cdc.pipeline.reconcile.rule import is_cut
from airflow_cdc.pipeline.reconcile.value_positions import HAS_UNKNOWN, value_positions
from airflow_cdc.pipeline.spark import sql

CUT_AT = "__cdc_cut_at"
"""Commit of the position of a cut key's known state."""
LOOK_BACK = 64
"""Number of microbatches in which the begin of a cut transaction is searched."""
_ENTRY = "__cdc_entry"


def find_cut_keys(
    row_changes: DataFrame,
    rows: DataFrame,
    markers: DataFrame | None,
    *,
    keys: Sequence[str],
    has_reads: bool,
    parted: PartedTransactions | None = None,
) -> DataFrame:
    """Return the keys (and :data:`CUT_AT`) that may have events of one transaction on both sides of the boundary.

    Included are keys whose outcome depends on whether the key was held before: either their delete marker shows this, and older events
    arrive that may contradict the target; or this microbatch has older events of the key too, and the target a state from in between.

    :param row_changes: the microbatch's, with :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.REACH`.
    :param rows: the target's rows: keys, position, operation.
    :param markers: the delete markers: the same, and whether they depend.
    :param has_reads: whether some of the microbatch's events are snapshot reads.
    :param parted: the cut transactions that only their text identifies.
    """
    ours = [sql.name(key) for key in keys]
    same_transaction = parted.may_hold("k", "s") if parted else "false"
    is_across = is_cut("k", "s", reach_of("s"), has_reads=has_reads, same_transaction=same_transaction)
    held = rows.select(*ours, POSITION, OP, PARTITION, OFFSET)
    known = held if markers is None else held.unionByName(markers.select(*ours, POSITION, OP, PARTITION, OFFSET))
    cut = _cut_at(_on_keys(row_changes, known, keys).filter(is_across), keys)
    if markers is None:
        return cut
    depending = markers.filter(DEPENDS).select(*ours, POSITION)
    here = F.expr(f"{sql.same_key('k', 'm', keys)} AND k.{POSITION}.commit = m.{POSITION}.commit")
    settled = known.filter(f"{OP} <> '{KEEP}'").alias("k").join(depending.alias("m"), here, "left_anti")
    # A key that a later transaction settled no longer depends on anything.
    behind = F.expr(f"{sql.same_key('m', 'k', keys)} AND k.{POSITION}.commit > m.{POSITION}.commit")
    unsettled = depending.alias("m").join(settled.alias("k"), behind, "left_anti")
    met = _on_keys(row_changes, unsettled, keys).filter(f"coalesce(s.{REACH}.first, s.{POSITION}) < k.{POSITION}")
    return _cut_at(met, keys).unionByName(cut)


def _on_keys(row_changes: DataFrame, known: DataFrame, keys: Sequence[str]) -> DataFrame:
    return row_changes.alias("s").join(known.alias("k"), F.expr(sql.same_key("s", "k", keys)))


def _cut_at(met: DataFrame, keys: Sequence[str]) -> DataFrame:
    return met.groupBy(*[F.col(f"s.{sql.name(key)}") for key in keys]).agg(F.min(f"k.{POSITION}.commit").alias(CUT_AT))


def find_parted_moves(row_changes: DataFrame, markers: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys (and :data:`CUT_AT`) of rows that came from a key that an earlier microbatch deleted."""
    moved = row_changes.filter(f"{MOVED} IS NOT NULL AND {HAS_UNKNOWN}").alias("s")
    same_place = F.expr(f"s.{MOVED}.position.commit = k.{POSITION}.commit AND s.{MOVED}.position.change = k.{POSITION}.change")
    met = moved.join(markers.alias("k"), same_place)
    return met.select(*[F.col(f"s.{sql.name(key)}") for key in keys], F.expr(f"k.{POSITION}.commit").alias(CUT_AT)).distinct()


def find_unsettled(markers: DataFrame, keys: Sequence[str], *, gone: str) -> DataFrame:
    """Return the keys (and :data:`CUT_AT`) whose outcome depends on rows that a truncate or snapshot voids only now.

    :param gone: SQL over a marker: whether the truncate or snapshot voids it too.
    """
    depending = markers.filter(f"{DEPENDS} AND NOT {gone}")
    return depending.select(*[F.col(sql.name(key)) for key in keys], F.expr(f"{POSITION}.commit").alias(CUT_AT)).distinct()


def find_awaited_moves(deletes: DataFrame, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys (and :data:`CUT_AT`) of the target's rows that came from a key that is deleted only now.

    :param deletes: the microbatch's deletes, with position.
    """
    named = [sql.name(key) for key in keys]
    entries = rows.filter(f"{VALUE_POSITIONS} IS NOT NULL").selectExpr(*named, f"explode({VALUE_POSITIONS}) AS {_ENTRY}")
    same_place = F.expr(f"r.{_ENTRY}.position.commit = d.{POSITION}.commit AND r.{_ENTRY}.position.change = d.{POSITION}.change")
    met = entries.alias("r").join(deletes.alias("d"), same_place)
    return met.select(*[F.col(f"r.{sql.name(key)}") for key in keys], F.expr(f"d.{POSITION}.commit").alias(CUT_AT)).distinct()


@dataclass(frozen=True)
class PartedTransactions:
    """The transactions at a microbatch's ends that earlier microbatches hold in part, identified only by their text (Huawei CDL)."""

    texts: Sequence[str]
    earlier: Sequence[Reach]
    """The reach of the microbatches with the other parts."""

    def may_hold(self, known: str, change: str) -> str:
        """Return the SQL that is true if a key's known state and its row change may be of one of these transactions.

        The known state does not carry its transaction, so anything from those microbatches may be of it. Folding it again is harmless.
        """
        texts = ", ".join(map(sql.text, self.texts))
        ours = f"({change}.{REACH}.first_transaction IN ({texts}) OR {change}.{REACH}.last_transaction IN ({texts}))"
        stretches = [
            f"{known}.{POSITION}.commit BETWEEN {first.commit}BD AND {reach.streamed_through[partition].commit}BD"
            for reach in self.earlier
            for partition, first in reach.streamed_from.items()
        ]
        return f"({ours} AND ({' OR '.join(stretches)}))"


def find_parted_transactions(report_of: Callable[[int], BatchReport | None], number: int, reach: Reach) -> PartedTransactions | None:
    """Return the transactions of a microbatch that earlier ones, among the last :data:`LOOK_BACK`, hold in part; None if there are none.

    :param reach: of the microbatch's events.
    """
    if not reach.outer_transactions:
        return None
    reports = [report for candidate in _last_before(number) if (report := report_of(candidate))]
    earlier = [report.reach for report in reports if report.reach.shares_transaction(reach)]
    texts = sorted({text for texts in reach.outer_transactions.values() for text in texts})
    return PartedTransactions(texts, earlier) if earlier else None


def _last_before(number: int) -> range:
    """Return the numbers of the last :data:`LOOK_BACK` microbatches before one, latest first."""
    return range(number - 1, max(number - 1 - LOOK_BACK, 0), -1)


def first_part(report_of: Callable[[int], BatchReport | None], number: int, commits: Sequence[int], reach: Reach) -> int | None:
    """Return the number of the first microbatch, among the last :data:`LOOK_BACK`, that may hold events of transactions; None for none.

    :param commits: of all the transactions, ascending: if files arrive out of order, an older microbatch may hold the younger ones.
    :param reach: of this microbatch's events.
    """
    found = None
    for candidate in _last_before(number):
        report = report_of(candidate)
        if report and (report.reach.may_hold(commits) or report.reach.shares_transaction(reach)):
            found = candidate
    return found


def upon_prior(
    folded: DataFrame, prior: DataFrame, keys: Sequence[str], columns: Sequence[str], *, flags_deletes: bool = False
) -> DataFrame:
    """Return folded row changes with one answer each: the one for the row that the target held, or for no row.

    :param prior: the target's rows before the first part of the transaction was merged.
    :param flags_deletes: whether some of them are flagged deletes: these hold no key, and only another delete uses their values.
    """
    on = sql.same_key("s", "p", keys)
    on += f" AND (NOT p.{DELETED} OR s.{OP_IF_ABSENT} = 'd')" if flags_deletes else ""
    joined = folded.alias("s").join(prior.alias("p"), F.expr(on), "left")
    held = F.expr(f"p.{POSITION} IS NOT NULL" + (f" AND NOT p.{DELETED}" if flags_deletes else ""))
    answer = F.when(held, F.col(f"s.{OP}")).otherwise(F.col(f"s.{OP_IF_ABSENT}"))
    lives, kept = answer != "d", held & (answer == KEEP)
    in_prior = {name.lower() for name in prior.columns}

    def value_of(name: str) -> Column:
        theirs = F.col(f"p.{sql.name(name)}") if name.lower() in in_prior else F.lit(None)
        asked = F.coalesce(F.array_contains(f"s.{UNAVAILABLE}", name), F.lit(False))  # noqa: FBT003
        return F.when(kept | asked, theirs).otherwise(F.col(f"s.{sql.name(name)}"))

    values = {name: value_of(name) for name in columns if name not in keys}
    for name in (POSITION, COMMITTED_AT, PARTITION, OFFSET):
        values[name] = F.when(kept, F.col(f"p.{name}")).otherwise(F.col(f"s.{name}"))
    values[OP] = F.when(kept, F.col(f"p.{OP}")).when(lives, answer).otherwise("d")
    values[OP_IF_ABSENT] = F.when(kept, F.col(f"p.{OP}")).when(lives, answer).otherwise("d" if flags_deletes else KEEP)
    values[VALUE_POSITIONS] = F.when(kept, F.col(f"p.{VALUE_POSITIONS}")).otherwise(
        F.expr(value_positions("s", "p", known=f"p.{POSITION} IS NOT NULL"))
    )
    values[UNAVAILABLE] = F.lit(None).cast("array<string>")
    return joined.select(*[values.get(name, F.col(f"s.{sql.name(name)}")).alias(name) for name in folded.columns])
