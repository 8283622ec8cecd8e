"""Stories of tables that keep deleted rows, flagged: the whole table after each load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import TableModeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete
from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.conftest import Apply
from tests.support.connectors import DIALECTS
from tests.support.events import Record, write_records
from tests.support.histories import Archive
from tests.support.stories import PLACEHOLDER, TOPIC, Table, event, milliseconds, truncate
from tests.support.tables import read_rows

Flagged = tuple[int, str | None, str, int, bool, int | None]


def flagged(table: Table) -> list[Flagged]:
    """Return key, value, operation, change position, flag, and when it was set."""
    return [
        (
            row["id"],
            row["v"],
            row["__cdc_op"],
            int(row["__cdc_position"]["change"]),
            row["__cdc_deleted"],
            milliseconds(row["__cdc_deleted_at"]),
        )
        for row in table.rows()
    ]


@pytest.fixture
def table(apply: Apply, spark: SparkSession, tmp_path: Path) -> Table:
    return Table(apply, spark, tmp_path, CdcFlow(TOPIC, on_delete=OnDelete.FLAG))


def test_a_deleted_row_stays_with_its_last_values_until_it_is_born_again(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    table.load(event("c", 10, 1, "one"), event("c", 11, 2, "two"))
    assert flagged(table) == [(1, "one", "c", 10, False, None), (2, "two", "c", 11, False, None)]
    flow = table.load(event("u", 20, 1, "last"), event("d", 30, 1), event("d", 31, 2))
    assert (flow.rows.updated, flow.rows.deleted) == (2, 0)
    assert flagged(table) == [(1, "last", "d", 30, True, 30), (2, "two", "d", 31, True, 31)]
    assert table.live() == []
    assert summarize_flows(spark, str(tmp_path / "lake"))[0].rows == 0
    table.load(event("c", 40, 1, "again"))
    assert flagged(table) == [(1, "again", "c", 40, False, None), (2, "two", "d", 31, True, 31)]
    assert table.live() == [(1, "again")]


@pytest.mark.deep
def test_a_row_born_and_deleted_in_one_load_is_there_with_its_values(table: Table) -> None:
    table.load(event("c", 10, 1, "one"), event("u", 11, 1, "last"), event("d", 12, 1), event("d", 13, 2))
    assert flagged(table) == [(1, "last", "d", 12, True, 12), (2, None, "d", 13, True, 13)]


@pytest.mark.deep
def test_a_new_row_under_the_key_does_not_take_the_dead_one_s_values(table: Table) -> None:
    table.load(event("c", 10, 1, "dead", note="long"))
    table.load(event("d", 20, 1))
    flow = table.load(event("c", 30, 1, "new", note=PLACEHOLDER))
    assert flow.batches[0].unavailable_unresolved == 1
    assert table.rows(history=False) == [{"id": 1, "v": "new", "note": None}]


@pytest.mark.deep
def test_late_events_neither_revive_a_row_nor_leave_its_values_old(table: Table) -> None:
    table.load({**event("c", 10, 1, "born"), "offset": 0})
    table.load({**event("d", 30, 1), "offset": 5}, {**event("d", 31, 2), "offset": 6})
    assert flagged(table) == [(1, "born", "d", 30, True, 30), (2, None, "d", 31, True, 31)]
    table.load({**event("u", 20, 1, "last"), "offset": 1}, {**event("c", 21, 2, "two"), "offset": 2})
    assert flagged(table) == [(1, "last", "d", 30, True, 30), (2, "two", "d", 31, True, 31)]
    flow = table.load({**event("u", 15, 1, "older"), "offset": 3})
    assert flow.events.stale == 1
    assert flagged(table) == [(1, "last", "d", 30, True, 30), (2, "two", "d", 31, True, 31)]


@pytest.mark.deep
def test_a_row_that_passed_in_one_transaction_does_not_flag_the_late_row_that_it_passed(table: Table) -> None:
    came = {**event("c", 41, 1, "passing", commit=40), "offset": 7}
    went = {**event("d", 42, 1, commit=40), "offset": 8}
    # The image before proves that the delete is not about the row that held the key before.
    went["value"]["before"] = came["value"]["after"]
    table.load({**event("c", 5, 9, "other"), "offset": 0}, came, went)
    assert flagged(table)[0] == (1, "passing", "d", 42, True, 42)
    # A late delete replaces no values, and makes older events stale.
    table.load({**event("d", 20, 1), "offset": 3})
    assert flagged(table)[0] == (1, "passing", "d", 42, True, 42)
    table.load({**event("c", 10, 1, "dead"), "offset": 1})
    assert flagged(table)[0] == (1, "passing", "d", 42, True, 42)
    table.load({**event("c", 30, 1, "lives"), "offset": 5})
    assert flagged(table)[0] == (1, "lives", "c", 30, False, None)
    table.load(came, {**event("d", 20, 1), "offset": 3})
    assert flagged(table)[0] == (1, "lives", "c", 30, False, None)


@pytest.mark.deep
def test_truncated_rows_are_flagged_also_those_of_the_same_load(table: Table) -> None:
    table.load(event("c", 10, 1, "one"), event("c", 11, 2, "two"))
    flow = table.load(event("u", 20, 1, "last"), event("c", 21, 3, "three"), event("d", 22, 2), truncate(30), event("c", 40, 4, "after"))
    assert flagged(table) == [
        (1, "last", "t", 30, True, 30),
        (2, "two", "d", 22, True, 22),
        (3, "three", "t", 30, True, 30),
        (4, "after", "c", 40, False, None),
    ]
    assert (flow.events.merged, flow.events.superseded) == (2, 3)
    table.load(truncate(50))
    assert flagged(table)[3] == (4, "after", "t", 50, True, 50)
    table.load(event("c", 60, 1, "reborn"))
    assert table.live() == [(1, "reborn")]


@pytest.mark.deep
def test_a_row_that_a_second_complete_snapshot_did_not_find_is_flagged(table: Table) -> None:
    def read(change: int, key: int, snapshot: str) -> Record:
        return event("r", change, key, f"read {change}", snapshot=snapshot)

    table.load(read(10, 1, "first"), read(10, 2, "last"))
    table.load(read(50, 1, "first_in_data_collection"), read(50, 3, "last"))
    # Nothing records when the row went.
    assert [(*row[:2], *row[4:]) for row in flagged(table)] == [
        (1, "read 50", False, None),
        (2, "read 10", True, None),
        (3, "read 50", False, None),
    ]


@pytest.mark.deep
def test_a_key_that_changes_hands_in_a_transaction_has_the_row_that_lives(table: Table) -> None:
    table.load(event("r", 10, 1, "a"), event("r", 10, 2, "b"))
    table.load(
        event("d", 21, 1, commit=20), event("c", 21, 2, "a", commit=20), event("d", 22, 2, commit=20), event("c", 22, 3, "b", commit=20)
    )
    assert [row[:5] for row in flagged(table)] == [(1, "a", "d", 21, True), (2, "a", "c", 22, False), (3, "b", "c", 22, False)]


@pytest.mark.deep
def test_the_same_microbatch_again_changes_nothing(table: Table) -> None:
    events = [{**event("c", 10, 1, "one"), "offset": 0}, {**event("d", 20, 1), "offset": 1}]
    table.load(*events)
    flow = table.load(*events)
    assert (flow.events.read, flow.events.superseded, flow.events.stale) == (2, 1, 1)
    assert flagged(table) == [(1, "one", "d", 20, True, 20)]


def test_a_table_of_another_mode_stops_the_flow(table: Table, apply: Apply, tmp_path: Path) -> None:
    table.load(event("c", 10, 1, "one"))
    write_records(tmp_path / "archive" / "other.jsonl", [{**event("d", 20, 1), "offset": 9}])
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", may_fail=True).flows
    assert flow.error
    assert flow.error["type"] == TableModeError.__name__
    assert "was made as scd1-flagged, the flow's settings ask for scd1." in flow.error["message"]
    assert flow.error["transient"] is False
    assert flagged(table) == [(1, "one", "c", 10, False, None)]


HISTORIES = "source.dbo.histories"


@pytest.mark.deep
@pytest.mark.parametrize("how", [{}, {"shuffled": True, "again": True}], ids=["in order", "shuffled and repeated"])
def test_whatever_the_split_the_live_rows_are_the_source_s(how: dict[str, Any], apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(DIALECTS["postgresql, full identity"], HISTORIES, 5, 20)
    sizes = [write_records(tmp_path / "a" / f"{n:03d}.jsonl", file).stat().st_size for n, file in enumerate(archive.files(4, **how))]
    settings = CdcFlow(HISTORIES, keys=("db", "id"), max_microbatch_bytes=sum(sizes) // 3, on_delete=OnDelete.FLAG)
    apply(tmp_path / "a", tmp_path / "lake", flows={HISTORIES: settings})
    assert read_rows(spark, str(tmp_path / "lake"), HISTORIES).rows == archive.rows
    everything = read_rows(spark, str(tmp_path / "lake"), HISTORIES, history=True).rows
    keys = {(record["key"]["db"], record["key"]["id"]) for record in archive.records}
    assert {(row["db"], row["id"]) for row in everything} == keys


@pytest.mark.deep
def test_one_microbatch_or_three_make_the_same_table(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(DIALECTS["postgresql"], HISTORIES, 6, 20)
    sizes = [write_records(tmp_path / "a" / f"{n:03d}.jsonl", file).stat().st_size for n, file in enumerate(archive.files(4))]
    tables = {}
    for parts in (1, 3):
        settings = CdcFlow(HISTORIES, keys=("db", "id"), max_microbatch_bytes=sum(sizes) // parts + 1, on_delete=OnDelete.FLAG)
        apply(tmp_path / "a", tmp_path / f"lake {parts}", flows={HISTORIES: settings})
        rows = read_rows(spark, str(tmp_path / f"lake {parts}"), HISTORIES, history=True).rows
        tables[parts] = {(row["db"], row["id"]): (row["__cdc_deleted"], row["v"], row["body"]) for row in rows}
    wrong = {key: (found, tables[3].get(key)) for key, found in tables[1].items() if found != tables[3].get(key)}
    assert not wrong, (len(wrong), archive.story(min(wrong)[0]), min(wrong), wrong[min(wrong)])
    assert tables[1].keys() == tables[3].keys()
