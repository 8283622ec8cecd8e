"""The demo's events: spelled as the connectors spell them, and its sources keep the rows that the events lead to."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.demo.events import UNAVAILABLE, decimal
from airflow_cdc.demo.story import AFTERNOON, REASONS, Shop, archive, rows_kept_by_last_event
from airflow_cdc.model.archive.archived_files import classify


@pytest.fixture
def shop() -> Shop:
    shop = Shop()
    shop.first_load()
    shop.afternoon()
    return shop


def _values(table: Any, op: str) -> list[Any]:
    return [event.value for event in table.events if event.value and event.value["op"] == op]


@pytest.mark.parametrize(("value", "encoded"), [("0.00", "AA=="), ("1.27", "fw=="), ("1.28", "AIA="), ("-0.01", "/w==")])
def test_decimals_are_encoded_as_kafka_connect_does(value: str, encoded: str) -> None:
    assert decimal("total", 10, 2).encode(Decimal(value)) == encoded


def test_a_key_change_of_sql_server_is_a_delete_and_a_create_of_one_change(shop: Shop) -> None:
    delete, create = _values(shop.customers, "d")[0]["source"], _values(shop.customers, "c")[0]["source"]
    assert (delete["commit_lsn"], delete["change_lsn"]) == (create["commit_lsn"], create["change_lsn"])
    assert (delete["event_serial_no"], create["event_serial_no"]) == (1, 2)


def test_keys_that_move_up_in_one_statement_share_a_transaction_and_name_each_other(shop: Shop) -> None:
    moved = [event for event in shop.queue.events if event.headers and event.value]
    assert [(event.value["op"], event.key) for event in moved[:4]] == [
        ("d", {"place": n}) if even else ("c", {"place": n + 1}) for n in (1, 2) for even in (1, 0)
    ]
    assert len({event.value["source"]["txId"] for event in moved}) == 1
    assert moved[0].headers == (("__debezium.newkey", {"place": 2}),)
    assert moved[1].headers == (("__debezium.oldkey", {"place": 1}),)
    assert sorted(shop.queue.rows) == [2, 3, 4, 5, 6]


def test_positions_rise_and_only_redelivered_events_repeat_one(shop: Shop) -> None:
    for table in (shop.products, shop.carts, shop.queue):
        positions = [event.value["source"]["lsn"] for event in table.events if event.value and event.value["op"] in "cu"]
        expected = sorted(positions) if table is not shop.products else [positions[0], *sorted(positions[1:])]
        assert positions == expected
    lsns = [value["source"]["commit_lsn"] for value in _values(shop.orders, "u")]
    assert lsns == sorted(set(lsns))


def test_postgresql_leaves_out_a_large_value_that_an_update_left_alone(shop: Shop) -> None:
    assert [value["after"]["note"] for value in _values(shop.products, "u")] == [UNAVAILABLE] * 3
    assert _values(shop.products, "u")[0]["before"] is None


def test_taking_the_last_event_of_each_key_would_lose_rows(shop: Shop) -> None:
    assert (rows_kept_by_last_event(shop.queue), len(shop.queue.rows)) == (1, 5)


def test_the_archive_has_both_layouts_and_every_key_lies_beside_its_value(shop: Shop, tmp_path: Path) -> None:
    files = archive(shop, tmp_path, "1600", half_written=2)
    listing = classify((str(file.relative_to(tmp_path)), 1) for file in tmp_path.rglob("*") if file.is_file())
    assert {file.topic for file in listing.files} == {table.topic for table in shop.tables}
    assert listing.ignored == ()
    values, keys = files[0].read_text().splitlines(), files[0].with_suffix(".keys.json").read_text().splitlines()
    for value, key in zip(map(json.loads, values), map(json.loads, keys), strict=True):
        image = value["payload"]["after"] or value["payload"]["before"]
        assert key["payload"] == {"id": image["id"]}
        assert [field["field"] for field in value["schema"]["fields"][:3]] == ["before", "after", "source"]
        assert set(value["payload"]["source"]) == {field["field"] for field in value["schema"]["fields"][2]["fields"]}


def test_the_line_that_was_written_by_half_is_followed_by_the_whole_one(shop: Shop, tmp_path: Path) -> None:
    products = archive(shop, tmp_path, "1600", half_written=2)[2]
    with gzip.open(products, "rt") as lines:
        half, whole = lines.read().splitlines()[2:4]
    with pytest.raises(ValueError, match="line 1"):
        json.loads(half)
    assert whole.startswith(half)
    assert json.loads(whole)["offset"] == 2


def test_nothing_is_archived_twice(shop: Shop, tmp_path: Path) -> None:
    archive(shop, tmp_path, "0800")
    assert all(table.take_unarchived() == [] for table in shop.tables)


def test_every_change_of_the_second_round_has_a_reason() -> None:
    shop = Shop()
    shop.first_load()
    before = {table.name: dict(table.rows) for table in shop.tables}
    shop.afternoon()
    assert set(AFTERNOON) == {table.name for table in shop.tables}
    for table in shop.tables:
        if table is not shop.orders:
            changed = {key for key in before[table.name] | table.rows if before[table.name].get(key) != table.rows.get(key)}
            assert {(table.name, key) for key in changed} <= set(REASONS)
