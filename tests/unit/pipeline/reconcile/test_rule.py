"""How a row change compares with what is known of its key, in DuckDB; the right answers are written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.columns import BEGAN, OFFSET, OP, PARTITION, POSITION
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.reconcile.rule import is_cut, is_known_newer, is_tie, makes_stale, may_meet

duckdb = pytest.importorskip("duckdb")

REACH = {name: f"s.{name}" for name in ("first", "first_offset", "writes", "deletes", "depends", "began", "keeps")}
Place = tuple[int, int] | None
"""Partition and offset."""


def position(commit: int, change: int) -> str:
    return f"{{'commit': {commit}, 'change': {change}, 'serial': 0}}"


def row(op: str, commit: int, *, change: int = 1, at: Place = None, **more: str) -> dict[str, str]:
    partition, offset = at or ("NULL::INTEGER", "NULL::BIGINT")
    return {OP: f"'{op}'", POSITION: position(commit, change), PARTITION: str(partition), OFFSET: str(offset), **more}


def events(op: str, commit: int, *, first: int, at: Place = None, first_offset: int = 0, **more: str) -> dict[str, str]:
    """Return a row change of several events: its first one, by position and by offset; ``more``: what they do."""
    usual = {"writes": "true", "deletes": "false", "depends": "false", "keeps": "false", "began": f"NULL::STRUCT({_TYPE})"}
    return row(op, commit, at=at) | {"first": position(first, 1), "first_offset": str(first_offset)} | usual | more


_TYPE = "commit INTEGER, change INTEGER, serial INTEGER"


def answer(condition: str, known: dict[str, str], change: dict[str, str]) -> Any:
    k, s = (", ".join(f"{value} AS {name}" for name, value in each.items()) for each in (known, change))
    ((found,),) = duckdb.sql(f"SELECT {condition} FROM (SELECT {k}) AS k, (SELECT {s}) AS s").fetchall()
    return found


@pytest.mark.parametrize(
    ("known", "change", "newer"),
    [
        (row("u", 10, at=(0, 5)), row("u", 11, at=(0, 4)), False),
        (row("u", 10, at=(0, 5)), row("u", 10, at=(0, 5)), True),
        (row("u", 10, change=2, at=(0, 5)), row("u", 10, at=(0, 9)), True),
        # Of a read and a change in one lane the archive's order decides,
        (row("r", 12, at=(0, 5)), row("u", 10, at=(0, 9)), False),
        (row("r", 10, at=(0, 9)), row("u", 12, at=(0, 5)), True),
        (row("u", 10, at=(0, 5)), row("r", 12, at=(0, 9)), False),
        # but a read below what was streamed before is a copy of an earlier read.
        (row("u", 10, at=(0, 5)), row("r", 8, at=(0, 9)), True),
        # Offsets of two lanes, or of one file of values, do not compare: the position decides.
        (row("r", 12, at=(0, 5)), row("u", 10, at=(1, 9)), True),
        (row("r", 10, at=(0, 9)), row("u", 12, at=(1, 5)), False),
        (row("r", 12, at=(0, 5)), row("u", 10, at=(0, 5)), True),
        (row("r", 12), row("u", 10), True),
    ],
)
def test_the_position_decides_and_of_reads_in_one_lane_the_offset(known: dict[str, str], change: dict[str, str], *, newer: bool) -> None:
    assert answer(is_known_newer("k", "s"), known, change) is newer


@pytest.mark.parametrize(
    ("known", "change", "stale"),
    [
        (row("d", 10), row("u", 8), True),
        (row("u", 10), row("u", 8), True),
        (row("u", 8), row("u", 10), False),
        # A row came and went in one transaction: that says nothing of an older row.
        (row(KEEP, 10, change=3), row("u", 8), False),
        (row(KEEP, 10, change=3), row("u", 10, change=2), True),
        # The transaction began at an earlier commit.
        (row(KEEP, 10, change=3) | {BEGAN: position(8, 1)}, row("u", 8), True),
        (row(KEEP, 10, change=3) | {BEGAN: position(8, 2)}, row("u", 8), False),
    ],
)
def test_what_came_and_went_in_one_transaction_makes_no_older_row_stale(
    known: dict[str, str], change: dict[str, str], *, stale: bool
) -> None:
    assert answer(makes_stale("k", "s"), {BEGAN: known[POSITION]} | known, change) is stale


@pytest.mark.parametrize(
    ("known", "change", "tie"),
    [
        (row("u", 10, at=(0, 5)), row("u", 10, at=(0, 5)), False),
        (row("u", 10, at=(0, 5)), row("u", 10, at=(0, 6)), True),
        (row("u", 10, at=(0, 5)), row("u", 10, at=(1, 5)), True),
        (row("u", 10), row("u", 10), True),
        (row("u", 10, at=(0, 5)), row("u", 10, change=2, at=(0, 6)), False),
        (row("d", 10, at=(0, 5)), row("u", 10, at=(0, 6)), False),
        (row("u", 10, at=(0, 5)), row("d", 10, at=(0, 6)), False),
        (row("u", 10, at=(0, 5)), row(KEEP, 10, at=(0, 6)), False),
    ],
)
def test_one_position_of_two_records_is_a_tie(known: dict[str, str], change: dict[str, str], *, tie: bool) -> None:
    assert answer(is_tie("k", "s", are_values=False), known, change) is tie


def test_values_of_one_file_share_its_offset_and_are_no_one_record() -> None:
    assert answer(is_tie("k", "s", are_values=True), row("u", 10, at=(0, 5)), row("u", 10, at=(0, 5)))


DEPENDS = {"depends": "true", "began": position(20, 1)}


@pytest.mark.parametrize(
    ("known", "change", "cut"),
    [
        # A transaction on both sides: two rows may be meant.
        (row("d", 10), events("u", 12, first=10), True),
        (row("d", 12), events("u", 12, first=10), True),
        (row("d", 9), events("u", 12, first=10), False),
        (row("d", 13), events("u", 12, first=10), False),
        (row("d", 10), events("d", 12, first=10, writes="false", deletes="true"), False),
        (row(KEEP, 10), events("d", 12, first=10, writes="false", deletes="true"), True),
        (row("u", 10), events("u", 12, first=10), False),
        (row("u", 10), events("d", 12, first=10, deletes="true"), True),
        (row("r", 10), events("d", 12, first=10, deletes="true"), False),
        # A state between older events and a transaction that depends on them, by its position
        (row("u", 15), events("u", 20, first=12, **DEPENDS), True),
        (row("u", 20, change=2), events("u", 20, first=12, **DEPENDS), False),
        (row("u", 15), events("u", 20, first=12), False),
        # or by the archive, in one lane.
        (row("u", 10, at=(0, 5)), events("u", 20, first=12, at=(0, 9), first_offset=3, **DEPENDS), True),
        (row("u", 10, at=(0, 5)), events("u", 20, first=12, at=(0, 9), first_offset=5, **DEPENDS), False),
        (row("u", 10, at=(1, 5)), events("u", 20, first=12, at=(0, 9), first_offset=3, **DEPENDS), False),
    ],
)
def test_a_transaction_on_both_sides_of_the_border_is_cut(known: dict[str, str], change: dict[str, str], *, cut: bool) -> None:
    assert bool(answer(is_cut("k", "s", REACH, has_reads=False), known, change)) is cut


@pytest.mark.parametrize(
    ("known", "change", "meets"),
    [
        (row("u", 10), events("u", 12, first=10), True),
        (row("u", 9), events("u", 12, first=10), False),
        (row("u", 12), events("u", 12, first=14), True),
        # Archived among them, or after.
        (row("u", 9, at=(0, 5)), events("u", 12, first=10, at=(0, 9), first_offset=5), True),
        (row("u", 9, at=(0, 4)), events("u", 12, first=10, at=(0, 9), first_offset=5), False),
        (row("u", 9, at=(1, 7)), events("u", 12, first=10, at=(0, 9), first_offset=5), False),
        (row("u", 9, at=(0, 3)), events("u", 12, first=10, at=(0, 2), first_offset=5), True),
    ],
)
def test_what_is_earlier_and_was_archived_before_meets_nothing(known: dict[str, str], change: dict[str, str], *, meets: bool) -> None:
    assert answer(may_meet("k", "s", REACH, has_reads=False), known, change) is meets


@pytest.mark.parametrize(
    ("change", "meets", "cut"),
    [
        (events("u", 20, first=20), False, False),
        (events("u", 20, first=20, keeps="true"), True, False),
        (events("u", 20, first=20, **DEPENDS), True, True),
    ],
)
def test_a_state_may_stand_behind_a_read_and_before_a_placed_event(change: dict[str, str], *, meets: bool, cut: bool) -> None:
    known = row("d", 15)
    assert answer(may_meet("k", "s", REACH, has_reads=True), known, change) is meets
    assert bool(answer(is_cut("k", "s", REACH, has_reads=True), known, change)) is cut
    assert not answer(may_meet("k", "s", REACH, has_reads=False), known, change)
