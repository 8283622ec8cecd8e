"""Fold row versions: from a key's events to its surviving row, version by version (docs/explanation/exactness.md#row-versions).

Inside one transaction a key may hold two rows for a while: ``UPDATE ring SET id = id + 1`` logs d(1) c(2) d(2) c(3) …, and the
delete of key 2 concerns the row that held the key before. Keeping the last event per key would delete the surviving row.
Only keys with that hazard are folded (:data:`airflow_cdc.pipeline.reconcile.keep_latest_per_key.HAZARD`). For all others
the last event gives the same result at less cost.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    ABSENT,
    COMMITTED_AT,
    MOVED,
    OFFSET,
    OLD_KEY,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    TRANSACTION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE, MOVED_TYPE, VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import (
    CONFLICTS,
    EVENTS,
    HAZARD,
    REACH,
    RECONCILED_COLUMNS,
    REDELIVERED,
)
from airflow_cdc.pipeline.reconcile.order_events import IS_COPY, ORDER, gathered_in_order, with_copies
from airflow_cdc.pipeline.spark import sql

# trail: numbers of the events that wrote the row, oldest first, beginning with the last one that carried all columns.
_VERSION = "struct<image: array<bigint>, trail: array<int>>"
HELD = "__cdc_held"
"""boolean: whether the target holds the key."""
_VOIDED = "__cdc_voided"

_TARGETS_OWN = 0
"""Number of the version that the target may hold; events count from 1."""
_ANSWERS = ("held", "absent")
"""The two possible states before the events: the target holds the key, or does not."""


def fold_row_versions(
    events: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    subject_of_last: bool = False,
    keeps_deleted: bool = False,
    voided: str = "false",
    change_restarts: bool,
) -> DataFrame:
    """Return one row per key: what its events leave, both if the target holds the key and if it does not.

    >>> #  key  position  op  before  after        key  op  op_if_absent  image
    >>> #   2      10      c    -       v1    ->     2   c       d          v1      the delete is for the target's row
    >>> #   2      12      d    v2      -

    :param events: good row events of the keys to fold, with ``columns``, our own columns,
        :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER`,
        :data:`BEFORE`, :data:`AFTER` and the old key.
    :param subject_of_last: if the last event is a delete, return the row that it deletes instead of what it leaves; ``events``
        show in :data:`HELD` whether the target holds the key.
    :param keeps_deleted: whether a key without a row has the values of the row that was deleted last.
    :param voided: SQL over an event: whether a truncate or a snapshot made its row void. No later event concerns that row.
    :param change_restarts: as for :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    :return: the columns of :func:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key`. ``__cdc_op`` applies
        if the target holds the key: an upsert's code, ``d``, or :data:`KEEP`; ``__cdc_op_if_absent`` if it does not.
        Position, commit time, partition and offset are those of the key's last event. ``__cdc_unavailable`` names the columns that
        only the target's row can provide, ``__cdc_told_at`` those that an earlier event carried, and as not known those that none did:
        the row came from the key that ``__cdc_moved`` records.
    """
    events = with_copies(events, keys, content=[OP, BEFORE, AFTER], change_restarts=change_restarts)
    events = events.withColumn(_VOIDED, F.expr(voided))
    gathered = _gather(events, keys, columns, more=[HELD] if subject_of_last else [])
    each = [F.expr(f"folds[{place}]").alias(name) for place, name in enumerate(_STARTS)]
    folds = gathered.withColumn("folds", F.expr(_FOLDED)).select("*", *each)
    if subject_of_last:
        trails = dict.fromkeys(_ANSWERS, f"if({HELD}, {_TRAIL_OF_LAST.format('held')}, {_TRAIL_OF_LAST.format('absent')})")
    else:
        trails = {name: f"{name}_fold.trail" for name in _ANSWERS}
    folded = folds.withColumns({f"{name}_trail": F.expr(found) for name, found in trails.items()})
    folded = folded.withColumns({name: F.expr(_last_of(f"{name}_trail")) for name in _ANSWERS})
    trail, left_out, of_target = _TRAIL_OF_SURVIVOR.format(""), _LAST_LEFT_OUT, "false"
    if keeps_deleted:
        folded = folded.withColumns({f"{name}_deleted_trail": F.expr(_TRAIL_OF_LAST.format(name)) for name in _ANSWERS})
        trail = f"if({_DIES}, {_TRAIL_OF_SURVIVOR.format('_deleted')}, {trail})"
        left_out = f"if({_DIES}, {_ALL_COLUMNS}, {_LAST_LEFT_OUT})"
        of_target = f"coalesce({_last_of('trail')}, 0) = {_TARGETS_OWN}"
    lived = folded.withColumn("trail", F.expr(trail))
    traced = lived.withColumn("lineage", F.expr(_LINEAGE)).withColumn("begun", F.expr("coalesce(lineage[0].op IN ('c', 'r'), false)"))
    traced = traced.withColumn("left_out", F.expr(left_out))
    ours = {key: _key_name(place) for place, key in enumerate(keys)}
    picked = [(F.col(ours[name]) if name in keys else F.expr(_last_carried(name))).alias(name) for name in columns]
    return traced.select(*picked, *_own_columns(of_target), *_counts())


def _key_name(place: int) -> str:
    # A source's own name could clash with a column here, such as "events".
    return f"__cdc_key_{place}"


def _gather(events: DataFrame, keys: Sequence[str], columns: Sequence[str], *, more: Sequence[str]) -> DataFrame:
    """Return one row per key: its events in order as ``delivered``, and without redelivered copies as ``events``."""
    others = [name for name in columns if name not in keys]
    event = F.struct(
        # First, because it sorts the events.
        F.col(ORDER).alias("order"),
        F.col(POSITION).alias("position"),
        F.col(OP).alias("op"),
        F.col(TRANSACTION).alias("transaction"),
        F.col(BEFORE).alias("before"),
        F.col(AFTER).alias("after"),
        F.col(UNAVAILABLE).alias("unavailable"),
        F.col(ABSENT).alias("absent"),
        F.col(OLD_KEY).alias("old_key"),
        F.col(_VOIDED).alias("voided"),
        F.col(IS_COPY),
        F.struct(COMMITTED_AT, PARTITION, OFFSET, *[F.col(sql.name(name)) for name in others]).alias("row"),
    )
    delivered = gathered_in_order(events, event).alias("delivered")
    own_keys = [F.col(sql.name(key)).alias(_key_name(place)) for place, key in enumerate(keys)]
    by_key = events.groupBy(*own_keys).agg(delivered, *[F.first(name).alias(name) for name in more])
    return by_key.withColumn("events", F.expr(_FIRST_DELIVERIES))


def _own_columns(of_target: str) -> list[Column]:
    """:param of_target: SQL that is true where only the target's row can provide the values, whatever the events carry."""
    last = F.element_at("events", -1)
    ours = {
        POSITION: last["position"],
        OP: F.expr(_operation("held")),
        OP_IF_ABSENT: F.expr(_operation("absent")),
        COMMITTED_AT: last["row"][COMMITTED_AT],
        PARTITION: last["row"][PARTITION],
        OFFSET: F.coalesce(last["row"][OFFSET], last["order"]["ordinal"]["offset"]),
        UNAVAILABLE: F.expr(f"CASE WHEN {of_target} THEN {_ALL_COLUMNS} ELSE {_LEFT_TO_TARGET} END"),
        ABSENT: F.expr("element_at(lineage, -1).absent"),
        VALUE_POSITIONS: F.expr(_VALUE_POSITIONS),
        MOVED: F.expr(_MOVED),
    }
    return [ours[name].alias(name) for name in RECONCILED_COLUMNS]


def _counts() -> list[Column]:
    return [
        F.size("delivered").cast("bigint").alias(EVENTS),
        (F.size("delivered") - F.size("events")).cast("bigint").alias(REDELIVERED),
        F.lit(0).alias(CONFLICTS),
        F.expr(_REACH).alias(REACH),
        F.lit(0).alias(HAZARD),
    ]


# Of the two answers, the one from the later event. If one event gave both, an update without before image continued either the row from
# before, or one that these events made: the less odd answer wins, and of two alike the longer, which carries more.
_OF_EVENTS = f"filter({{0}}, number -> number <> {_TARGETS_OWN})"
_TRAIL_OF_SURVIVOR = f"""CASE
    WHEN absent{{0}}_trail IS NULL THEN held{{0}}_trail WHEN held{{0}}_trail IS NULL THEN absent{{0}}_trail
    WHEN (element_at(absent{{0}}_trail, -1), -absent_fold.odd, size({_OF_EVENTS.format("absent{0}_trail")}))
        > (element_at(held{{0}}_trail, -1), -held_fold.odd, size({_OF_EVENTS.format("held{0}_trail")})) THEN absent{{0}}_trail
    ELSE held{{0}}_trail END"""
# The events that wrote the surviving row. Events that wrote another row version of the key between them do not concern this one.
_LINEAGE = f"""CASE WHEN element_at(trail, -1) <> {_TARGETS_OWN}
    THEN transform(filter(trail, number -> number <> {_TARGETS_OWN}), number -> events[number - 1]) END"""

_PLACES = "transform(filter(events, event -> event.order.read = 0 OR event.order.ordinal.offset IS NULL), event -> event.position)"
_OFFSETS = f"transform(events, event -> event.row.{OFFSET})"
_DEPENDS = f"NOT ({_OF_EVENTS.format('held_in_last.trail')} <=> {_OF_EVENTS.format('absent_in_last.trail')})"
_EARLIER = "filter(events, event -> NOT event.transaction <=> element_at(events, -1).transaction)"
_LAST_OF_THEIRS = "element_at(theirs, -1)"
_STRETCH = f"""named_struct('position', {_LAST_OF_THEIRS}.position, 'partition', {_LAST_OF_THEIRS}.row.{PARTITION},
    'offset', coalesce({_LAST_OF_THEIRS}.row.{OFFSET}, {_LAST_OF_THEIRS}.order.ordinal.offset), 'began', theirs[0].position)"""
_OF_TRANSACTION = sql.let("theirs", "filter(events, event -> event.transaction <=> transaction)", _STRETCH)
_PASSED = f"transform(array_distinct(transform({_EARLIER}, event -> event.transaction)), transaction -> {_OF_TRANSACTION})"
_REACH = f"""named_struct('first', array_min({_PLACES}), 'last', array_max({_PLACES}),
    'first_offset', array_min({_OFFSETS}), 'last_offset', array_max({_OFFSETS}),
    'first_transaction', events[0].transaction, 'last_transaction', element_at(events, -1).transaction,
    'began', try_element_at(filter(events, event -> event.transaction <=> element_at(events, -1).transaction), 1).position,
    'deletes', exists(events, event -> event.op = 'd'), 'writes', exists(events, event -> event.op IN ('c', 'u')),
    'depends', {_DEPENDS}, 'expects', events[0].op IN ('u', 'd'), 'passed', if({_DEPENDS}, {_PASSED}, NULL))"""

_LAST_LEFT_OUT = "coalesce(element_at(lineage, -1).unavailable, CAST(array() AS array<string>))"
_NEVER_CARRIED = "forall(lineage, event -> coalesce(array_contains(event.unavailable, name), false))"
_IS_ABSENT = "coalesce(array_contains(element_at(lineage, -1).absent, name), false)"
# A read says nothing of a column that the source dropped before it.
_LEFT_TO_TARGET = f"""nullif(filter(left_out, name -> {_NEVER_CARRIED}
    AND (NOT begun OR (lineage[0].op = 'r' AND {_IS_ABSENT}))), array())"""
# Where deleted rows stay, a delete reports each column as unavailable.
_DIES = "(absent IS NULL AND coalesce(held, 0) = 0)"
_ALL_COLUMNS = "try_element_at(filter(events, event -> event.op = 'd'), 1).unavailable"

# A row that began in these events has no value in the target: a column that none of them carries is NULL so far.
_CARRIERS = "filter(lineage, event -> NOT coalesce(array_contains(event.unavailable, name), false))"
_VALUE_POSITIONS = f"""
CAST(nullif(transform(
    filter(left_out, name -> NOT {_NEVER_CARRIED} OR (begun AND NOT {_IS_ABSENT})),
    name -> named_struct('column', name, 'position', coalesce(try_element_at({_CARRIERS}, -1).position, lineage[0].position),
        'known', size({_CARRIERS}) > 0)
), array()) AS {VALUE_POSITIONS_TYPE})
"""

_MOVED = f"""
CAST(CASE WHEN begun AND exists(left_out, name -> NOT {_IS_ABSENT} AND {_NEVER_CARRIED})
    THEN named_struct('position', lineage[0].position, 'old_key', lineage[0].old_key) END AS {MOVED_TYPE})
"""


def _last_carried(name: str) -> str:
    """Return the SQL of a column's value in the surviving row: from the last event of its lineage that carries it."""
    carries = f"NOT coalesce(array_contains(event.unavailable, {sql.text(name)}), false)"
    return f"try_element_at(filter(lineage, event -> {carries}), -1).row.{sql.name(name)}"


# A redelivered copy would be a second row version.
_FIRST_DELIVERIES = "filter(delivered, event -> NOT event.is_copy)"

# SQL of the place (from 1) of the version that a delete or update concerns: the one equal to its before image; else one that is equal in
# all columns that both carry, and in at least one; else the oldest, which is the target's own if the target holds the key.
_LOOSELY = """coalesce(version.image IS NOT NULL
    AND forall(zip_with(event.before, version.image, (b, a) -> coalesce(b = a, true)), agrees -> agrees)
    AND exists(zip_with(event.before, version.image, (b, a) -> coalesce(b = a, false)), agrees -> agrees), false)"""
SUBJECT = f"""CASE
  WHEN event.before IS NULL THEN 1
  WHEN exists(versions, version -> version.image = event.before) THEN array_position(transform(versions, v -> v.image), event.before)
  ELSE greatest(array_position(transform(versions, version -> {_LOOSELY}), true), 1)
END"""
# The version whose values an update continues: never one that its before image contradicts.
_CONTRADICTED = "exists(zip_with(event.before, version.image, (b, a) -> coalesce(b <> a, false)), differs -> differs)"
_PREDECESSOR = f"""CASE
  WHEN event.before IS NULL OR exists(versions, version -> version.image = event.before OR {_LOOSELY}) THEN subject
  ELSE nullif(array_position(transform(versions, version -> NOT coalesce({_CONTRADICTED}, false)), true), 0)
END"""

# What no database does: leave two rows under a key, or change a missing one.
_IS_ODD = (
    "(NOT state.transaction <=> event.transaction AND size(state.versions) > 1) OR (event.op IN ('u', 'd') AND size(state.versions) = 0)"
)
_OWN = f"array(named_struct('image', NULL, 'trail', array({_TARGETS_OWN})))"
_BEFORE_ALL = f"CAST(if(state.held, {_OWN}, array()) AS array<{_VERSION}>)"
# After a transaction at most one version survives: the newest. A void removes all rows of these events; the merge decides whether it
# removes the target's too.
_SETTLED = f"""CASE WHEN state.voided AND NOT event.voided THEN {_BEFORE_ALL}
    WHEN state.transaction <=> event.transaction THEN state.versions
    ELSE slice(state.versions, -1, least(size(state.versions), 1)) END"""
_MEMBERS = """'op', e.op, 'transaction', e.transaction, 'before', e.before, 'after', e.after, 'is_whole', e.unavailable IS NULL,
    'voided', e.voided"""
_IN_LAST = "'in_last', e.transaction <=> element_at(events, -1).transaction"
_NUMBERED = f"transform(events, (e, place) -> named_struct('number', place + 1, {_MEMBERS}, {_IN_LAST}))"

# Late events may come between these: only the key's last transaction decides whether an outcome depends.
_STARTS = {f"{name}_{kind}": (name == "held", kind == "in_last") for kind in ("fold", "in_last") for name in _ANSWERS}
"""The folds of a key, by name: whether the target holds the key before them, and whether only the last transaction is folded."""


def _written(trail: str) -> str:
    """Return the SQL of the row version that an event writes; ``trail``: SQL of the row's trail before it."""
    written = f"'image', event.after, 'trail', array_append({trail}, event.number)"
    return f"CAST(named_struct({written}) AS {_VERSION})"


OTHERS = "filter(versions, (version, place) -> place <> subject - 1)"
"""SQL of the versions without the one that an event concerns."""


def rewritten(written: str, *, born: str) -> str:
    """Return the SQL of the versions after an update. The row keeps its place: of two rows under a key, the older is the first to arrive.

    :param written: SQL of the row version that the update makes from ``version``.
    :param born: SQL of the row version that it makes if there is none.
    """
    return f"if(size(versions) = 0, array({born}), transform(versions, (version, place) -> if(place = subject - 1, {written}, version)))"


def _start(*, held: bool, in_last: bool) -> str:
    fixed = f"'in_last', {str(in_last).lower()}, 'held', {str(held).lower()}, 'voided', false"
    members = f"CAST({_OWN if held else 'array()'} AS array<{_VERSION}>), 'odd', 0, 'about', CAST(NULL AS array<int>)"
    return f"named_struct({fixed}, 'transaction', CAST(NULL AS STRING), 'versions', {members})"


def _step() -> str:
    """Return the SQL of a fold's state after an event."""
    goes_on = f"if(event.is_whole, array(), coalesce(try_element_at(versions, CAST({_PREDECESSOR} AS INT)).trail, array()))"
    changed = f"""CASE event.op
        WHEN 'c' THEN array_append(versions, {_written("array()")})
        WHEN 'r' THEN array({_written("array()")})
        WHEN 'u' THEN {rewritten(_written(goes_on), born=_written(goes_on))}
        ELSE {OTHERS} END"""
    about = "if(event.op = 'd', try_element_at(versions, subject).trail, NULL)"
    members = f"'transaction', event.transaction, 'versions', {changed}, 'odd', state.odd + if({_IS_ODD}, 1, 0), 'about', {about}"
    after = f"named_struct('in_last', state.in_last, 'held', state.held, 'voided', event.voided, {members})"
    subject = f"if(event.op IN ('u', 'd'), CAST({SUBJECT} AS INT), 1)"
    return sql.let("versions", _SETTLED, sql.let("subject", subject, after))


# Array of struct<trail, odd, about>, by _STARTS: the survivor's trail, NULL if nothing survives; the number of odd events in that case;
# the trail of the row that the last event deletes, if it is a delete. A trail's last number is that of the event whose row it is; 0 is
# the row before them all. One aggregate for all: each further one would be planned, sent and interpreted separately.
_FOLDED = f"""aggregate({_NUMBERED}, array({", ".join(_start(held=held, in_last=last) for held, last in _STARTS.values())}),
    (states, event) -> transform(states, state -> if(state.in_last AND NOT event.in_last, state, {_step()})),
    states -> transform(states, state -> named_struct('trail', try_element_at(state.versions, -1).trail,
        'odd', state.odd + if(size(state.versions) > 1, 1, 0), 'about', state.about)))"""
_TRAIL_OF_LAST = "if(element_at(events, -1).op = 'd', {0}_fold.about, {0}_fold.trail)"


def _last_of(trail: str) -> str:
    return f"try_element_at({trail}, -1)"


def _operation(answer: str) -> str:
    """Return the SQL of the operation for a fold's answer."""
    return f"CASE WHEN {answer} IS NULL THEN 'd' WHEN {answer} = {_TARGETS_OWN} THEN '{KEEP}' ELSE events[greatest({answer}, 1) - 1].op END"
