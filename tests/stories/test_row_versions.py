"""Keys handed on inside one transaction, and values that events leave out."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownTypes
from tests.conftest import Apply
from tests.support.events import Record, numbered, postgresql, write_records
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
PLACEHOLDER = "__debezium_unavailable_value"


def row(number: int, value: str) -> dict[str, Any]:
    return {"id": number, "v": value}


def _in_transaction(item: Record, transaction: int) -> Record:
    source = {**item["value"]["source"], "txId": transaction}
    return {**item, "value": {**item["value"], "source": source}}


def test_a_value_that_an_event_leaves_out_is_the_last_one_carried(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    def changed(change: int, number: int, price: int, note: str | None) -> Record:
        return postgresql("u", commit=change - 1, change=change, after={"id": number, "price": price, "note": note})

    first = [postgresql("r", commit=None, change=10, after={"id": number, "price": 1, "note": f"long {number}"}) for number in (1, 2, 3)]
    write_records(tmp_path / "archive" / "1.jsonl", numbered([*first, changed(20, 1, 2, PLACEHOLDER)]))
    apply(tmp_path / "archive", tmp_path / "lake")
    second = [
        changed(30, 1, 3, PLACEHOLDER),
        changed(31, 2, 3, "new"),
        changed(32, 2, 4, PLACEHOLDER),
        changed(33, 3, 5, None),
        changed(34, 3, 6, PLACEHOLDER),
    ]
    # Were the key held before, nothing would say which of the two rows the updates are about.
    made = postgresql("c", commit=40, change=41, after={"id": 4, "price": 1, "note": "made"})
    of_one_transaction = [_in_transaction(item, 40) for item in (made, changed(42, 4, 2, PLACEHOLDER), changed(43, 4, 3, PLACEHOLDER))]
    write_records(tmp_path / "archive" / "2.jsonl", numbered([*second, *of_one_transaction], first=4))
    apply(tmp_path / "archive", tmp_path / "lake")
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [
        {"id": 1, "price": 3, "note": "long 1"},
        {"id": 2, "price": 4, "note": "new"},
        {"id": 3, "price": 6, "note": None},
        {"id": 4, "price": 3, "note": "made"},
    ]


@pytest.mark.deep
def test_a_delete_of_another_row_version_leaves_the_values_of_the_one_that_stays(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    before = {"id": 1, "price": 1, "note": "old row"}
    write_records(tmp_path / "archive" / "1.jsonl", numbered([postgresql("r", commit=None, change=10, after=before)]))
    apply(tmp_path / "archive", tmp_path / "lake")
    taken_over = [
        postgresql("c", commit=20, change=21, after={"id": 1, "price": 2, "note": "new row"}),
        postgresql("d", commit=20, change=22, before=before),
        postgresql("u", commit=20, change=23, after={"id": 1, "price": 3, "note": PLACEHOLDER}),
    ]
    write_records(tmp_path / "archive" / "2.jsonl", numbered([_in_transaction(item, 20) for item in taken_over], first=1))
    apply(tmp_path / "archive", tmp_path / "lake")
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [{"id": 1, "price": 3, "note": "new row"}]


@pytest.mark.deep
def test_a_key_may_have_the_names_that_the_fold_uses(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """A key column named ``events`` was ambiguous with the fold's own."""

    def named(value: str) -> dict[str, Any]:
        return {"events": 1, "Trail": 1, "held": 1, "v": value, "folds": "x"}

    key = {"events": 1, "Trail": 1, "held": 1}
    taken_over = [
        postgresql("c", commit=20, change=21, after=named("new"), key=key),
        postgresql("d", commit=20, change=22, before=named("old"), key=key),
    ]
    first = postgresql("r", commit=None, change=10, after=named("old"), key=key)
    write_records(tmp_path / "archive" / "1.jsonl", numbered([first, *(_in_transaction(item, 20) for item in taken_over)]))
    apply(tmp_path / "archive", tmp_path / "lake")
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [named("new")]


def test_every_spelling_of_an_unavailable_value_keeps_what_the_row_had(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    # As PostgreSQL's connector writes the placeholder, by the column's type (docs/sources/postgresql.md#toast).
    encoded = list(PLACEHOLDER.encode())
    spellings: dict[str, tuple[Any, Any]] = {
        "text": ("kept", PLACEHOLDER),
        "bytea": ("AQI=", base64.b64encode(bytes(encoded)).decode()),
        "hex": ("0102", bytes(encoded).hex()),
        "texts": (["a", None], [PLACEHOLDER]),
        "numbers": ([1, 2], encoded),
        "uuids": (["11111111-1111-1111-1111-111111111111"], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
        "hstore": ({"a": "b"}, {PLACEHOLDER: PLACEHOLDER}),
    }
    flows = {TOPIC: CdcFlow(TOPIC, on_unknown_types=OnUnknownTypes.GUESS)}
    with_values = {"id": 1, "n": 1, **{name: value for name, (value, _) in spellings.items()}}
    without_values = {"id": 1, "n": 2, **{name: placeholder for name, (_, placeholder) in spellings.items()}}
    write_records(tmp_path / "archive" / "1.jsonl", [postgresql("c", commit=1, change=2, after=with_values, topic=TOPIC, offset=0)])
    apply(tmp_path / "archive", tmp_path / "lake", flows=flows)
    before = read_rows(spark, str(tmp_path / "lake"), TOPIC).rows
    write_records(tmp_path / "archive" / "2.jsonl", [postgresql("u", commit=3, change=4, after=without_values, topic=TOPIC, offset=1)])
    apply(tmp_path / "archive", tmp_path / "lake", flows=flows)
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [{**before[0], "n": 2}]


NUMBER = {
    "field": "id",
    "type": "bytes",
    "optional": False,
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "0", "connect.decimal.precision": "38"},
}


@pytest.mark.deep
@pytest.mark.parametrize("as_number", [False, True], ids=["base64", "number"])
def test_a_moved_row_is_found_by_the_decimal_key_in_its_header(as_number: bool, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """The rule that reads a decimal looks into the record's text, which the frame of moved rows did not have."""

    def number(value: int) -> int | str:
        return value if as_number else base64.b64encode(bytes([value])).decode()

    image = {"type": "struct", "fields": [NUMBER, {"field": "v", "type": "string", "optional": True}]}

    def typed(event: Record) -> Record:
        sides = [{**image, "optional": True, "field": side} for side in ("before", "after")]
        key = {"schema": {"type": "struct", "fields": [NUMBER]}, "payload": event["key"]}
        value = None if event["value"] is None else {"schema": {"type": "struct", "fields": sides}, "payload": event["value"]}
        return {**event, "key": key, "value": value}

    def sent(op: str, change: int, key: int, value: str | None, **more: Any) -> Record:
        side = "before" if op == "d" else "after"
        return {**typed(postgresql(op, commit=change, change=change, **{side: {"id": number(key), "v": value}})), **more}

    # Without the delete: only the header says which key the row had.
    header = [{"key": "__debezium.oldkey", "value": {"id": number(1)}}]
    write_records(tmp_path / "archive" / "1.jsonl", numbered([sent("c", 10, 1, "long"), sent("c", 30, 2, PLACEHOLDER, headers=header)]))
    apply(tmp_path / "archive", tmp_path / "lake")
    rows = read_rows(spark, str(tmp_path / "lake"), TOPIC).rows
    assert [(int(row["id"]), row["v"]) for row in rows] == [(1, "long"), (2, "long")]


@pytest.mark.deep
def test_older_events_of_a_key_are_joined_with_its_own_microbatch_not_the_one_of_the_oldest_transaction(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """Two keys handed on, the younger transaction archived first: the files that bring their beginnings must not undo it."""

    def handed_on(number: int, transaction: int) -> list[Record]:
        made = postgresql("c", commit=transaction, change=transaction + 1, after=row(number, "new"))
        gone = postgresql("d", commit=transaction, change=transaction + 2, before=row(number, "old"))
        return [_in_transaction(item, transaction) for item in (made, gone)]

    began = [postgresql("c", commit=number, change=number + 10, after=row(number, "old")) for number in (1, 2)]
    for place, records in enumerate([handed_on(1, 60), handed_on(2, 40), began]):
        items = [{**item, "offset": 10 * (2 - place) + offset} for offset, item in enumerate(records)]
        write_records(tmp_path / "archive" / f"{place}.jsonl", items)
        apply(tmp_path / "archive", tmp_path / "lake")
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [row(1, "new"), row(2, "new")]


@pytest.mark.deep
def test_a_row_created_between_a_delete_and_a_row_that_came_and_went_lives_though_its_create_comes_late(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """The delete in an earlier transaction was taken as a proof that the key was free, so the late create counted as stale."""
    first = [
        postgresql("c", commit=10, change=11, after=row(1, "first")),
        postgresql("d", commit=20, change=21, before=row(1, "first")),
    ]
    late = _in_transaction(postgresql("c", commit=30, change=31, after=row(1, "stays")), 30)
    came_and_went = [
        postgresql("c", commit=40, change=41, after=row(1, "passes")),
        postgresql("d", commit=40, change=42, before=row(1, "passes")),
    ]
    early = numbered([*first, late, *(_in_transaction(item, 40) for item in came_and_went)])
    for place, records in enumerate([[item for item in early if item["offset"] != 2], [early[2]]]):
        write_records(tmp_path / "archive" / f"{place}.jsonl", records)
        report = apply(tmp_path / "archive", tmp_path / "lake")
    assert report.flows[0].batches[0].events.stale == 0
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [row(1, "stays")]
