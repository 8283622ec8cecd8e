"""Two sides that hash their own rows: which rows differ is found, whatever the bucket, and decided by what a later look shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from airflow_cdc.model.catalogue.row_hashes import CellForm
from airflow_cdc.model.pull import compared_rows
from airflow_cdc.model.pull.cell_forms import DUCKDB
from airflow_cdc.model.pull.compared_rows import MOST_OPEN, NoHashError, OpenRow, Side, compare_all, look_again

COLUMNS = {"id": CellForm.WHOLE, "region": CellForm.TEXT, "name": CellForm.TEXT}
AT, LATER = 1_000, 2_000


class Sides:
    """Two tables in one database, each with 5,000 rows that are alike."""

    def __init__(self) -> None:
        self.connection = duckdb.connect()
        for table in ("source", "lake"):
            self.run(f"CREATE TABLE {table} AS SELECT n AS id, 'r' || n % 3 AS region, 'name ' || n AS name FROM range(5000) t(n)")

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql).fetchall()

    def side(self, table: str) -> Side:
        return Side(self.run, DUCKDB, table, COLUMNS, ("id", "region"))

    def compare(self) -> Any:
        return compare_all(self.side("source"), self.side("lake"), AT, 5000)

    def again(self, rows: tuple[OpenRow, ...], *, settled: bool) -> Any:
        return look_again(rows, self.side("source"), self.side("lake"), LATER, lambda moment: settled)

    def keys(self, rows: tuple[OpenRow, ...]) -> list[tuple[str, str]]:
        texts = {**self.side("lake").key_texts([row.key for row in rows]), **self.side("source").key_texts([row.key for row in rows])}
        return sorted((found["id"], found["region"]) for found in texts.values())


@pytest.fixture
def sides() -> Iterator[Sides]:
    made = Sides()
    yield made
    made.connection.close()


def test_sides_that_are_alike_have_no_open_row_and_are_asked_for_sums_alone(sides: Sides) -> None:
    found = sides.compare()
    assert (found.source_rows, found.table_rows, found.open, found.is_cut) == (5000, 5000, (), False)


@pytest.mark.parametrize(
    ("change", "key", "sides_have"),
    [
        ("DELETE FROM lake WHERE id = 17", ("17", "r2"), (True, False)),
        ("DELETE FROM source WHERE id = 17", ("17", "r2"), (False, True)),
        ("UPDATE lake SET name = name || ' ' WHERE id = 17", ("17", "r2"), (True, True)),
        ("UPDATE lake SET name = NULL WHERE id = 17", ("17", "r2"), (True, True)),
        ("INSERT INTO lake SELECT * FROM lake WHERE id = 17", ("17", "r2"), (True, True)),
        (
            "INSERT INTO lake SELECT * FROM lake WHERE id = 17; INSERT INTO lake SELECT * FROM source WHERE id = 17",
            ("17", "r2"),
            (True, True),
        ),
    ],
    ids=["missing", "extra", "another blank", "null", "twice", "thrice"],
)
def test_a_row_that_differs_is_found_with_its_key(sides: Sides, change: str, key: tuple[str, str], sides_have: tuple[bool, bool]) -> None:
    sides.run(change)
    (row,) = sides.compare().open
    assert sides.keys((row,)) == [key]
    assert (row.source is not None, row.table is not None, row.since) == (*sides_have, AT)


def test_rows_of_which_two_have_each_others_values_differ(sides: Sides) -> None:
    sides.run("UPDATE lake SET name = CASE id WHEN 3 THEN 'name 6' ELSE 'name 3' END WHERE id IN (3, 6)")
    assert sides.keys(sides.compare().open) == [("3", "r0"), ("6", "r0")]


def test_a_cell_is_no_other_cells_rest(sides: Sides) -> None:
    sides.run("UPDATE source SET region = 'ab', name = 'c' WHERE id = 1; UPDATE lake SET region = 'ab', name = 'c' WHERE id = 1")
    assert sides.compare().open == ()
    sides.run("UPDATE lake SET region = 'a', name = 'bc' WHERE id = 1")
    assert len(sides.compare().open) == 2
    # Texts that look like the marks of cells.
    sides.run("UPDATE source SET region = '-', name = '1:-' WHERE id = 1; UPDATE lake SET region = '-', name = '-' WHERE id = 1")
    assert len(sides.compare().open) == 1


def test_an_empty_side_is_one_without_rows(sides: Sides) -> None:
    sides.run("DELETE FROM lake WHERE id >= 10; DELETE FROM source WHERE id >= 20")
    found = sides.compare()
    assert (found.source_rows, found.table_rows) == (20, 10)
    assert sides.keys(found.open) == sorted((str(n), f"r{n % 3}") for n in range(10, 20))
    sides.run("DELETE FROM lake")
    assert len(sides.compare().open) == 20
    sides.run("DELETE FROM source")
    assert (sides.compare().source_rows, sides.compare().open) == (0, ())


def test_more_rows_than_are_looked_at_again_are_said_to_be_more(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    sides.run("UPDATE lake SET name = 'x' WHERE id < 1500")
    found = sides.compare()
    assert (len(found.open), found.is_cut) == (MOST_OPEN, True)
    monkeypatch.setattr(compared_rows, "_MOST_ROWS_READ", 1)
    sides.run("UPDATE source SET name = 'x' WHERE id < 1490")
    found = sides.compare()
    # One bucket of five is read.
    assert 0 < len(found.open) < 10
    assert found.is_cut


@pytest.mark.parametrize("settled", [True, False])
def test_a_row_that_came_in_between_is_alike(sides: Sides, settled: bool) -> None:
    sides.run("UPDATE source SET name = 'new' WHERE id = 5")
    rows = sides.compare().open
    sides.run("UPDATE lake SET name = 'new' WHERE id = 5")
    found = sides.again(rows, settled=settled)
    assert (found.open, found.different) == ((), ())


@pytest.mark.parametrize("side", ["source", "lake"])
def test_a_row_that_goes_on_changing_is_open_from_the_later_look_on(sides: Sides, side: str) -> None:
    sides.run("UPDATE source SET name = 'new' WHERE id = 5")
    rows = sides.compare().open
    sides.run(f"UPDATE {side} SET name = 'newer' WHERE id = 5")
    found = sides.again(rows, settled=True)
    assert ([row.since for row in found.open], found.different) == ([LATER], ())
    again = sides.again(found.open, settled=False)
    assert (again.open, again.different) == (found.open, ())
    assert sides.again(found.open, settled=True).different == found.open


def test_a_row_that_was_written_again_is_open_though_it_holds_what_it_held(sides: Sides) -> None:
    sides.run("ALTER TABLE lake ADD COLUMN version INTEGER DEFAULT 1; UPDATE source SET name = 'A' WHERE id = 5")
    source, lake = sides.side("source"), replace(sides.side("lake"), mark="version")
    rows = compare_all(source, lake, AT, 5000).open
    # The archive brought the source's A, then B, which is what the table held; the source's next A is under way.
    sides.run("UPDATE lake SET version = 2 WHERE id = 5")
    found = look_again(rows, source, lake, LATER, lambda moment: True)
    assert ([row.since for row in found.open], found.different) == ([LATER], ())
    assert look_again(found.open, source, lake, LATER, lambda moment: True).different == found.open


def test_a_row_without_a_hash_is_neither_equal_nor_different(sides: Sides) -> None:
    without = replace(sides.side("source"), dialect=replace(DUCKDB, digits="CASE WHEN {t} = 'name 5' THEN NULL ELSE md5({t}) END"))
    with pytest.raises(NoHashError):
        compare_all(without, sides.side("lake"), AT, 5000)
    sides.run("DELETE FROM lake WHERE id = 5")
    rows = sides.compare().open
    with pytest.raises(NoHashError):
        look_again(rows, without, sides.side("lake"), LATER, lambda moment: True)


def test_a_row_that_stays_differs_as_soon_as_the_lake_must_show_it_and_not_before(sides: Sides) -> None:
    sides.run("DELETE FROM lake WHERE id = 5")
    rows = sides.compare().open
    asked: list[int] = []

    def not_yet(moment: int) -> bool:
        asked.append(moment)
        return False

    waiting = look_again(
        rows,
        sides.side("source"),
        sides.side("lake"),
        LATER,
        not_yet,
    )
    assert (waiting.open, waiting.different, asked) == (rows, (), [AT])
    found = sides.again(waiting.open, settled=True)
    assert (found.open, found.different) == ((), rows)


def test_a_row_that_both_sides_removed_is_alike(sides: Sides) -> None:
    sides.run("DELETE FROM lake WHERE id = 5")
    rows = sides.compare().open
    sides.run("DELETE FROM source WHERE id = 5")
    assert sides.again(rows, settled=True) == compared_rows.Settled()
