"""A column's unit or scale changes while its SQL type stays: each event is read by its own schema, whichever others are read with it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.engine import Engine
from tests.conftest import Apply
from tests.support.events import Record, numbered, postgresql, write_records
from tests.support.stories import PLACEHOLDER
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
NOON = datetime(2026, 11, 27, 12, 0, 0, 123_000)  # noqa: DTZ001 - a local time, as DATETIME is
Field = Mapping[str, Any]
ID: Field = {"field": "id", "type": "int64", "optional": False}
MILLIS: Field = {"field": "v", "type": "int64", "name": "io.debezium.time.Timestamp", "optional": True}
MICROS: Field = {**MILLIS, "name": "io.debezium.time.MicroTimestamp"}
BOTH_WAYS = pytest.mark.parametrize(("first", "then"), [(MILLIS, MICROS), (MICROS, MILLIS)], ids=["finer", "coarser"])


def count(field: Field, value: datetime) -> int:
    """Return a time as a field's schema spells it."""
    micros = (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    return micros if field["name"] == MICROS["name"] else micros // 1_000


def typed(made: Record, *fields: Field) -> Record:
    """Return a record with the schemas of its row; the first field is its key."""
    images = [{"type": "struct", "optional": True, "fields": [*fields], "field": image} for image in ("before", "after")]
    key = {"schema": {"type": "struct", "fields": [fields[0]]}, "payload": made["key"]}
    return {**made, "key": key, "value": {"schema": {"type": "struct", "fields": images}, "payload": made["value"]}}


def sent(op: str, change: int, key: int, field: Field, value: datetime, **more: Any) -> Record:
    """Return an event of a row with a number as key and a time."""
    image = {"before" if op == "d" else "after": {"id": key, "v": count(field, value)}}
    return typed({**postgresql(op, commit=change, change=change, key={"id": key}, **image), **more}, ID, field)


def hours(number: int) -> datetime:
    return NOON + timedelta(hours=number)


@BOTH_WAYS
@pytest.mark.parametrize("files", [1, 3])
@pytest.mark.both_engines
def test_a_time_keeps_its_value_when_its_unit_changes(
    first: Field, then: Field, files: int, apply: Apply, spark: SparkSession, engine: Engine | None, tmp_path: Path
) -> None:
    """Microseconds were read as milliseconds, or a present time became one of January 1970; in two microbatches it was right."""
    events = numbered(
        [
            *(sent("c", 10 + number, number, first, hours(number)) for number in range(3)),
            sent("u", 20, 1, then, hours(10)),
            sent("c", 21, 3, then, hours(3)),
            sent("d", 22, 2, then, hours(2)),
            sent("u", 30, 3, first, hours(11)),
        ]
    )
    for number in range(files):
        write_records(tmp_path / "archive" / f"{number}.jsonl", events[number::files])
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake").flows
    assert sum(batch.events.rejected for batch in flow.batches) == 0
    assert {batch.engine for batch in flow.batches} == {"spark" if engine is Engine.SPARK else "native"}
    rows = read_rows(spark, str(tmp_path / "lake"), TOPIC).rows
    assert sorted((row["id"], row["v"]) for row in rows) == [(0, hours(0)), (1, hours(10)), (3, hours(11))]


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.both_engines
def test_a_time_in_the_key_stays_the_same_key_when_its_unit_changes(files: int, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """Of one row there were two, and its delete removed none."""

    def keyed(op: str, change: int, field: Field, value: datetime, name: str) -> Record:
        row = {"v": count(field, value), "name": name}
        image = {"before" if op == "d" else "after": row}
        made = postgresql(op, commit=change, change=change, key={"v": row["v"]}, **image)
        return typed(made, field, {"field": "name", "type": "string", "optional": True})

    events = numbered(
        [
            *(keyed("c", 10 + number, MILLIS, hours(number), "old") for number in range(3)),
            keyed("u", 20, MICROS, hours(0), "new"),
            keyed("d", 21, MICROS, hours(1), "new"),
        ]
    )
    for number, some in enumerate([events] if files == 1 else [events[:3], events[3:]]):
        write_records(tmp_path / "archive" / f"{number}.jsonl", some)
        apply(tmp_path / "archive", tmp_path / "lake")
    rows = read_rows(spark, str(tmp_path / "lake"), TOPIC).rows
    assert sorted((row["v"], row["name"]) for row in rows) == [(hours(0), "new"), (hours(2), "old")]


@BOTH_WAYS
def test_a_transaction_that_is_put_together_is_read_by_the_schemas_of_its_own_microbatches(
    first: Field, then: Field, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """Two rows swap their keys while a connector with another setting takes over: the first half was read by the unit of the second."""
    began = [sent("c", 10, 1, first, hours(1)), sent("c", 11, 2, first, hours(2))]

    def swapped(op: str, change: int, key: int, field: Field, value: datetime) -> Record:
        record = sent(op, change, key, field, value)
        record["value"]["payload"]["source"] |= {"sequence": f'["20","{change}"]', "txId": 5}
        return record

    halves = [
        [swapped("d", 21, 1, first, hours(1)), swapped("c", 22, 2, first, hours(1))],
        [swapped("d", 23, 2, then, hours(2)), swapped("c", 24, 1, then, hours(2))],
    ]
    events = numbered([*began, *halves[0], *halves[1]])
    for number, some in enumerate([events[:2], events[2:4], events[4:]]):
        write_records(tmp_path / "archive" / f"{number}.jsonl", some)
        apply(tmp_path / "archive", tmp_path / "lake")
    rows = read_rows(spark, str(tmp_path / "lake"), TOPIC).rows
    assert sorted((row["id"], row["v"]) for row in rows) == [(1, hours(2)), (2, hours(1))]


@pytest.mark.deep
def test_the_old_key_in_a_header_is_read_by_its_record_s_schema(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """A key whose unit changed had no value there, and the moved row lost what its event left out."""

    def of(change: int, field: Field, value: datetime, text: str, **more: Any) -> Record:
        row = {"v": count(field, value), "note": text}
        made = postgresql("c", commit=change, change=change, key={"v": row["v"]}, after=row)
        return {**typed(made, field, {"field": "note", "type": "string", "optional": True}), **more}

    # Without the delete: only the header says which key the row had.
    header = [{"key": "__debezium.oldkey", "value": {"v": count(MICROS, hours(1))}}]
    events = [of(10, MILLIS, hours(1), "long"), of(11, MILLIS, hours(5), "other"), of(30, MICROS, hours(2), PLACEHOLDER, headers=header)]
    write_records(tmp_path / "archive" / "1.jsonl", numbered(events))
    apply(tmp_path / "archive", tmp_path / "lake")
    rows = read_rows(spark, str(tmp_path / "lake"), TOPIC).rows
    assert sorted((row["v"], row["note"]) for row in rows) == [(hours(1), "long"), (hours(2), "long"), (hours(5), "other")]
