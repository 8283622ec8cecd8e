"""Reconcile: fold a key's events into what lives under it, row version by row version (design, section 4).

Inside one transaction a key may hold two rows for a while: ``UPDATE ring SET id = id + 1`` logs d(1) c(2) d(2) c(3) …, and the
delete of key 2 is for the row that was there before. Keeping the last event per key would delete the row that lives.
Only keys with that hazard are folded (:data:`airflow_cdc.pipeline.reconcile.keep_latest_per_key.HAZARD`); for all others
the last event tells the same at less cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import COMMITTED_AT, OP, OP_IF_ABSENT, ORDINAL, PARTITION, POSITION, TRANSACTION, UNAVAILABLE
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import CONFLICTS, EVENTS, HAZARD, RECONCILED_COLUMNS, REDELIVERED

KEEP = "k"
"""Operation of a key whose events leave the target's own row as it is."""

_VERSION = "struct<event: int, image: array<bigint>>"
_TARGETS_OWN = 0
"""Number of the version that the target may hold; events count from 1."""


def fold_row_versions(events: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return one row a key: what its events leave under it, if the target holds the key and if it does not.

    >>> #  key  position  op  before  after        key  op  op_if_absent  image
    >>> #   2      10      c    -       v1    ->     2   c       d          v1      the delete is for the target's row
    >>> #   2      12      d    v2      -

    :param events: good row events of the keys to fold, with ``columns``, our own columns, :data:`BEFORE` and :data:`AFTER`.
    :return: the columns of :func:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key`. ``__cdc_op`` is
        for a key that the target holds: an upsert's code, ``d``, or :data:`KEEP`; ``__cdc_op_if_absent`` for one that it does not.
        Position, commit time and partition are those of the key's last event.
    """
    key_columns = [F.col(sql.name(key)) for key in keys]
    others = [name for name in columns if name not in keys]
    event = F.struct(
        F.col(POSITION).alias("position"),
        F.col(ORDINAL).alias("ordinal"),
        F.col(OP).alias("op"),
        F.col(TRANSACTION).alias("transaction"),
        F.col(BEFORE).alias("before"),
        F.col(AFTER).alias("after"),
        F.col(UNAVAILABLE).alias("unavailable"),
        F.struct(COMMITTED_AT, PARTITION, *[F.col(sql.name(name)) for name in others]).alias("row"),
    )
    ordered = events.groupBy(*key_columns).agg(F.array_sort(F.collect_list(event)).alias("delivered"))
    distinct = ordered.withColumn("events", F.expr(_FIRST_DELIVERIES))
    folded = distinct.withColumn("held", F.expr(_fold(held=True))).withColumn("absent", F.expr(_fold(held=False)))
    lived = folded.withColumn("survivor", F.expr("greatest(coalesce(held, -1), coalesce(absent, -1), 0)"))
    traced = lived.withColumn("lineage", F.expr(_LINEAGE))
    last = F.element_at("events", -1)
    picked = [F.col(sql.name(name)) if name in keys else F.expr(_last_told(name)).alias(name) for name in columns]
    ours = {
        POSITION: last["position"],
        OP: F.expr(_operation("held")),
        OP_IF_ABSENT: F.expr(_operation("absent")),
        COMMITTED_AT: last["row"][COMMITTED_AT],
        PARTITION: last["row"][PARTITION],
        UNAVAILABLE: F.expr(_STILL_UNAVAILABLE),
    }
    counts: list[Column] = [
        F.size("delivered").cast("bigint").alias(EVENTS),
        (F.size("delivered") - F.size("events")).cast("bigint").alias(REDELIVERED),
        F.lit(0).alias(CONFLICTS),
        F.lit(0).alias(HAZARD),
    ]
    return traced.select(*picked, *[ours[name].alias(name) for name in RECONCILED_COLUMNS], *counts)


# The events that wrote the surviving row, oldest first: back to the one that made it, or to the first of the batch.
# A delete between them was for another row version: it tells nothing about this one.
_LINEAGE = """
CASE WHEN survivor > 0 THEN reverse(aggregate(reverse(filter(slice(events, 1, survivor), event -> event.op <> 'd')),
    named_struct('open', true, 'events', slice(events, 1, 0)),
    (state, event) -> if(state.open,
        named_struct('open', event.op NOT IN ('c', 'r'), 'events', array_append(state.events, event)), state),
    state -> state.events)) END
"""

_STILL_UNAVAILABLE = """
nullif(filter(coalesce(element_at(lineage, -1).unavailable, array()),
    name -> NOT exists(lineage, event -> NOT coalesce(array_contains(event.unavailable, name), false))), array())
"""


def _last_told(name: str) -> str:
    """Return the SQL of a column's value in the surviving row: of the last event of its lineage that tells it."""
    told = f"NOT coalesce(array_contains(event.unavailable, {sql.text(name)}), false)"
    return f"try_element_at(filter(lineage, event -> {told}), -1).row.{sql.name(name)}"


# A redelivered copy would be a second row version: only the first of each position stays.
_FIRST_DELIVERIES = """
filter(delivered, (event, place) -> place = 0 OR NOT (event.position <=> delivered[place - 1].position))
"""

# The version that a delete or update is about: the one equal to its before image; else one that equals it where the image
# tells anything (LOBs are NULL there); else the oldest, which is the target's own where the target holds the key.
_WITHOUT_SUBJECT = """
CASE
  WHEN event.before IS NOT NULL AND exists(versions, version -> version.image = event.before)
    THEN filter(versions, (version, place) -> place <> array_position(transform(versions, v -> v.image), event.before) - 1)
  WHEN event.before IS NOT NULL AND exists(versions, version -> {loosely})
    THEN filter(versions, (version, place) -> place <> array_position(transform(versions, version -> {loosely}), true) - 1)
  ELSE slice(versions, 2, greatest(size(versions) - 1, 0))
END
""".format(
    loosely="version.image IS NOT NULL AND forall(zip_with(event.before, version.image, (b, a) -> b IS NULL OR a IS NULL OR b = a), x -> x)"
)


def _fold(*, held: bool) -> str:
    """Return the SQL of the number of the event whose row survives: 0 for the target's own, NULL for none.

    :param held: whether the target holds the key before the first event.
    """
    start = (
        f"array(CAST(named_struct('event', {_TARGETS_OWN}, 'image', NULL) AS {_VERSION}))"
        if held
        else f"CAST(array() AS array<{_VERSION}>)"
    )
    created = "CAST(named_struct('event', CAST(event.number AS INT), 'image', event.after) AS " + _VERSION + ")"
    # After a transaction at most one version lives: the newest.
    settled = "if(state.transaction <=> event.transaction, state.versions, slice(state.versions, -1, least(size(state.versions), 1)))"
    changed = f"""CASE event.op
        WHEN 'c' THEN array_append(versions, {created})
        WHEN 'r' THEN array({created})
        WHEN 'u' THEN array_append({_WITHOUT_SUBJECT}, {created})
        ELSE {_WITHOUT_SUBJECT} END"""
    state = f"named_struct('transaction', CAST(NULL AS STRING), 'versions', {start})"
    # SQL lambdas have no let: an inner transform over one element names the settled versions.
    step = f"named_struct('transaction', event.transaction, 'versions', transform(array({settled}), versions -> {changed})[0])"
    members = "'op', e.op, 'transaction', e.transaction, 'before', e.before, 'after', e.after"
    numbered = f"transform(events, (e, place) -> named_struct('number', place + 1, {members}))"
    return f"aggregate({numbered}, {state}, (state, event) -> {step}, state -> try_element_at(state.versions, -1).event)"


def _operation(answer: str) -> str:
    """Return the SQL of the operation for a fold's answer."""
    return f"CASE WHEN {answer} IS NULL THEN 'd' WHEN {answer} = {_TARGETS_OWN} THEN '{KEEP}' ELSE events[greatest({answer}, 1) - 1].op END"
