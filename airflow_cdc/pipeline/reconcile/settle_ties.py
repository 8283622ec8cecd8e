"""Settle ties: the order of a key's events that share a position, and which of them are copies.

A run is what the archive orders by itself: a partition by its offsets, or a file without offsets by its lines. Several connectors give one
position to all events of a transaction, so events in two runs may be copies, or two events in an order that only their images show: each
before image is what the event before it left (docs/explanation/exactness.md#position).

Runs Spark jobs. Such keys are few: what their images show is found in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise, permutations
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OP, ORDINAL, PARTITION, POSITION
from airflow_cdc.model.errors import OrderUnknownError
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE
from airflow_cdc.pipeline.reconcile.find_repeats import Tied, contradicts, find_repeats, hashable
from airflow_cdc.pipeline.reconcile.order_events import ORDER, comparable, order_of, shared_place
from airflow_cdc.pipeline.spark import sql

TIE = "__cdc_tie"
"""int: place of an event's run among those with events of its key and position; below 0 for a copy."""
_RUN, _EVENTS = "__cdc_run", "__cdc_events_of_tie"
_COPY = -1
_MOST_RUNS = 6
"""Runs that are tried in every order."""


def with_ties(events: DataFrame, keys: Sequence[str], *, place: str, shown: Sequence[str] = (), change_restarts: bool) -> DataFrame:
    """Return the events with :data:`TIE`.

    :param events: good row events with position, operation, images, partition, offset and ordinal.
    :param place: flow and microbatch, for the error.
    :param shown: the keys' names there, if ``keys`` are ours.
    :param change_restarts: as for :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    :raises OrderUnknownError: if nothing shows the order of some events.
    """
    named = [F.col(sql.name(key)) for key in keys]
    run = f"named_struct('lane', {PARTITION}, 'run', {ORDINAL}.run, 'has_offset', {ORDINAL}.offset IS NOT NULL)"
    events = events.drop(TIE).withColumn(_RUN, F.expr(run))
    content = F.xxhash64(*[F.expr(comparable(events, name)) for name in (OP, BEFORE, AFTER)])
    of_event = F.struct(_RUN, ORDINAL, POSITION, OP, BEFORE, AFTER)
    groups = events.groupBy(*named, F.expr(shared_place(change_restarts=change_restarts)).alias("place")).agg(
        F.collect_list(of_event).alias(_EVENTS),
        F.size(F.collect_set(_RUN)).alias("runs"),
        F.count("*").alias("events"),
        F.size(F.collect_set(content)).alias("contents"),
    )
    asks = "runs > 1 OR events > contents" if change_restarts else "runs > 1"
    tied = groups.filter(f"contents > 1 AND ({asks})").select(*named, _EVENTS).toLocalIterator()
    found = [settled for row in tied for settled in _settled(row, shown or keys, place, may_repeat=change_restarts)]
    if not found:
        return events.drop(_RUN).withColumn(TIE, F.lit(0))
    schema = events.select(*named, POSITION, ORDINAL, F.lit(0).alias(TIE)).schema
    places = events.sparkSession.createDataFrame(found, schema)
    same = F.expr(f"{sql.same_key('e', 'p', keys)} AND e.{POSITION} = p.{POSITION} AND e.{ORDINAL} <=> p.{ORDINAL}")
    joined = events.alias("e").join(F.broadcast(places).alias("p"), same, "left")
    return joined.select("e.*", F.expr(f"coalesce(p.{TIE}, 0)").alias(TIE)).drop(_RUN)


def in_settled_order(events: DataFrame, keys: Sequence[str], *, place: str, change_restarts: bool) -> DataFrame:
    """Return the events with an :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER` that has their ties; as :func:`with_ties`.

    :param events: in the order of :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    """
    order = F.col(ORDER)
    settled = order_of(order["position"], order["read"], ordinal=order["ordinal"], tie=F.col(TIE))
    return with_ties(events, keys, place=place, change_restarts=change_restarts).withColumn(ORDER, settled).drop(TIE)


def _settled(row: Row, keys: Sequence[str], place: str, *, may_repeat: bool) -> list[tuple[Any, ...]]:
    in_order = sorted(row[_EVENTS], key=lambda event: (_sortable(event[_RUN]), _sortable(event[ORDINAL])))
    copies: list[Row] = []
    firsts: list[Row] = []
    for _, run in groupby(in_order, key=_run):
        events = list(run)
        again = find_repeats([_tied(event) for event in events]) if may_repeat else set()
        copies += (event for number, event in enumerate(events) if number in again)
        firsts += (event for number, event in enumerate(events) if number not in again)
    at_position: dict[Row, list[Row]] = {}
    for event in firsts:
        at_position.setdefault(event[POSITION], []).append(event)
    key = row[: len(keys)]
    places = [found for tied in at_position.values() for found in _settled_at(tied, row, keys, place)]
    return [(*key, event[POSITION], event[ORDINAL], number) for event, number in [*((copy, _COPY) for copy in copies), *places]]


def _settled_at(events: Sequence[Row], row: Row, keys: Sequence[str], place: str) -> list[tuple[Row, int]]:
    runs = [list(run) for _, run in groupby(events, key=_run)]
    found = settle([[_tied(event) for event in run] for run in runs])
    if found is None:
        raise _unknown(row, keys, runs, place)
    return [(event, number) for run, number in zip(runs, found, strict=True) for event in run]


def _run(event: Row) -> tuple[tuple[bool, Any], ...]:
    return _sortable(event[_RUN])


def _sortable(values: Row) -> tuple[tuple[bool, Any], ...]:
    return tuple((value is not None, value) for value in values)


def _tied(event: Row) -> Tied:
    return Tied(event[OP], event[BEFORE], event[AFTER], has_offset=event[ORDINAL]["offset"] is not None)


def settle(runs: Sequence[Sequence[Tied]]) -> list[int] | None:
    """Return each run's place among the others (-1: it holds copies alone); None if the events do not show it.

    >>> #  a.jsonl: u A to B     b.jsonl: u B to C     ->  [0, 1]
    >>> #  a.jsonl: u A to B     b.jsonl: u B to A     ->  None: either may have been first

    :param runs: events of one key and position; those of a run in order.
    """
    copies = _copies(runs, also_with_offsets=False)
    found = _in_order(runs, copies)
    # Offsets of two partitions are two records; yet one repeats the other if its images contradict every order.
    return found or _in_order(runs, _copies(runs, also_with_offsets=True))


def _copies(runs: Sequence[Sequence[Tied]], *, also_with_offsets: bool) -> set[int]:
    """Return the numbers of the runs whose events all stand in another one, in the same order."""
    copies: set[int] = set()
    longest_first = sorted(range(len(runs)), key=lambda number: -len(runs[number]))
    for place, number in enumerate(longest_first):
        ours = [event.content for event in runs[number]]
        for other in longest_first[:place]:
            theirs = [event.content for event in runs[other]]
            has_offsets = all(event.has_offset for event in (*runs[number], *runs[other]))
            if other not in copies and (ours == theirs or ((also_with_offsets or not has_offsets) and _is_within(ours, theirs))):
                copies.add(number)
    return copies


def _is_within(ours: Sequence[object], theirs: Sequence[object]) -> bool:
    rest = iter(theirs)
    return all(each in rest for each in ours)


def _in_order(runs: Sequence[Sequence[Tied]], copies: set[int]) -> list[int] | None:
    own = [number for number in range(len(runs)) if number not in copies]
    if len(own) > _MOST_RUNS:
        return None
    possible = [order for order in permutations(own) if _is_possible([runs[number] for number in order])]
    # Whatever came between them, the row is the same.
    if len({(runs[order[-1]][-1].op, hashable(runs[order[-1]][-1].after)) for order in possible}) != 1:
        return None
    return [_COPY if number in copies else possible[0].index(number) for number in range(len(runs))]


def _is_possible(runs: Sequence[Sequence[Tied]]) -> bool:
    return not any(contradicts(one[-1], next_run[0]) for one, next_run in pairwise(runs))


def _unknown(row: Row, keys: Sequence[str], runs: Sequence[Sequence[Row]], place: str) -> OrderUnknownError:
    key = ", ".join(f"{name} = {value}" for name, value in zip(keys, row, strict=False))
    position = "/".join(str(part) for part in runs[0][0][POSITION])
    where = [_where(events) for events in runs]
    lacks_offset = any(event[ORDINAL]["offset"] is None for events in runs for event in events)
    declare = "If the names of the archived files rise with time, set on_unknown_order to file_names in the flows file and run again."
    leave = "Set write_disposition to append for this flow, and rebuild it: then the table holds the events of all."
    return OrderUnknownError(
        f"{place}: {sum(map(len, runs))} events of the row {key} have the position {position}, and neither offsets nor their images show"
        f" which came first: {'; '.join(where)}.",
        next_step=declare if lacks_offset else leave,
    )


def _where(events: Sequence[Row]) -> str:
    kinds = ", ".join(event[OP] for event in events)
    first = events[0]
    if first[ORDINAL]["offset"] is None:
        return f"{kinds} in {first[ORDINAL]['file'] or 'a file without offsets'}"
    return f"{kinds} in partition {first[_RUN]['lane']} at offset {first[ORDINAL]['offset']}"
