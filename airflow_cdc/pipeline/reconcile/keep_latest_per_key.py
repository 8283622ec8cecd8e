"""Keep the latest event per key, with counts of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    ABSENT,
    COMMITTED_AT,
    MOVED,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    ORDINAL,
    PARTITION,
    POSITION,
    SNAPSHOT,
    TRANSACTION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.pipeline.decode.decode_events import LINE_HASH, MOVED_TYPE, VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import INITIAL, POSITION_TYPE
from airflow_cdc.pipeline.reconcile.order_events import ORDER, comparable
from airflow_cdc.pipeline.spark import sql

EVENTS = "__cdc_events"
REDELIVERED = "__cdc_redelivered"
CONFLICTS = "__cdc_conflicts"
REACH = "__cdc_reach"
"""struct<first position, last position, first_offset, last_offset, first_transaction, last_transaction, began position, deletes boolean,
writes boolean, depends boolean, expects boolean, passed array> of a key's events. First and last cover only events that their position
places; the transactions' texts are set only where positions do not distinguish transactions. ``began``: the position at which the key's
last transaction began, NULL where nothing depends. ``depends``: whether the outcome depends on the target holding the key. ``expects``:
whether the first event is an update or a delete, so that the target should hold the key. ``passed``: the key's earlier transactions, if
the outcome depends: array<struct<position of its last event, that one's partition and offset, began position>>."""
REACH_MEMBERS = {
    **dict.fromkeys(("first", "last"), POSITION_TYPE),
    **dict.fromkeys(("first_offset", "last_offset"), "BIGINT"),
    **dict.fromkeys(("first_transaction", "last_transaction"), "STRING"),
    "began": POSITION_TYPE,
    **dict.fromkeys(("deletes", "writes", "depends", "expects"), "BOOLEAN"),
    "passed": f"ARRAY<STRUCT<position: {POSITION_TYPE}, partition: INT, offset: BIGINT, began: {POSITION_TYPE}>>",
}
"""Spark SQL types of the members of :data:`REACH`."""
READS = "__cdc_reads"
"""struct<newest struct<position, partition, last boolean, offset, initial boolean, first boolean>, oldest struct<position, partition>> of
the key's reads by full snapshots; NULLs if it has none. The partition is the read's own: the key's last event may lie in a partition added
since."""
HAZARD = "__cdc_hazard"
"""0 if the last event alone determines the key's row. Otherwise fold its row versions: 1; 2 if some events share a position, so that only
their images may show their order, and which are copies."""
IS_HAZARD = f"{HAZARD} > 0"
IS_LAST = "__cdc_is_last"
"""boolean: whether the event is its key's last."""


def reach_of(change: str) -> dict[str, str]:
    """Return what the rules ask of a row change, as SQL by name: members of :data:`REACH`, and ``keeps``; ``change``: alias."""
    members = ("first", "last", "first_offset", "writes", "deletes", "depends", "began")
    return {name: f"{change}.{REACH}.{name}" for name in members} | {"keeps": f"{change}.{VALUE_POSITIONS} IS NOT NULL"}


RECONCILED_COLUMNS = (POSITION, OP, OP_IF_ABSENT, COMMITTED_AT, PARTITION, OFFSET, UNAVAILABLE, ABSENT, VALUE_POSITIONS, MOVED)
_BEFORE, _BEFORE_THAT = "__cdc_event_before", "__cdc_event_before_that"
_CONTENT = "__cdc_content_of_event"
_IS_ALIKE = "__cdc_is_alike"
"""boolean: whether an event without an offset writes what the one before it writes."""
_FLAGS = "__cdc_flags"
_REMOVES_ANOTHER, _IN_CONFLICT, _DELETES, _WRITES, _UNORDERED, _CREATES, _TIED = 1, 2, 4, 8, 16, 32, 64
"""Bits of the flags."""


def keep_latest_per_key(
    events: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    and_hazardous: bool = False,
    names_transactions: bool = False,
    may_lack_offsets: bool = False,
    change_restarts: bool,
    dropped: Sequence[str] = (),
) -> DataFrame:
    """Return one row per key: its last event.

    >>> #  key  position  op          key  position  op  events
    >>> #   1      10      c    ->     1      12      d     2
    >>> #   1      12      d           2      11      c     1
    >>> #   2      11      c

    One sort and two windows over it; an aggregation would sort once more (docs/adr/measurements.md).

    :param events: good row events (``r c u d``) with ``columns``, our own columns and
        :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER`.
    :param and_hazardous: whether to return the other events of keys with a :data:`HAZARD` too; ``events`` then have
        :data:`LINE_HASH`, and the returned rows also :data:`IS_LAST`.
    :param names_transactions: whether :data:`REACH` holds the texts of transactions.
    :param may_lack_offsets: whether many events may have no offset: copies of them, in other files, are then no :data:`HAZARD`.
    :param change_restarts: as for :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    :param dropped: columns that no event has. That each leaves them out is no :data:`HAZARD`: the row has the table's value, or NULL
        if it begins in these events.
    :return: ``columns``, :data:`RECONCILED_COLUMNS`, and per key the number of events and of redelivered copies (same position as
        another event of the key), whether an event was archived later but positioned earlier (1 or 0), :data:`REACH`,
        :data:`READS` and :data:`HAZARD`.
    """
    by_key = Window.partitionBy(*[F.col(sql.name(key)) for key in keys]).orderBy(ORDER)
    compared = _compare_contents(events, by_key, columns if may_lack_offsets else None)
    flagged = _flag(flag_copies(compared, by_key), change_restarts=change_restarts)
    summarized = _summarize_keys(flagged, by_key, names_transactions=names_transactions, dropped=dropped)
    kept = summarized.filter(f"{IS_LAST} OR {IS_HAZARD}" if and_hazardous else IS_LAST)
    picked = [F.col(sql.name(name)) for name in columns]
    ours = [_of_single_event(name).alias(name) for name in RECONCILED_COLUMNS]
    more = [IS_LAST, LINE_HASH] if and_hazardous else []
    return kept.select(*picked, *ours, EVENTS, REDELIVERED, CONFLICTS, REACH, READS, HAZARD, *more)


def _compare_contents(events: DataFrame, by_key: WindowSpec, columns: Sequence[str] | None) -> DataFrame:
    """Return the events with :data:`_IS_ALIKE`; costs the hashes of events without offsets. None: not compared."""
    if columns is None:
        return events.withColumn(_IS_ALIKE, F.lit(False))  # noqa: FBT003
    content = ", ".join(comparable(events, name) for name in (OP, *columns))
    hashed = events.withColumn(_CONTENT, F.expr(f"if({ORDINAL}.offset IS NULL, xxhash64({content}), NULL)"))
    return hashed.withColumn(_IS_ALIKE, _or_false(F.lag(_CONTENT).over(by_key) == F.col(_CONTENT)))


def flag_copies(events: DataFrame, by_key: WindowSpec) -> DataFrame:
    """Return the events with two flags, 1 or 0: redelivered copies (same position as the event before), and conflicts: events that are
    not copies, and were archived before an event that they follow.

    :param by_key: the events of each key in order.
    """
    near = {_BEFORE: _events_before(1, by_key), _BEFORE_THAT: _events_before(2, by_key)}
    before, before_that = F.col(_BEFORE), F.col(_BEFORE_THAT)
    redelivered = _or_false(before[POSITION] == F.col(POSITION))
    # A copy's own offset is no evidence of order: only first deliveries are compared.
    both_first = ~redelivered & ~_or_false(before_that[POSITION] == before[POSITION])
    archived_earlier = before[PARTITION].eqNullSafe(F.col(PARTITION)) & (before["offset"] > F.col(ORDINAL)["offset"])
    flags = {REDELIVERED: redelivered.cast("int"), CONFLICTS: _or_false(both_first & archived_earlier).cast("int")}
    return events.withColumns(near).withColumns(flags)


def _events_before(steps: int, by_key: WindowSpec) -> Column:
    """Return the columns of an earlier event of the key; NULLs if there is none."""
    # One lag per column: a struct of them would be shuffled beside its members, once for each number of steps.
    place = {"offset": F.col(ORDINAL)["offset"], "run": F.col(ORDINAL)["run"]}
    looked = {**{name: F.col(name) for name in (POSITION, OP, TRANSACTION, PARTITION)}, **place}
    return _struct({name: F.lag(value, steps).over(by_key) for name, value in looked.items()})


def _or_false(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))  # noqa: FBT003


def _of_single_event(name: str) -> Column:
    if name in (VALUE_POSITIONS, MOVED):
        return F.lit(None).cast(VALUE_POSITIONS_TYPE if name == VALUE_POSITIONS else MOVED_TYPE)
    if name == OFFSET:
        # Of values, the first offset of their file.
        return F.col(ORDINAL)["offset"]
    return F.col(OP if name == OP_IF_ABSENT else name)


def _flag(events: DataFrame, *, change_restarts: bool) -> DataFrame:
    """Add the flags that are aggregated over a key's events, as bits: one aggregate costs less than one per flag.

    ``_REMOVES_ANOTHER``: a delete may concern another row version than the last one. This is possible behind a create of the same
    transaction that did not follow a delete there: the key may have been taken over from a live row
    (docs/sources/debezium.md#keys-handed-on). A delete in an earlier transaction does not prove that the key was free: a create that
    comes late may lie between them. The two preceding events suffice as evidence, because the events of one transaction and key
    are adjacent, with only snapshot reads between them. In a longer chain, some are flagged needlessly, but none is missed.
    So is a delete whose position is not above that of what it removes: it may be a copy.
    """
    before, before_that, op = F.col(_BEFORE), F.col(_BEFORE_THAT), F.col(OP)
    here, there = before[TRANSACTION] == F.col(TRANSACTION), before_that[TRANSACTION] == F.col(TRANSACTION)
    created = here & (before[OP] == "c") & ~_or_false(there & (before_that[OP] == "d"))
    behind_more = ((here & (before[OP] == "u")) | (before[OP] == "r")) & (there | (before_that[OP] == "r"))
    shares = before[POSITION] == F.col(POSITION)
    shares_commit = before[POSITION]["commit"] == F.col(POSITION)["commit"]
    may_be_copy = before[OP].isin("c", "u") & shares_commit & ~(F.col(POSITION) > before[POSITION])
    flags = {
        _REMOVES_ANOTHER: (op == "d") & (_or_false(created) | _or_false(behind_more) | _or_false(may_be_copy)),
        _IN_CONFLICT: F.col(CONFLICTS) == 1,
        _DELETES: op == "d",
        _WRITES: op.isin("c", "u"),
        _CREATES: op == "c",
        _UNORDERED: shares & ~_are_ordered(before) & ~F.col(_IS_ALIKE),
        _TIED: shares_commit & (before[OP] != op) if change_restarts else F.lit(False),  # noqa: FBT003
    }
    bits = (F.when(condition, F.lit(bit)).otherwise(F.lit(0)) for bit, condition in flags.items())
    return events.withColumn(_FLAGS, reduce(lambda one, other: one.bitwiseOR(other), bits))


def _are_ordered(before: Column) -> Column:
    """Return whether the archive orders an event and the one before it, if they share a position."""
    ordinal = F.col(ORDINAL)
    of_lane = before[PARTITION].eqNullSafe(F.col(PARTITION)) & before["run"].eqNullSafe(ordinal["run"])
    return of_lane & before["offset"].isNull().eqNullSafe(ordinal["offset"].isNull())


def _summarize_keys(events: DataFrame, by_key: WindowSpec, *, names_transactions: bool, dropped: Sequence[str]) -> DataFrame:
    """Add the columns that aggregate all events of a key."""
    of_key = by_key.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    by_position = (F.col(ORDER)["read"] == 0) | F.col(ORDINAL)["offset"].isNull()
    placed = F.when(by_position, F.col(POSITION))
    named = F.when(by_position, F.col(TRANSACTION)) if names_transactions else F.lit(None).cast("string")
    of_whole_table = (F.col(OP) == "r") & (F.col(SNAPSHOT) != "incremental")
    read = F.when(of_whole_table, F.struct(*read_columns()))
    bits = F.bit_or(_FLAGS).over(of_key)

    def any_is(bit: int) -> Column:
        return bits.bitwiseAND(bit) != 0

    reach = {
        "first": F.first(placed, ignorenulls=True).over(of_key),
        "last": F.last(placed, ignorenulls=True).over(of_key),
        "first_offset": F.min(OFFSET).over(of_key),
        "last_offset": F.max(OFFSET).over(of_key),
        "first_transaction": F.first(named, ignorenulls=True).over(of_key),
        "last_transaction": F.last(named, ignorenulls=True).over(of_key),
        "began": F.lit(None).cast(POSITION_TYPE),
        "deletes": any_is(_DELETES),
        "writes": any_is(_WRITES),
        "depends": F.lit(False),  # noqa: FBT003
        "expects": F.first(OP).over(of_key).isin("u", "d"),
        "passed": F.lit(None).cast(REACH_MEMBERS["passed"]),
    }
    reads = {"newest": F.max(read).over(of_key), "oldest": F.min(F.when(of_whole_table, read_place())).over(of_key)}
    count, copies = F.count("*").over(of_key), F.sum(REDELIVERED).over(of_key)
    # A value that the last event does not carry comes from an earlier one, or from the row that moved here.
    of_others = _without(dropped)
    is_left_out, last = F.last(of_others.isNotNull()).over(of_key), F.last(OP).over(of_key)
    folds = any_is(_REMOVES_ANOTHER) | (is_left_out & ((count > copies + 1) | (last == "c")))
    hazard = F.when(any_is(_UNORDERED) | (folds & any_is(_TIED)), 2).otherwise(folds.cast("int"))
    return events.withColumns(
        {
            IS_LAST: F.lead(OP).over(by_key).isNull(),
            EVENTS: count,
            REDELIVERED: copies,
            CONFLICTS: any_is(_IN_CONFLICT).cast("int"),
            REACH: _struct(reach),
            READS: _struct(reads),
            HAZARD: hazard,
            **({UNAVAILABLE: F.when(any_is(_CREATES), of_others).otherwise(F.col(UNAVAILABLE))} if dropped else {}),
        }
    )


def _without(names: Sequence[str]) -> Column:
    """Return the names of the columns that an event leaves out, but for ``names``; NULL for none."""
    return F.expr(f"nullif(array_except({UNAVAILABLE}, {sql.texts(names)}), array())") if names else F.col(UNAVAILABLE)


def read_columns() -> list[Column]:
    """Return columns of a full snapshot's read: position, lane, whether it is marked as a table's last, offset, whether it is initial,
    whether it is marked as a table's first.
    """
    return [
        F.col(POSITION).alias("position"),
        F.col(PARTITION),
        F.col(SNAPSHOT).startswith("last").alias("last"),
        F.col(OFFSET).alias("offset"),
        F.col(SNAPSHOT).endswith(INITIAL).alias("initial"),
        F.col(SNAPSHOT).startswith("first").alias("first"),
    ]


def read_place() -> Column:
    """Return the position and the lane of a full snapshot's read."""
    return F.struct(F.col(POSITION).alias("position"), F.col(PARTITION))


def _struct(members: Mapping[str, Column]) -> Column:
    return F.struct(*[value.alias(name) for name, value in members.items()])
