"""The native engine's SQL (DuckDB) of a fold: events to each key's last one, and the counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc.model.columns import (
    BEGAN,
    COMMITTED_AT,
    DEPENDS,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    PASSED,
    POSITION,
    SNAPSHOT,
    TRANSACTION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.apply.native.decode_sql import EVENTS, NUMBER
from airflow_cdc.pipeline.apply.native.left_out import (
    HAS_BEFORE,
    IS_UNRESOLVED,
    LEFT_OUT,
    carried,
    carriers,
    is_link,
    join_carriers,
    left_to_table,
    own_carriers,
    value_positions,
)
from airflow_cdc.pipeline.decode.event_place import INITIAL
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source, text, texts
from airflow_cdc.pipeline.native.record_lines import START

CHANGES = "cdc_changes"
"""The table of each key's row change."""
MARKED_AT = "__cdc_marked_at"
"""The position of a key's delete marker."""
OF_VERSIONS = (OP_IF_ABSENT, BEGAN, DEPENDS, PASSED, MARKED_AT)
"""Columns of row changes some of which follow from a key's row versions; the target does not have them."""
_STREAMED = f"CASE WHEN {OP} <> 'r' THEN {POSITION} END"
_PLACE = "place"
"""The column of events by which they are ordered: a position, unless the archive's order goes first."""


@dataclass(frozen=True)
class Fold:
    """How events are folded.

    Of the records of a Kafka partition the offset gives the order; of values the first offset of their file, and their place in it.
    """

    keys: Sequence[str]
    columns: Sequence[str]
    are_values: bool
    has_reads: bool
    """Whether the events include snapshot reads."""
    reads_among_changes: bool
    """Whether they and streamed events may meet."""
    change_restarts: bool
    """As :attr:`airflow_cdc.model.connectors.connector.PositionRule.change_restarts`."""
    left_out: Sequence[str] = ()
    """Columns whose values some events leave out."""
    are_documents: bool = False
    """Whether a key is free before another row takes it: the last event alone decides."""
    keeps_deleted: bool = False
    """Whether deleted rows stay, flagged, with their last values. Then no event leaves out a value."""
    has_versions: bool = False
    """Whether some changes follow from a key's row versions: then they have :data:`OF_VERSIONS`."""

    @property
    def start(self) -> str:
        """The column whose values are compared between two events of a key, as ``ORDINAL.offset``."""
        return START if self.are_values else OFFSET

    @property
    def others(self) -> list[str]:
        """The columns without the keys."""
        return [column for column in self.columns if column not in self.keys]

    @property
    def leaves_values(self) -> bool:
        """Whether some changes may leave values to the table's rows: then they have the columns that say so."""
        return bool(self.left_out) or self.keeps_deleted

    @property
    def key(self) -> str:
        """The key's columns."""
        return ", ".join(map(of_source, self.keys))

    @property
    def in_order(self) -> str:
        """The columns of ``ordered`` that order a key's events."""
        return f"order_position NULLS FIRST, is_read, {self.ordinal}"

    @property
    def ordinal(self) -> str:
        """The columns that order a partition's events."""
        return f"{START}, event" if self.are_values else OFFSET


def fold(how: Fold) -> str:
    """Return the statement that makes :data:`CHANGES`: each key's last event, with sums over all of the key's events.

    The rules are those of :func:`airflow_cdc.pipeline.reconcile.keep_latest_per_key.keep_latest_per_key`. Windows cost most of it, of few
    rows too: there is one, and a key with one event, which in a large table is most of them, needs none.
    """
    key = how.key
    picked = [carried(column) if column in how.left_out else f"events.{of_source(column)}" for column in how.columns]
    return f"""
CREATE OR REPLACE TEMP TABLE {CHANGES} AS
WITH tallied AS MATERIALIZED (
  SELECT {key}, any_value(rowid) AS event, count(*) AS events FROM {EVENTS} WHERE NOT is_tombstone GROUP BY {key}
), {in_order(how, f"SELECT {key} FROM tallied WHERE events > 1")}, {_of_several(key, how)}, latest AS (
  SELECT * FROM last_of_several UNION ALL {_alone(how)}
)
SELECT {", ".join(picked)}, {_last_event(how)}, latest.* EXCLUDE (event){_resolved(how)}
FROM latest JOIN {EVENTS} AS events ON events.rowid = latest.event{join_carriers(how.left_out, EVENTS)}"""


def row_changes(how: Fold) -> str:
    """Return the query of the row changes: the source's columns under their names, and our own."""
    ours = [OP, POSITION, COMMITTED_AT, PARTITION, OFFSET, *([VALUE_POSITIONS, UNAVAILABLE] if how.leaves_values else [])]
    ours += [OP_IF_ABSENT, BEGAN, DEPENDS, PASSED, f"coalesce(last_position, {POSITION}) AS {MARKED_AT}"] if how.has_versions else []
    return f"SELECT {', '.join(f'{of_source(column)} AS {name(column)}' for column in how.columns)}, {', '.join(ours)} FROM {CHANGES}"


def _last_event(how: Fold) -> str:
    """Return the columns of a key's last event."""
    of_event = [OP, POSITION, COMMITTED_AT, PARTITION, f"{how.start} AS {OFFSET}", *([LEFT_OUT] if how.left_out else [])]
    return ", ".join(f"events.{each}" for each in of_event)


_OF_ONE_EVENT = f"""1 AS events, 0 AS copies, false AS conflicts, false AS unordered, false AS hazard, {OP} = 'd' AS deletes,
    {OP} IN ('c', 'u') AS writes, {OP} IN ('u', 'd') AS expects,
    {_STREAMED} AS first_position, {_STREAMED} AS last_position, {OFFSET} AS first_offset, {OFFSET} AS last_offset"""
"""Sums over a single event."""


def _of_several(key: str, how: Fold) -> str:
    """Return the tables up to the last events of keys with several events."""
    order = how.in_order
    link = f", {is_link('before_op', 'before_transaction')} AS is_link" if how.left_out else ""
    same = f"before_transaction = {TRANSACTION}"
    that = f"(that_transaction = {TRANSACTION} OR that_op = 'r')"
    created = f"({same} AND before_op = 'c' AND NOT coalesce(that_transaction = {TRANSACTION} AND that_op = 'd', false))"
    behind_more = f"(({same} AND before_op = 'u') OR before_op = 'r') AND {that}"
    # Not above what it removes: it may be a copy.
    may_be_copy = f"before_op IN ('c', 'u') AND before_position.commit = {POSITION}.commit AND before_position >= {POSITION}"
    removes_another = " OR ".join(f"coalesce({each}, false)" for each in (created, behind_more, may_be_copy))
    return f"""near AS (
  SELECT *, row_number() OVER k AS nth, lag({POSITION}) OVER k AS before_position, lag({POSITION}, 2) OVER k AS that_position,
    lag({OP}) OVER k AS before_op, lag({OP}, 2) OVER k AS that_op,
    lag({TRANSACTION}) OVER k AS before_transaction, lag({TRANSACTION}, 2) OVER k AS that_transaction,
    lag({PARTITION}) OVER k AS before_partition, lag({how.start}) OVER k AS before_offset
  FROM ordered
  WINDOW k AS (PARTITION BY {key} ORDER BY {order})
), flagged AS (
  SELECT *, coalesce(before_position = {POSITION}, false) AS is_copy,
    NOT coalesce(before_position = {POSITION}, false) AND NOT coalesce(that_position = before_position, false)
      AND before_partition = {PARTITION} AND before_offset > {how.start} AS in_conflict,
    coalesce(before_position = {POSITION} AND before_partition IS DISTINCT FROM {PARTITION}, false) AS is_unordered,
    {"false" if how.are_documents else f"{OP} = 'd' AND ({removes_another})"} AS removes_another,
    {OP} IN ('u', 'd') AS is_change{link}
  FROM near
), last_of_several AS (
  SELECT arg_max(event, nth) AS event, count(*) AS events, count_if(is_copy) AS copies, bool_or(coalesce(in_conflict, false)) AS conflicts,
    bool_or(is_unordered) AS unordered, bool_or(removes_another){_deletes_another_s_values(how)} AS hazard, bool_or({OP} = 'd') AS deletes,
    bool_or({OP} IN ('c', 'u')) AS writes, arg_min(is_change, nth) AS expects,
    arg_min({_STREAMED}, nth) AS first_position, arg_max({_STREAMED}, nth) AS last_position,
    min({OFFSET}) AS first_offset, max({OFFSET}) AS last_offset{_reads_of_key(_over_key) if how.has_reads else ""}{_carriers(how)}
  FROM flagged GROUP BY {key}
)"""


def _alone(how: Fold) -> str:
    """Return the query of the events that are their keys' only ones, with the columns of ``last_of_several`` in their order."""
    more = _reads_of_key(_of_event) if how.has_reads else ""
    if how.left_out:
        more += f", coalesce({is_link('NULL', 'NULL')}, false) AS is_chain{own_carriers(how.left_out, 'event')}"
    return f"""
  SELECT event, {_OF_ONE_EVENT}{more}
  FROM (SELECT found.rowid AS event, found.* FROM {EVENTS} AS found JOIN tallied ON found.rowid = tallied.event AND tallied.events = 1)"""


def each_event() -> str:
    """Return the query of all events, each as :data:`CHANGES` would have it if its key had no other."""
    return f"""
SELECT {OP}, {POSITION}, {COMMITTED_AT}, {PARTITION}, {OFFSET}, {_OF_ONE_EVENT}{_reads_of_key(_of_event)}, false AS is_unresolved
FROM {EVENTS} WHERE NOT is_tombstone"""


def _carriers(how: Fold) -> str:
    if not how.left_out:
        return ""
    return f", bool_and(coalesce(is_link, false)) AS is_chain{carriers(how.left_out, 'event', 'nth')}"


def _resolved(how: Fold) -> str:
    if how.keeps_deleted:
        unknown = f"CASE WHEN events.{OP} = 'd' THEN {names_of(how.others)} END AS {UNAVAILABLE}"
        return f", false AS is_unresolved, {unknown}, if(false, {positions_of([''], f'events.{POSITION}')}, NULL) AS {VALUE_POSITIONS}"
    if not how.left_out:
        return ", false AS is_unresolved"
    positions = f"{value_positions(how.left_out)}, {left_to_table(how.left_out)} AS {UNAVAILABLE}"
    # As where Spark folds a key's row versions.
    conflicts = f"conflicts AND events.{LEFT_OUT} IS NULL AS conflicts"
    return f" REPLACE ({conflicts}), {IS_UNRESOLVED} AS is_unresolved, {positions}"


def names_of(columns: Sequence[str]) -> str:
    """Return the SQL of the list of columns' names; NULL for none."""
    return f"[{texts(columns)}]" if columns else "CAST(NULL AS VARCHAR[])"


def positions_of(columns: Sequence[str], position: str) -> str:
    """Return the SQL of :data:`VALUE_POSITIONS` of columns whose values an event carried; NULL for none.

    :param position: SQL of its position.
    """
    entries = ", ".join(f"{{'column': {text(column)}, 'position': {position}, 'known': true}}" for column in columns)
    return f"[{entries}]" if columns else "NULL"


def _deletes_another_s_values(how: Fold) -> str:
    """Return the SQL, behind a condition, that is true for a delete whose values an earlier event carries, where deleted rows stay."""
    return f" OR (arg_max({OP}, nth) = 'd' AND count(*) > count_if(is_copy) + 1)" if how.keeps_deleted and how.others else ""


def _narrow(key: str, how: Fold) -> str:
    """Return the columns that decide the order, and the event's place: a window sorts and copies whatever it is given."""
    more = "".join(f", {each}" for each in [START] * how.are_values + [LEFT_OUT, HAS_BEFORE] * bool(how.left_out))
    return f"rowid AS event, {key}, {OP}, {POSITION}, {PARTITION}, {OFFSET}, {TRANSACTION}, {SNAPSHOT}{more}"


_BY_PLACE = f"ordered AS (SELECT * EXCLUDE ({_PLACE}), {_PLACE} AS order_position, {OP} = 'r' AS is_read FROM of_several)"


def in_order(how: Fold, keys: str) -> str:
    """Return the tables up to the events of some keys, ``ordered`` by :attr:`Fold.in_order`.

    :param keys: query of the keys.
    """
    ordered = _in_order(how.key, how) if how.reads_among_changes else _BY_PLACE
    return f"""of_keys AS (
  SELECT {_narrow(how.key, how)} FROM {EVENTS} SEMI JOIN ({keys}) USING ({how.key}) WHERE NOT is_tombstone
), of_several AS (SELECT *, {_raised(how) if how.change_restarts else POSITION} AS {_PLACE} FROM of_keys), {ordered}"""


def _raised(how: Fold) -> str:
    """Return the SQL of the place of an event by which a partition's events of one commit are in the archive's order, as
    :func:`airflow_cdc.pipeline.reconcile.order_events.order_events` has it.
    """
    window = (
        f"PARTITION BY {how.key}, {PARTITION}, {POSITION}.commit ORDER BY {how.ordinal} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    )
    change = f"max(CASE WHEN {OP} <> 'r' THEN {POSITION}.change END) OVER ({window})"
    raised = f"{{'commit': {POSITION}.commit, 'change': {change}, 'serial': CAST(0 AS BIGINT)}}"
    return f"CASE WHEN {OP} = 'r' THEN {POSITION} ELSE {raised} END"


def _in_order(key: str, how: Fold) -> str:
    """Return the events in the order of :func:`airflow_cdc.pipeline.reconcile.order_events.order_events`."""
    lane = f"PARTITION BY {key}, {PARTITION} ORDER BY {how.ordinal}"
    streamed = f"CASE WHEN {OP} <> 'r' THEN {_PLACE} END"
    fits = f"coalesce(streamed_before < {POSITION}, true) AND coalesce({POSITION} <= streamed_behind, true)"
    is_copy = f"{POSITION}.commit < streamed_before.commit"
    below = "{'commit': streamed_behind.commit, 'change': streamed_behind.change, 'serial': streamed_behind.serial - 1}"
    at_most_below = f"CASE WHEN {POSITION} < {below} THEN {POSITION} ELSE {below} END"
    return f"""
near_reads AS (
  SELECT *, max({streamed}) OVER ({lane} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS streamed_before,
    min({streamed}) OVER ({lane} ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS streamed_behind
  FROM of_several
), placed AS (
  SELECT *, CASE WHEN {OP} = 'r' THEN CASE WHEN {fits} OR {is_copy} THEN {POSITION}
    WHEN streamed_behind <= streamed_before THEN {at_most_below} ELSE streamed_before END END AS placed_at
  FROM near_reads
), raised AS (
  SELECT *, max(placed_at) OVER ({lane} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS raised_to FROM placed
), ordered AS (
  SELECT * EXCLUDE ({_PLACE}, streamed_before, streamed_behind, placed_at, raised_to), {OP} = 'r' AS is_read,
    CASE WHEN {OP} <> 'r' THEN {_PLACE}
      ELSE first_value(raised_to) OVER (PARTITION BY {key}, {PARTITION}, {POSITION} ORDER BY {how.ordinal}) END AS order_position
  FROM raised
)"""


_OF_WHOLE_TABLE = f"{OP} = 'r' AND {SNAPSHOT} <> 'incremental'"


def _over_key(aggregate: str, value: str) -> str:
    return f"{aggregate}({value})"


def _of_event(_aggregate: str, value: str) -> str:
    return value


def _reads_of_key(of_all: Callable[[str, str], str]) -> str:
    """Return the columns of a key's reads, as :data:`airflow_cdc.pipeline.reconcile.keep_latest_per_key.READS`.

    :param of_all: makes the SQL of an aggregate over all events of the key.
    """
    place = f"'position': {POSITION}, 'lane': {PARTITION}"
    marks = f"""'last': starts_with({SNAPSHOT}, 'last'), 'offset': {OFFSET}, 'initial': ends_with({SNAPSHOT}, {text(INITIAL)}),
    'first': starts_with({SNAPSHOT}, 'first')"""
    return f""",
  {of_all("max", f"CASE WHEN {_OF_WHOLE_TABLE} THEN {{{place}, {marks}}} END")} AS newest_read,
  {of_all("min", f"CASE WHEN {_OF_WHOLE_TABLE} THEN {{{place}}} END")} AS oldest_read"""


def find_reads(rows: str = CHANGES) -> str:
    """Return the query of the reads by position and lane; ``is_only``: whether each row has no read elsewhere.

    :param rows: SQL of a relation with the columns of :data:`CHANGES`.
    """
    return f"""
SELECT newest_read.position AS position, newest_read.lane AS lane, min(newest_read."offset") AS begin, max(newest_read."offset") AS "end",
  count(*) AS reads, bool_or(newest_read."last") AS has_last, bool_or(newest_read.initial) AS is_initial,
  bool_or(newest_read."first") AS has_first,
  arg_max(newest_read."last", {{'offset': newest_read."offset", 'last': newest_read."last"}}) AS ends_marked,
  bool_and(oldest_read.position = newest_read.position AND oldest_read.lane = newest_read.lane) AS is_only
FROM {rows} WHERE newest_read IS NOT NULL GROUP BY newest_read.position, newest_read.lane"""


def look_beside(position: Position, begins: Mapping[str, int]) -> str:
    """Return the query, by lane, of what the events hold beside the reads of a snapshot.

    :param begins: offset of its first read by lane.
    """
    is_before = " OR ".join(f"({PARTITION} = {int(lane)} AND {OFFSET} < {int(begin)})" for lane, begin in begins.items()) or "false"
    return f"""
SELECT {PARTITION} AS lane, bool_or({TRANSACTION} IS NOT NULL) AS names_gtids, max({POSITION}) AS highest,
  max(CASE WHEN {is_before} THEN {POSITION} END) AS streamed_before,
  min(CASE WHEN {POSITION}.commit > {position.commit}::{NUMBER} THEN {OFFSET} END) AS behind,
  bool_or({POSITION}.commit > {position.commit}::{NUMBER} AND {OFFSET} IS NULL) AS unplaced
FROM {EVENTS} WHERE NOT is_tombstone AND {OP} <> 'r' GROUP BY {PARTITION}"""


def reach_of(change: str, how: Fold) -> dict[str, str]:
    """Return the SQL of the members of a row change's reach, by name, as :mod:`airflow_cdc.pipeline.reconcile.rule` asks for them.

    :param change: alias of :data:`CHANGES`.
    """
    own = {"first": "first_position", "last": "last_position"} | {each: each for each in ("first_offset", "writes", "deletes")}
    own |= {"depends": DEPENDS, "began": BEGAN} if how.has_versions else {}
    keeps = f"{change}.{VALUE_POSITIONS} IS NOT NULL" if how.leaves_values else "false"
    return {"depends": "false", "began": "NULL", "keeps": keeps} | {member: f"{change}.{column}" for member, column in own.items()}


def count_changes(rows: str = CHANGES) -> str:
    """Return the query of the sums by lane, as :func:`airflow_cdc.pipeline.microbatch.count_events.count_staged`.

    :param rows: SQL of a relation with the columns of :data:`CHANGES`.
    """
    return f"""
SELECT {PARTITION} AS lane, sum(events) AS events, count(*) AS keys, sum(copies) AS redelivered, count_if(conflicts) AS conflicts,
  count_if(hazard) AS hazards, count_if(is_unresolved) AS unresolved, bool_or(unordered) AS has_unordered,
  bool_or(deletes) AS has_deletes,
  count_if(expects AND {OP} = 'd') AS to_delete, count_if(NOT expects AND {OP} <> 'd') AS to_insert, max({POSITION}) AS last,
  min(first_position) AS streamed_from, max(last_position) AS streamed_through,
  arg_max(last_position, last_offset) FILTER (WHERE last_position IS NOT NULL) AS tail,
  min(first_offset) AS offset_from, max(last_offset) AS offset_through, epoch_ms(max({COMMITTED_AT})) AS committed_through
FROM {rows} GROUP BY {PARTITION}"""
