"""Which rows late events are about: moves followed to every key that a row took, and what is taken from a row folded again."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.columns import (
    COMMITTED_AT,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.model.operation import FILL, KEEP, MEND
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.reconcile.follow_moves import old_keys, places_unnamed, reached, rows_in_doubt, rows_paired, rows_told_of
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH
from airflow_cdc.pipeline.reconcile.mend_rows import rows_to_mend, with_found_values
from airflow_cdc.pipeline.reconcile.trace_moved_rows import FROM, IN_DOUBT, TO

KEYS = ["id"]


def position(place: int | None) -> tuple[Decimal, Decimal, int] | None:
    return None if place is None else (Decimal(place), Decimal(place), 0)


def moves(spark: SparkSession, *found: tuple[int | None, int, int], in_doubt: Iterable[int] = ()) -> DataFrame:
    """Return moves: old key, new key, place; those to keys in doubt."""
    schema = f"{FROM}0 INT, {TO}0 INT, {POSITION} {POSITION_TYPE}, {PARTITION} INT, {OFFSET} BIGINT, {IN_DOUBT} BOOLEAN"
    doubted = set(in_doubt)
    rows = [(old, new, position(place), 0, place, new in doubted) for old, new, place in found]
    return spark.createDataFrame(rows, schema)


def ids(rows: DataFrame) -> list[int]:
    return sorted(row["id"] for row in rows.collect())


def starting(spark: SparkSession, *keys: int) -> DataFrame:
    return spark.createDataFrame([(key,) for key in keys], "id INT")


def written(rows: DataFrame, _: str) -> DataFrame:
    return rows.localCheckpoint()


def test_a_row_is_followed_through_any_number_of_moves_and_around(spark: SparkSession) -> None:
    log = moves(spark, *((key, key + 1, key * 10) for key in range(1, 21)), (5, 90, 55), (91, 5, 45), (21, 1, 500), (None, 3, 7))
    everywhere = [*range(1, 22), 90]
    assert ids(reached(starting(spark, 1), log, KEYS, write_down=written)) == everywhere
    assert ids(reached(starting(spark, 90), log, KEYS, write_down=written)) == [90]
    assert ids(reached(starting(spark, 90), log, KEYS, write_down=written, back=True)) == [*range(1, 22), 90, 91]
    assert ids(old_keys(log, KEYS)) == [*range(1, 22), 91]
    assert [tuple(row) for row in places_unnamed(log, KEYS).collect()] == [(7, 7)]


def changed(spark: SparkSession, key: int, *, first: int | None, last: int, offset: int, partition: int = 0) -> DataFrame:
    names = f"first {POSITION_TYPE}, last {POSITION_TYPE}, first_offset BIGINT, writes BOOLEAN, deletes BOOLEAN, depends BOOLEAN"
    schema = f"id INT, {POSITION} {POSITION_TYPE}, {OFFSET} BIGINT, {PARTITION} INT, {REACH} STRUCT<{names}, began {POSITION_TYPE}>"
    reach = (position(first), position(last), offset, True, False, False, None)
    return spark.createDataFrame([(key, position(last), offset, partition, reach)], schema)


@pytest.mark.parametrize(
    ("change", "has_reads", "expected"),
    [
        # An event before the move is about the row that moved; one behind it is about another.
        ({"first": 19, "last": 40, "offset": 5}, False, [2]),
        ({"first": 20, "last": 40, "offset": 5}, False, []),
        ({"first": 21, "last": 40, "offset": 5}, False, []),
        # A read's position says nothing: its offset does, and in another partition nothing does.
        ({"first": None, "last": 40, "offset": 5}, True, [2]),
        ({"first": None, "last": 40, "offset": 21}, True, []),
        ({"first": None, "last": 40, "offset": 21, "partition": 1}, True, [2]),
    ],
)
def test_an_event_before_a_move_is_about_the_row_that_moved(
    change: dict[str, Any], has_reads: bool, expected: list[int], spark: SparkSession
) -> None:
    log = moves(spark, (1, 2, 20), (7, 8, 90))
    assert ids(rows_told_of(changed(spark, 1, **change), log, KEYS, has_reads=has_reads)) == expected


def test_a_delete_at_the_place_of_a_move_names_its_old_key(spark: SparkSession) -> None:
    log = moves(spark, (None, 2, 20), (None, 3, 30), (1, 3, 30), (4, 5, 40))
    deletes = spark.createDataFrame([(position(place),) for place in (20, 30, 40)], f"{POSITION} {POSITION_TYPE}")
    # The old key of 3 is known by now.
    assert ids(rows_paired(deletes, log, KEYS)) == [2]


def test_a_row_is_in_doubt_where_its_old_key_is_known_beyond_the_move(spark: SparkSession) -> None:
    own = moves(spark, (1, 2, 20), (3, 4, 30), (5, 6, 40), (None, 7, 50), in_doubt=[2])
    markers = spark.createDataFrame([(3, position(30)), (5, position(39)), (9, position(50))], f"id INT, {POSITION} {POSITION_TYPE}")
    assert ids(rows_in_doubt(own, None, KEYS)) == [2, 7]
    assert ids(rows_in_doubt(own, markers, KEYS)) == [2, 4, 7]


# -- what is taken from a row folded again -------------------------------------------------------------------------

COLUMNS = ["id", "v", "note"]
ROW = (
    f"id INT, v STRING, note STRING, {POSITION} {POSITION_TYPE}, {OP} STRING, {COMMITTED_AT} TIMESTAMP, {PARTITION} INT, {OFFSET} BIGINT,"
    f" {VALUE_POSITIONS} {VALUE_POSITIONS_TYPE}"
)
Entry = tuple[str, int | None, bool]


def row(spark: SparkSession, note: str | None, place: int, *entries: Entry, op: str = "c") -> DataFrame:
    told = [(name, position(at), known) for name, at, known in entries] or None
    return spark.createDataFrame([(1, "v", note, position(place), op, None, 0, place, told)], ROW)


def change(rows: DataFrame, *, if_absent: str = "c", unavailable: str = "NULL") -> DataFrame:
    return rows.selectExpr("*", f"'{if_absent}' AS {OP_IF_ABSENT}", f"CAST({unavailable} AS array<string>) AS {UNAVAILABLE}")


def told(rows: DataFrame) -> list[tuple[Any, ...]]:
    return [
        (each["note"], each[OP], each[UNAVAILABLE], [(one.column, one.position.commit, one.known) for one in each[VALUE_POSITIONS] or []])
        for each in rows.collect()
    ]


def test_a_row_of_the_table_takes_what_its_events_left_out_and_no_more(spark: SparkSession) -> None:
    folded = change(row(spark, "X", 30, ("note", 30, True)))

    def mended(rows: DataFrame, found: DataFrame = folded) -> list[tuple[Any, ...]]:
        return told(rows_to_mend(rows, found, KEYS, COLUMNS))

    found = [("X", MEND, None, [("note", 30, True)])]
    assert mended(row(spark, None, 30, ("note", 30, False))) == found
    assert mended(row(spark, "of a row before", 30, ("note", 30, True))) == found
    # It has it; its last event carried it; its last event is another; nothing shows it; the row is gone.
    assert mended(row(spark, "X", 30, ("note", 30, True))) == []
    assert mended(row(spark, "own", 30)) == []
    assert mended(row(spark, None, 40, ("note", 30, False))) == []
    assert mended(row(spark, None, 30, ("note", 30, False)), change(row(spark, None, 30, ("note", 30, False)))) == []
    assert mended(row(spark, None, 30, ("note", 30, False), op="d")) == []
    # Where deleted rows stay, that of a deleted one.
    of_dead = change(row(spark, "X", 30, ("note", 20, True), op="d"), if_absent="d")
    assert mended(row(spark, None, 30, ("note", None, False), op="d"), of_dead) == [("X", MEND, None, [("note", 20, True)])]


def test_a_change_of_the_microbatch_takes_it_too(spark: SparkSession) -> None:
    folded = change(row(spark, "X", 30, ("note", 20, True)))

    def filled(changes: DataFrame) -> list[tuple[Any, ...]]:
        return told(with_found_values(changes, folded, KEYS, COLUMNS))

    assert filled(change(row(spark, None, 30, op="u"), unavailable="array('note')")) == [("X", "u", None, [("note", 20, True)])]
    assert filled(change(row(spark, None, 30, ("note", 30, False)), unavailable="array('v')")) == [("X", "c", ["v"], [("note", 20, True)])]
    for op in (FILL, KEEP, "d"):
        untouched = change(row(spark, None, 30, ("note", 30, False), op=op))
        assert filled(untouched) == told(untouched)
