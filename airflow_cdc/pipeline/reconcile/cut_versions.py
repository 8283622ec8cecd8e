"""Cut versions: from a key's events to the row versions that existed at a commit, each with its interval.

Inside one transaction a key may hold two rows (:mod:`airflow_cdc.pipeline.reconcile.fold_row_versions`); at the commit it holds the newest
or none. A row that existed only between two statements is no version. Pure: all known events of a key in, all its versions out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import (
    CARRIED,
    COMMITTED_AT,
    END_POSITION,
    LEFT_OUT,
    OFFSET,
    OP,
    POSITION,
    TRANSACTION,
    VALID_FROM,
    VALID_TO,
)
from airflow_cdc.model.operation import VOID
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.reconcile.fold_row_versions import OTHERS, SUBJECT, rewritten
from airflow_cdc.pipeline.reconcile.order_events import ORDER, gathered_in_order
from airflow_cdc.pipeline.spark import sql

PLACE_TYPE = "struct<commit: decimal(38,0), change: decimal(38,0)>"
"""The place in the log that both halves of a key change share."""
SEQ = "__cdc_seq"
"""int: a version's number among its key's."""
BORN = "__cdc_born"
"""struct<place, op, transaction, is_first boolean> of the event that began the version's row; ``is_first``: the row's first version."""
OPEN = "__cdc_open"
"""array<struct<place, op, names array<string>>>: columns that the row's first event left out, and no later event carried."""
DIED_AT = "__cdc_died_at"
"""For a deleted row: the delete's place."""
LIVED = "__cdc_lived"
"""For a deleted row: whether any version of it existed at a commit."""
BEGINS = "__cdc_begins"
ENDS = "__cdc_ends"
"""Number of the event that begins or ends a version."""

_GOES_ON = "__cdc_goes_on"
_RUN = "__cdc_run"

# carriers: by column, the number of the event that carried its value, minus the number of the event that left it out, or NULL.
_VERSION = "struct<event: int, born: int, image: array<bigint>, carriers: array<int>>"
_SETTLED = "struct<event: int, born: int, carriers: array<int>, by: int>"
_DEATH = "struct<number: int, born: int, carriers: array<int>>"

_MEMBERS = ", ".join(f"'{name}', e.{name}" for name in ("op", "transaction", "before", "after", "carried"))
_NUMBERED = f"transform(events, (e, place) -> named_struct('number', place + 1, {_MEMBERS}))"

_CARRIERS = "transform(event.carried, code -> CASE code WHEN 1 THEN event.number WHEN 0 THEN -event.number END)"
_CREATED = f"CAST(named_struct('event', event.number, 'born', event.number, 'image', event.after, 'carriers', {_CARRIERS}) AS {_VERSION})"


def _over(version: str) -> str:
    """Return the SQL of the version that an event makes from another."""
    carriers = f"zip_with(event.carried, {version}.carriers, (code, carrier) -> if(code = 1, event.number, carrier))"
    written = f"named_struct('event', event.number, 'born', {version}.born, 'image', event.after, 'carriers', {carriers})"
    return f"if({version} IS NULL, {_CREATED}, CAST({written} AS {_VERSION}))"


def _settle(versions: str, history: str, by: str) -> str:
    """Return the SQL of the history after a commit, with one more entry if the commit changed the version."""
    newest = f"try_element_at({versions}, -1)"
    entry = f"CAST(named_struct('event', {newest}.event, 'born', {newest}.born, 'carriers', {newest}.carriers, 'by', {by}) AS {_SETTLED})"
    grown = f"if(entry.event <=> try_element_at({history}, -1).event, {history}, array_append({history}, entry))"
    return sql.let("entry", entry, grown)


def _step() -> str:
    changed = f"""CASE event.op
        WHEN 'c' THEN array_append(versions, {_CREATED})
        WHEN 'u' THEN {rewritten(_over("version"), born=_CREATED)}
        WHEN 'r' THEN array({_over("try_element_at(versions, -1)")})
        WHEN 'd' THEN {OTHERS}
        ELSE CAST(array() AS array<{_VERSION}>) END"""
    died = "try_element_at(versions, subject)"
    death = f"CAST(named_struct('number', event.number, 'born', {died}.born, 'carriers', {died}.carriers) AS {_DEATH})"
    deaths = f"if(event.op = 'd' AND {died} IS NOT NULL, array_append(state.deaths, {death}), state.deaths)"
    committed = "(state.transaction IS NOT NULL AND NOT (state.transaction <=> event.transaction))"
    history = f"if({committed}, {_settle('state.versions', 'state.history', 'event.number - 1')}, state.history)"
    after = f"named_struct('transaction', event.transaction, 'versions', {changed}, 'history', {history}, 'deaths', {deaths})"
    settled = f"if({committed}, slice(state.versions, -1, least(size(state.versions), 1)), state.versions)"
    return sql.let("versions", settled, sql.let("subject", f"CAST({SUBJECT} AS INT)", after))


def _fold() -> str:
    """Return the SQL of a key's history (:data:`_SETTLED` by commit) and of its deleted rows."""
    nothing = {"versions": _VERSION, "history": _SETTLED, "deaths": _DEATH}
    start = ", ".join(f"'{name}', CAST(array() AS array<{kind}>)" for name, kind in nothing.items())
    end = f"named_struct('history', {_settle('state.versions', 'state.history', 'size(events)')}, 'deaths', state.deaths)"
    return (
        f"aggregate({_NUMBERED}, named_struct('transaction', CAST(NULL AS STRING), {start}), (state, event) -> {_step()}, state -> {end})"
    )


# A read sorts after everything archived before it and before the next streamed event, whatever its own position and time. So does a
# snapshot's mark, whose place in the order may lie below its position.
_NEXT = f"get(filter(slice(events, place + 2, size(events)), later -> later.op NOT IN ('r', '{VOID}')), 0)"
_BEFORE_NEXT = f"CAST(named_struct('commit', {_NEXT}.position.commit, 'change', -1, 'serial', -1) AS {POSITION_TYPE})"
_PLACED = f"""transform(events, (event, place) -> if(event.order.read = 1,
    greatest(event.order.position, if({_NEXT} IS NULL, event.position, least(event.position, {_BEFORE_NEXT}))), event.order.position))"""
_TIMES = f"""transform(events, (event, place) -> if(event.op IN ('r', '{VOID}'),
    least(event.committed_at, {_NEXT}.committed_at), event.committed_at))"""


def _rising(values: str, kind: str) -> str:
    """Return the SQL of a non-decreasing array: as it is, or each element raised to the highest so far.

    Otherwise versions would overlap: neither consecutive reads nor a source's clocks need to rise.
    """
    start = f"named_struct('top', CAST(NULL AS {kind}), 'all', CAST(array() AS array<{kind}>))"
    top = "greatest(state.top, value)"
    step = f"named_struct('top', {top}, 'all', array_append(state.all, if(value IS NULL, NULL, {top})))"
    # Raise only if necessary: each step copies the array.
    return f"if({values} <=> array_sort({values}), {values}, aggregate({values}, {start}, (state, value) -> {step}, state -> state.all))"


def fold_keys(events: DataFrame, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return one row per key: its ``events`` in order, their ``places`` and ``times``, ``history`` and ``deaths``.

    :param events: all known events of the keys, each once: good row events, and marks (``t``, ``v``: no row survives them), with
        :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER`, images as arrays in the order of ``others``, :data:`CARRIED` and
            :data:`LEFT_OUT`.
    :param keys: our own names for the key columns, as a source's key could be named ``events``.
    :param others: the columns that are not keys.
    """
    names = sql.texts(others)
    codes = f"transform({names}, name -> CASE WHEN array_contains({CARRIED}, name) THEN 1 WHEN array_contains({LEFT_OUT}, name) THEN 0 END)"
    event = F.struct(
        # First, because it sorts the events.
        F.col(ORDER).alias("order"),
        F.col(POSITION).alias("position"),
        F.col(OP).alias("op"),
        F.col(TRANSACTION).alias("transaction"),
        F.col(BEFORE).alias("before"),
        F.col(AFTER).alias("after"),
        F.expr(codes).alias("carried"),
        F.col(COMMITTED_AT).alias("committed_at"),
        F.col(OFFSET).alias("offset"),
        F.struct(*[F.col(sql.name(name)) for name in others]).alias("row") if others else F.lit(None).alias("row"),
    )
    by_key = events.groupBy(*[F.col(sql.name(key)) for key in keys]).agg(gathered_in_order(events, event).alias("events"))
    placed = by_key.withColumns({"places": F.expr(_PLACED), "times": F.expr(_TIMES)})
    ordered = placed.withColumns({"places": F.expr(_rising("places", POSITION_TYPE)), "times": F.expr(_rising("times", "timestamp"))})
    folded = ordered.withColumn("folded", F.expr(_fold()))
    return folded.select(*[sql.name(key) for key in keys], "events", "places", "times", "folded.history", "folded.deaths")


def _values(carriers: str, others: Sequence[str]) -> dict[str, str]:
    """Return the SQL of each column's value from the event that ``carriers`` names."""
    return {name: f"get(events, get({carriers}, {place}) - 1).row.{sql.name(name)}" for place, name in enumerate(others)}


def _open(carriers: str, others: Sequence[str]) -> str:
    names = sql.texts(others)
    of_event = f"filter({names}, (name, place) -> get({carriers}, place) = number)"
    began = "get(events, -number - 1)"
    entry = f"named_struct('place', {_place(began)}, 'op', {began}.op, 'names', {of_event})"
    return f"transform(array_distinct(filter({carriers}, number -> number < 0)), number -> {entry})"


def _place(event: str) -> str:
    return f"CAST(named_struct('commit', {event}.position.commit, 'change', {event}.position.change) AS {PLACE_TYPE})"


def versions_of(folded: DataFrame, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return one row per version, including those of length zero: keys, ``others``, interval, operation, offset, and the row's begin."""
    ended = "coalesce(get(history, place + 1).event, get(history, place + 1).by)"
    is_first = "NOT (get(history, place - 1).born <=> entry.born)"
    intervals = f"""filter(transform(history, (entry, place) -> named_struct('event', entry.event, 'born', entry.born, 'seq', place,
        'carriers', entry.carriers, 'ended', {ended}, 'is_first', {is_first})), entry -> entry.event IS NOT NULL)"""
    began, born = "get(events, v.event - 1)", "get(events, v.born - 1)"
    members = {
        SEQ: "v.seq",
        POSITION: "get(places, v.event - 1)",
        END_POSITION: "get(places, v.ended - 1)",
        VALID_FROM: "get(times, v.event - 1)",
        VALID_TO: "get(times, v.ended - 1)",
        OP: f"{began}.op",
        OFFSET: f"{began}.offset",
        BEGINS: "v.event",
        ENDS: "v.ended",
        BORN: f"named_struct('place', {_place(born)}, 'op', {born}.op, 'transaction', {born}.transaction, 'is_first', v.is_first)",
        OPEN: _open("v.carriers", others),
        **_values("v.carriers", others),
    }
    # Build structs first: an explode beside the events would copy them for every version.
    rows = folded.withColumn("versions", F.expr(f"transform({intervals}, v -> {sql.struct(members)})"))
    return rows.select(*[sql.name(key) for key in keys], F.inline("versions"))


def deaths_of(folded: DataFrame, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return one row per deleted row: keys, ``others``, the delete's place, whether the row existed at a commit, and its begin."""
    died, born = "get(events, d.number - 1)", "get(events, d.born - 1)"
    members = {
        DIED_AT: _place(died),
        LIVED: "exists(history, entry -> entry.born = d.born)",
        BORN: f"named_struct('place', {_place(born)}, 'op', {born}.op)",
        OPEN: _open("d.carriers", others),
        **_values("d.carriers", others),
    }
    rows = folded.withColumn("dead", F.expr(f"transform(deaths, d -> {sql.struct(members)})"))
    return rows.select(*[sql.name(key) for key in keys], F.inline("dead"))


def join_unchanged_reads(versions: DataFrame, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return the versions with a length. A snapshot read of an unchanged row begins no version."""
    ours = ", ".join(sql.name(key) for key in keys)
    window = f"OVER (PARTITION BY {ours} ORDER BY {SEQ})"
    same = " AND ".join(f"lag({sql.name(name)}) {window} <=> {sql.name(name)}" for name in others) or "true"
    goes_on = f"coalesce({OP} = 'r' AND lag({ENDS}) {window} = {BEGINS} AND {same}, false)"
    numbered = versions.withColumn(_GOES_ON, F.expr(goes_on)).withColumn(_RUN, F.expr(f"count_if(NOT {_GOES_ON}) {window}"))
    image = F.struct(*[F.col(sql.name(name)) for name in versions.columns if name not in {*keys, END_POSITION, VALID_TO}])
    joined = numbered.groupBy(*[F.col(sql.name(key)) for key in keys], _RUN).agg(
        F.min_by(image, SEQ).alias("image"), F.max_by(F.struct(END_POSITION, VALID_TO), SEQ).alias("end")
    )
    rows = joined.select(*[sql.name(key) for key in keys], "image.*", "end.*")
    return rows.filter(f"{END_POSITION} IS NULL OR {END_POSITION} > {POSITION}")
