"""Trace versions through key changes: a row's previous key, and the values that it had there and its create left out.

A key change is a delete and a create at one place of the log (a header may name the old key instead). A row's values under its old key
are those that its events left there at the delete.

Runs Spark jobs: each step is staged, and the next one taken only if some version still needs a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import END_POSITION, LEFT_OUT, OLD_KEY, OP, POSITION, PREVIOUS_KEY, TRANSACTION
from airflow_cdc.pipeline.reconcile.cut_versions import BORN, DIED_AT, LIVED, OPEN, PLACE_TYPE, SEQ
from airflow_cdc.pipeline.reconcile.trace_moved_rows import FROM, TO, numbered
from airflow_cdc.pipeline.spark import sql

MAX_MOVES = 16
"""Most key changes through which a row is followed; values further back count as unresolved."""

WriteDown = Callable[[DataFrame, str], DataFrame]

_ASKED_AT = "__cdc_asked_at"
_NAMES = "__cdc_names"
_KNOWN = "__cdc_known"
_ANSWER = "__cdc_answer"
_IS_DEATH = "__cdc_is_death"
_FROM_PLACE = "__cdc_from_place"
_TO_PLACE = "__cdc_to_place"


def find_moves(log: DataFrame, transactions: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the relevant key changes: those that left values out, and those of the given transactions.

    :param log: all known events.
    :param transactions: one column, ``__cdc_transaction``.
    :param keys: our own names for the keys, as in the log.
    :return: the new key (``__cdc_to_…``), the ``place``, the old key (``__cdc_from_…``): the header's, else that of the delete there.
    """
    placed = log.withColumn("place", F.expr(f"CAST(struct({POSITION}.commit, {POSITION}.change) AS {PLACE_TYPE})"))
    old = F.struct(*_renamed(keys, numbered(FROM, keys)))
    deletes = placed.filter(f"{OP} = 'd'").select("place", old.alias("deleted"))
    creates = placed.filter(f"{OP} = 'c'").select(*_renamed(keys, numbered(TO, keys)), "place", OLD_KEY, LEFT_OUT, TRANSACTION)
    asking = creates.filter(f"size({LEFT_OUT}) > 0").unionByName(creates.join(transactions, TRANSACTION, "left_semi"))
    paired = asking.join(deletes, "place", "left")
    # With several deletes at one place, any choice would be a guess: the least is deterministic.
    one = paired.groupBy(*numbered(TO, keys), "place").agg(F.min(F.coalesce(OLD_KEY, "deleted")).alias("old"))
    return one.filter("old IS NOT NULL").select(*numbered(TO, keys), "place", "old.*")


def keys_reached(touched: DataFrame, moves: DataFrame, keys: Sequence[str], *, write_down: WriteDown) -> DataFrame:
    """Return the keys and all keys that moves connect with them, through up to :data:`MAX_MOVES` moves.

    :param keys: our own names for the keys, as in ``touched``.
    """
    to, old = numbered(TO, keys), numbered(FROM, keys)
    reached, count = touched, touched.count()
    for move in range(MAX_MOVES):
        ends = [moves.join(reached.toDF(*here), here, "left_semi").select(*_renamed(there, keys)) for here, there in ((to, old), (old, to))]
        reached = write_down(reduce(DataFrame.union, [reached, *ends]).distinct(), f"reached-{move}")
        if (now := reached.count()) == count:
            break
        count = now
    return reached


def find_previous_keys(
    versions: DataFrame, deaths: DataFrame, moves: DataFrame, *, transactions: DataFrame, keys: Sequence[str], write_down: WriteDown
) -> DataFrame:
    """Return the versions with ``__cdc_previous_key``: for a row that moved in one of the transactions, its key at the previous commit.

    A row that moved twice in one transaction never had the key in between at a commit: that key is skipped.
    """
    to, old = numbered(TO, keys), numbered(FROM, keys)
    began = versions.filter(f"{BORN}.is_first AND {BORN}.op = 'c'").withColumn(TRANSACTION, F.col(BORN)["transaction"])
    asking = began.join(transactions, TRANSACTION, "left_semi").select(*keys, SEQ, *_renamed(keys, to), F.col(BORN)["place"].alias("place"))
    died = deaths.select(*_renamed(keys, old), F.col(DIED_AT).alias("place"), LIVED, F.col(BORN).alias("born"))
    answers: list[DataFrame] = []
    for move in range(MAX_MOVES):
        met = write_down(asking.join(moves, [*to, "place"]).join(died, [*old, "place"], "left"), f"previous-{move}")
        if met.isEmpty():
            break
        answers.append(met.filter(f"coalesce({LIVED}, true)").select(*keys, SEQ, F.struct(*old).alias(_ANSWER)))
        further = _renamed(old, to)
        asking = met.filter(f"NOT {LIVED} AND born.op = 'c'").select(*keys, SEQ, *further, F.col("born")["place"].alias("place"))
    if not answers:
        return without_previous_keys(versions, keys)
    # With several answers, any choice would be a guess: the least is deterministic.
    chosen = reduce(DataFrame.unionByName, answers).groupBy(*keys, SEQ).agg(F.min(_ANSWER).alias(PREVIOUS_KEY))
    return versions.join(chosen, [*keys, SEQ], "left")


def without_previous_keys(versions: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the versions of rows that did not move."""
    none = [F.lit(None).cast(versions.schema[key].dataType).alias(name) for key, name in zip(keys, numbered(FROM, keys), strict=True)]
    return versions.withColumn(PREVIOUS_KEY, F.when(F.lit(False), F.struct(*none)))  # noqa: FBT003


def fill_left_out_values(
    versions: DataFrame, deaths: DataFrame, moves: DataFrame, *, keys: Sequence[str], others: Sequence[str], write_down: WriteDown
) -> DataFrame:
    """Return the versions with the values that their rows had under other keys. :data:`~…cut_versions.OPEN` keeps the unknown ones."""
    to, old = numbered(TO, keys), numbered(FROM, keys)
    opened = versions.filter(f"size({OPEN}) > 0").select(*keys, SEQ, *_renamed(keys, to), F.explode(OPEN).alias("open"))
    asking = _asked(opened, [*keys, SEQ, *to])
    lives = _lives(versions, deaths, keys, others)
    answers: list[DataFrame] = []
    for move in range(MAX_MOVES):
        met = asking.join(moves, [*to, "place"]).alias("a").join(lives.alias("l"), F.expr(_is_about(old)))
        best = F.max_by(F.struct(*[F.col(f"l.{sql.name(name)}") for name in (*others, OPEN)]), f"l.{_IS_DEATH}").alias("row")
        of_ask = [F.col(f"a.{name}") for name in (*keys, SEQ, *old, "place")]
        found = met.groupBy(*of_ask).agg(F.first(f"a.{_NAMES}").alias(_NAMES), best)
        hidden = f"flatten(transform(row.{OPEN}, entry -> entry.names))"
        found = write_down(found.withColumn(_KNOWN, F.expr(f"array_except({_NAMES}, {hidden})")), f"left-out-{move}")
        if found.isEmpty():
            break
        answers.append(found.select(*keys, SEQ, F.struct(_KNOWN, "row").alias(_ANSWER)))
        further = _renamed(old, to)
        asking = _asked(found.select(*keys, SEQ, *further, _NAMES, F.explode(f"row.{OPEN}").alias("open")), [*keys, SEQ, *to], among=_NAMES)
    if not answers:
        return versions
    gathered = reduce(DataFrame.unionByName, answers).groupBy(*keys, SEQ).agg(F.collect_list(_ANSWER).alias(_ANSWER))
    joined = versions.join(gathered, [*keys, SEQ], "left")
    values: dict[str, Column] = {name: _filled(name) for name in others}
    now_known = f"flatten(transform({_ANSWER}, answer -> answer.{_KNOWN}))"
    still_open = (
        f"if({_ANSWER} IS NULL, {OPEN}, filter(transform({OPEN}, entry -> named_struct('place', entry.place, 'op', entry.op,"
        f" 'names', array_except(entry.names, {now_known}))), entry -> size(entry.names) > 0))"
    )
    return joined.withColumns({**values, OPEN: F.expr(still_open)}).drop(_ANSWER)


def _renamed(keys: Sequence[str], names: Sequence[str]) -> list[Column]:
    return [F.col(key).alias(name) for key, name in zip(keys, names, strict=True)]


def _asked(opened: DataFrame, identity: Sequence[str], *, among: str | None = None) -> DataFrame:
    """Return the open questions: the place of the move that hides values, and their names."""
    names = F.array_intersect(F.col("open")["names"], F.col(among)) if among else F.col("open")["names"]
    asked = opened.filter("open.op = 'c'").select(*identity, F.col("open")["place"].alias("place"), names.alias(_NAMES))
    return asked.filter(f"size({_NAMES}) > 0")


def _lives(versions: DataFrame, deaths: DataFrame, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return the rows that a move may concern: the row deleted there, or, if no delete is known, the version that existed there."""
    values = [F.col(sql.name(name)) for name in others]
    old = _renamed(keys, numbered(FROM, keys))
    dead = deaths.select(*old, *values, OPEN, F.col(DIED_AT).alias(_FROM_PLACE), F.col(DIED_AT).alias(_TO_PLACE), F.lit(1).alias(_IS_DEATH))
    # A struct of NULLs is not NULL, and less than any place.
    begins, ends = (
        F.expr(f"if({name} IS NULL, NULL, CAST(struct({name}.commit, {name}.change) AS {PLACE_TYPE}))") for name in (POSITION, END_POSITION)
    )
    lived = versions.select(*old, *values, OPEN, begins.alias(_FROM_PLACE), ends.alias(_TO_PLACE), F.lit(0).alias(_IS_DEATH))
    return dead.unionByName(lived)


def _is_about(old: Sequence[str]) -> str:
    same = " AND ".join(f"a.{name} = l.{name}" for name in old)
    was_there = f"l.{_FROM_PLACE} < a.place AND coalesce(l.{_TO_PLACE} > a.place, true)"
    return f"{same} AND if(l.{_IS_DEATH} = 1, l.{_FROM_PLACE} = a.place, {was_there})"


def _filled(name: str) -> Column:
    answer = f"try_element_at(filter({_ANSWER}, answer -> array_contains(answer.{_KNOWN}, {sql.text(name)})), 1)"
    quoted = sql.name(name)
    asked = f"exists({OPEN}, entry -> array_contains(entry.names, {sql.text(name)}))"
    return F.expr(f"if({asked}, {answer}.row.{quoted}, {quoted})")
