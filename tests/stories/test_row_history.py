"""Stories of tables that keep every version: the whole table after each load."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.pipeline.spark import sql
from tests.conftest import Apply
from tests.support.events import numbered, sqlserver, write_records
from tests.support.stories import CHOSEN, PLACEHOLDER, TOPIC, Table, event, milliseconds, truncate
from tests.support.tables import read_rows

Version = tuple[int, str | None, int, int | None, str, int | None]


@pytest.fixture(params=["default names", "chosen names"])
def table(apply: Apply, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    names = CHOSEN if request.param == "chosen names" else ScdColumns()
    return Table(apply, spark, tmp_path, CdcFlow(TOPIC, stored_as_scd_type=2, scd_columns=names))


def versions(table: Table, value: str = "v") -> list[Version]:
    """Return key, value, begin, end, operation and previous key; times and flag must say the same as begin and end."""
    found = []
    for row in table.rows():
        begin, end = row["__cdc_position"], row["__cdc_end_position"]
        assert row["__cdc_is_current"] is (end is None), row
        if row["__cdc_op"] != "r":
            assert milliseconds(row["__cdc_valid_from"]) == begin["change"], row
        if end is not None and end["change"] >= 0:
            assert milliseconds(row["__cdc_valid_to"]) == end["change"], row
        previous = row["__cdc_previous_key"]
        found.append(
            (row["id"], row[value], int(begin["change"]), end and int(end["change"]), row["__cdc_op"], previous and previous["id"])
        )
    return found


@pytest.mark.deep
def test_each_change_makes_a_version_and_a_delete_ends_the_last(table: Table) -> None:
    flow = table.load(event("c", 10, 1, "one"), event("u", 20, 1, "two"), event("c", 21, 2, "other"))
    assert (flow.events.merged, flow.rows.inserted) == (3, 3)
    first = (1, "one", 10, 20, "c", None)
    assert versions(table) == [first, (1, "two", 20, None, "u", None), (2, "other", 21, None, "c", None)]
    flow = table.load(event("u", 30, 1, "three"), event("d", 40, 1))
    assert (flow.rows.inserted, flow.rows.updated) == (1, 1)
    second, third = (1, "two", 20, 30, "u", None), (1, "three", 30, 40, "u", None)
    assert versions(table) == [first, second, third, (2, "other", 21, None, "c", None)]
    assert table.live() == [(2, "other")]
    table.load(event("c", 50, 1, "reborn"))
    assert versions(table) == [first, second, third, (1, "reborn", 50, None, "c", None), (2, "other", 21, None, "c", None)]
    assert table.live() == [(1, "reborn"), (2, "other")]


@pytest.mark.deep
def test_a_late_event_cuts_the_interval_that_it_falls_into(table: Table) -> None:
    table.load({**event("c", 10, 1, "one"), "offset": 0})
    table.load({**event("u", 40, 1, "four"), "offset": 9})
    table.load({**event("u", 20, 1, "two"), "offset": 1}, {**event("c", 21, 2, "other"), "offset": 2})
    other = (2, "other", 21, None, "c", None)
    assert versions(table) == [(1, "one", 10, 20, "c", None), (1, "two", 20, 40, "u", None), (1, "four", 40, None, "u", None), other]
    flow = table.load({**event("d", 30, 1), "offset": 3}, {**event("u", 20, 1, "two"), "offset": 1})
    assert (flow.events.merged, flow.events.stale) == (1, 1)
    assert versions(table) == [(1, "one", 10, 20, "c", None), (1, "two", 20, 30, "u", None), (1, "four", 40, None, "u", None), other]


@pytest.mark.deep
def test_what_no_commit_saw_is_no_version(table: Table) -> None:
    table.load(event("c", 10, 1, "lives"), event("c", 11, 2, "b"))
    table.load(
        event("u", 21, 1, "between", commit=20),
        event("u", 22, 1, "after", commit=20),
        event("c", 23, 5, "brief", commit=20),
        event("d", 24, 5, commit=20),
        event("c", 25, 2, "taker", commit=20),
        event("d", 26, 2, commit=20),
    )
    assert versions(table) == [
        (1, "lives", 10, 22, "c", None),
        (1, "after", 22, None, "u", None),
        (2, "b", 11, 25, "c", None),
        (2, "taker", 25, None, "c", None),
    ]


@pytest.mark.deep
def test_a_transaction_cut_by_a_border_is_seen_whole_in_the_end(table: Table) -> None:
    table.load(event("c", 10, 2, "old"))
    table.load(event("c", 21, 2, "new", commit=20), event("c", 22, 5, "brief", commit=20))
    table.load(event("d", 23, 2, commit=20), event("d", 24, 5, commit=20))
    assert versions(table) == [(2, "old", 10, 21, "c", None), (2, "new", 21, None, "c", None)]


@pytest.mark.deep
def test_history_follows_a_row_through_its_keys(table: Table) -> None:
    table.load(event("c", 10, 1, "one", note="long"))
    table.load({**event("d", 20, 1), "offset": 10}, {**event("c", 20, 7, "one", note=PLACEHOLDER), "offset": 11})
    assert versions(table) == [(1, "one", 10, 20, "c", None), (7, "one", 20, None, "c", 1)]
    table.load({**event("u", 30, 7, "two", note=PLACEHOLDER), "offset": 12})
    moved_on = [(7, "one", 20, 30, "c", 1), (7, "two", 30, None, "u", None)]
    assert versions(table) == [(1, "one", 10, 20, "c", None), *moved_on]
    assert versions(table, "note")[1:] == [(7, "long", 20, 30, "c", 1), (7, "long", 30, None, "u", None)]
    # Late: the old key's row had another value when it moved.
    table.load({**event("u", 15, 1, "one", note="longer"), "offset": 5})
    assert versions(table, "note") == [
        (1, "long", 10, 15, "c", None),
        (1, "longer", 15, 20, "u", None),
        (7, "longer", 20, 30, "c", 1),
        (7, "longer", 30, None, "u", None),
    ]


@pytest.mark.deep
def test_a_row_that_was_deleted_and_inserted_anew_has_no_previous_key_but_one_that_moved_away_and_back_has_its_own(table: Table) -> None:
    table.load(event("c", 10, 1, "one"), event("c", 11, 2, "two"))
    anew = [event("d", 21, 1, commit=20), event("c", 22, 1, "anew", commit=20)]
    away = [event("d", 23, 2, commit=20), event("c", 23, 9, "two", commit=20)]
    table.load(*anew, *away, event("d", 24, 9, commit=20), event("c", 24, 2, "two", commit=20))
    assert [version[-1] for version in versions(table)] == [None, None, None, 2]


@pytest.mark.deep
def test_a_delete_and_a_create_at_one_place_of_the_log_are_an_update_whose_previous_key_is_its_own(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    row, topic = {"id": 1, "v": "one"}, "server1.testDB.dbo.customers"
    parts = [sqlserver("d", commit=2, serial=1, before=row), sqlserver("c", commit=2, serial=2, after={**row, "v": "two"})]
    write_records(tmp_path / "archive" / "1.jsonl", numbered([sqlserver("c", commit=1, after=row), *parts]))
    apply(tmp_path / "archive", tmp_path / "lake", flows={topic: CdcFlow(topic, stored_as_scd_type=2)})
    found = read_rows(spark, str(tmp_path / "lake"), topic, history=True).rows
    assert [(row["v"], row["__cdc_previous_key"]) for row in found] == [("one", None), ("two", {"id": 1})]


@pytest.mark.deep
def test_a_key_between_two_moves_of_one_transaction_is_passed_over(table: Table) -> None:
    table.load(event("c", 10, 1, "one", note="long"), event("c", 11, 2, "two"))
    parts = [event("d", 21, 1, commit=20), event("c", 21, 9, "one", commit=20, note=PLACEHOLDER)]
    rest = [event("d", 22, 9, commit=20), event("c", 22, 3, "one", commit=20, note=PLACEHOLDER)]
    away_and_back = [event("d", 23, 2, commit=20), event("c", 23, 8, "two", commit=20)]
    back = [event("d", 24, 8, commit=20), event("c", 24, 2, "two", commit=20)]
    table.load(*rest, *back, *away_and_back)
    table.load(*[{**item, "offset": 50 + number} for number, item in enumerate(parts)])
    assert versions(table) == [
        (1, "one", 10, 21, "c", None),
        (2, "two", 11, 24, "c", None),
        (2, "two", 24, None, "c", 2),
        (3, "one", 22, None, "c", 1),
    ]
    assert table.rows(history=False)[1] == {"id": 3, "v": "one", "note": "long"}


@pytest.mark.deep
def test_one_query_reads_a_row_s_whole_history(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    table.load(event("c", 5, 7, "another"), event("d", 8, 7), event("c", 10, 1, "one"), event("u", 15, 1, "two"))
    table.load(event("d", 20, 1), event("c", 20, 7, "two"), event("u", 30, 7, "three"), event("c", 31, 1, "another"))
    page = (Path(__file__).parents[2] / "docs" / "reference" / "target-tables.md").read_text(encoding="utf-8")
    query = next(part for part in page.split("```sql\n") if part.startswith("WITH RECURSIVE")).partition("```")[0]
    for default, name in table.flow.scd_columns.by_default.items():
        query = query.replace(default, sql.name(name))
    found = spark.sql(query.replace("/lake/pg.public.prices", f"{tmp_path}/lake/{TOPIC}")).collect()
    assert [(row["id"], row["v"]) for row in found] == [(1, "one"), (1, "two"), (7, "two"), (7, "three")]


@pytest.mark.deep
def test_a_header_names_the_old_key_where_the_delete_is_not_archived(table: Table) -> None:
    header = [{"key": "__debezium.oldkey", "value": {"id": 1}}]
    table.load(event("c", 10, 1, "one", note="long"))
    flow = table.load(event("c", 20, 7, "one", note=PLACEHOLDER, headers=header), event("c", 21, 8, "x", note=PLACEHOLDER))
    assert versions(table, "note") == [(1, "long", 10, None, "c", None), (7, "long", 20, None, "c", 1), (8, None, 21, None, "c", None)]
    assert flow.batches[0].unavailable_unresolved == 1


@pytest.mark.deep
def test_a_truncate_ends_every_version_whenever_it_comes(table: Table) -> None:
    table.load({**event("c", 10, 1, "one"), "offset": 0}, {**event("c", 11, 2, "two"), "offset": 1})
    table.load({**truncate(30), "offset": 5}, {**event("c", 40, 1, "new"), "offset": 6})
    ended = [(1, "one", 10, 30, "c", None), (1, "new", 40, None, "c", None), (2, "two", 11, 30, "c", None)]
    assert versions(table) == ended
    table.load({**truncate(20), "offset": 3})
    assert versions(table) == [(1, "one", 10, 20, "c", None), (1, "new", 40, None, "c", None), (2, "two", 11, 20, "c", None)]
    table.load({**event("c", 25, 2, "late"), "offset": 4})
    assert versions(table)[2:] == [(2, "two", 11, 20, "c", None), (2, "late", 25, 30, "c", None)]


@pytest.mark.deep
def test_a_complete_snapshot_ends_what_it_did_not_find_and_repeats_nothing(table: Table) -> None:
    table.load(event("r", 10, 1, "one", snapshot="first"), event("r", 10, 2, "two"), event("r", 10, 3, "three", snapshot="last"))
    table.load(
        event("r", 50, 1, "one", snapshot="first"), event("r", 50, 3, "changed", snapshot="last"), event("c", 60, 4, "after", commit=55)
    )
    rows = [(row["id"], row["v"], int(row["__cdc_position"]["commit"]), row["__cdc_end_position"] is None) for row in table.rows()]
    assert rows == [(1, "one", 10, True), (2, "two", 10, False), (3, "three", 10, False), (3, "changed", 50, True), (4, "after", 55, True)]
    assert [milliseconds(row["__cdc_valid_to"]) for row in table.rows()] == [None, 50, 50, None, None]


@pytest.mark.deep
def test_a_read_taken_under_load_stands_before_what_the_archive_holds_behind_it(table: Table) -> None:
    table.load(event("r", 100, 1, "read"), event("u", 60, 1, "newer", commit=50))
    table.load(event("u", 70, 1, "newest", commit=65))
    assert versions(table) == [(1, "read", -1, 60, "r", None), (1, "newer", 60, 70, "u", None), (1, "newest", 70, None, "u", None)]


@pytest.mark.deep
def test_versions_behind_a_second_snapshot_do_not_overlap(table: Table) -> None:
    # Taken under load: its position lies above that of an event which the archive holds behind its reads. Key 1 was gone then.
    table.load(event("c", 100, 1, "one"), event("c", 101, 2, "two"))
    reads = [event("r", 200, 2, "two", snapshot="first"), event("r", 200, 3, "three", snapshot="last")]
    table.load(*reads, event("c", 150, 1, "again", commit=149), event("u", 151, 2, "two!", commit=150))
    assert versions(table) == [
        (1, "one", 100, 150, "c", None),
        (1, "again", 150, None, "c", None),
        (2, "two", 101, 151, "c", None),
        (2, "two!", 151, None, "u", None),
        (3, "three", -1, None, "r", None),
    ]


@pytest.mark.deep
def test_versions_do_not_overlap_by_time_where_reads_have_later_times_than_the_next_event(table: Table) -> None:
    late_read = event("r", 50, 1, "read", snapshot="last")
    late_read["value"]["source"]["ts_ms"] += 1_000
    table.load(event("c", 10, 1, "one"))
    table.load(late_read, event("u", 60, 1, "next"))
    late_clock = event("u", 70, 1, "clock")
    late_clock["value"]["source"]["ts_ms"] -= 30
    table.load(late_clock)
    rows = [(row["v"], milliseconds(row["__cdc_valid_from"]), milliseconds(row["__cdc_valid_to"])) for row in table.rows()]
    assert rows == [("one", 10, 60), ("read", 60, 60), ("next", 60, 60), ("clock", 60, None)]


@pytest.mark.deep
def test_reads_of_two_snapshots_that_go_back_leave_no_overlap(table: Table) -> None:
    table.load(event("c", 100, 1, "one"))
    table.load(event("r", 300, 1, "first", snapshot="incremental"), event("r", 200, 1, "second", snapshot="incremental"))
    rows = [(row["v"], row["__cdc_end_position"] is None) for row in table.rows()]
    assert rows == [("one", False), ("second", True)]


@pytest.mark.deep
def test_a_column_that_an_event_does_not_have_keeps_its_value(table: Table) -> None:
    wide = event("c", 10, 1, "one")
    wide["value"]["after"]["extra"] = "kept"
    table.load(wide)
    table.load(event("u", 20, 1, "two"))
    assert versions(table, "extra") == [(1, "kept", 10, 20, "c", None), (1, "kept", 20, None, "u", None)]


@pytest.mark.deep
def test_versions_whose_events_are_gone_are_not_cut_anew(table: Table, apply: Apply, tmp_path: Path) -> None:
    table.load(event("c", 10, 1, "one"))
    shutil.rmtree(tmp_path / "lake" / "_cdc" / "flows" / TOPIC / "events")
    table.archive(event("u", 20, 1, "two"))
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: table.flow}, may_fail=True).flows
    assert flow.error
    assert (flow.error["type"], flow.error["transient"]) == ("StateUnreadableError", False)
    assert "the events that they were cut from are gone" in flow.error["message"]
    assert versions(table) == [(1, "one", 10, None, "c", None)]


@pytest.mark.deep
def test_columns_of_any_name_have_versions(table: Table) -> None:
    """Names that SQL or Parquet would refuse, and those that a step has for itself."""
    odd = {"a b": "x", "events": "y", "run": "z", "it's": "w"}
    for change, note in ((10, "old"), (20, PLACEHOLDER)):
        record = event("c" if change == 10 else "u", change, 1, "one", note=note)
        record["value"]["after"] |= {**odd, "run": str(change)}
        table.load(record)
    rows = [{name: row[name] for name in (*odd, "note")} for row in table.rows()]
    assert rows == [{**odd, "run": "10", "note": "old"}, {**odd, "run": "20", "note": "old"}]


@pytest.mark.deep
def test_one_microbatch_or_many_make_the_same_versions(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    events = [
        event("r", 10, 1, "a", note="long"),
        event("r", 10, 2, "b"),
        event("u", 20, 1, "c", note=PLACEHOLDER),
        event("d", 31, 1, commit=30),
        event("c", 31, 2, "c", commit=30, note=PLACEHOLDER),
        event("d", 32, 2, commit=30),
        event("c", 32, 3, "b", commit=30),
        event("d", 40, 3),
        event("c", 50, 3, "d"),
        truncate(60),
        event("c", 70, 1, "e"),
    ]
    events = [{**item, "offset": place} for place, item in enumerate(events)]
    tables = {name: Table(apply, spark, tmp_path / name, CdcFlow(TOPIC, stored_as_scd_type=2)) for name in ("one", "many", "back")}
    tables["one"].load(*events)
    # Borders inside the transaction.
    parts = [events[:4], events[4:5], events[5:8], events[8:]]
    for name, order in (("many", parts), ("back", parts[::-1])):
        for part in order:
            tables[name].archive(*part)
        tables[name].flow = CdcFlow(TOPIC, stored_as_scd_type=2, max_microbatch_bytes=1)
        tables[name].load(events[0])
    expected = versions(tables["one"])
    assert expected == [
        (1, "a", -1, 20, "r", None),
        (1, "c", 20, 31, "u", None),
        (1, "e", 70, None, "c", None),
        (2, "b", -1, 31, "r", None),
        (2, "c", 31, 60, "c", 1),
        (3, "b", 32, 40, "c", 2),
        (3, "d", 50, 60, "c", None),
    ]
    assert {name: versions(table) for name, table in tables.items()} == dict.fromkeys(tables, expected)


@pytest.mark.deep
def test_a_crash_after_each_effect_changes_nothing(table: Table, apply: Apply, tmp_path: Path) -> None:
    table.load(event("c", 10, 1, "one"))
    table.archive(event("u", 20, 1, "two"), event("d", 30, 1), event("c", 31, 2, "x"))
    settings: dict[str, Any] = {"flows": {TOPIC: table.flow}}
    for effect in ("target", "log", "merge"):

        def crash(name: str, effect: str = effect) -> None:
            if name == effect:
                raise RuntimeError("lights out")

        (flow,) = apply(tmp_path / "archive", tmp_path / "lake", may_fail=True, after_effect=crash, **settings).flows
        assert flow.error
        assert "lights out" in flow.error["message"]
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", **settings).flows
    assert (flow.events.merged, flow.events.stale, flow.rows.inserted, flow.rows.updated) == (3, 0, 2, 1)
    assert versions(table) == [(1, "one", 10, 20, "c", None), (1, "two", 20, 30, "u", None), (2, "x", 31, None, "c", None)]
