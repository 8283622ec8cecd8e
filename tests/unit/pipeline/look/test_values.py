"""Values of an Arrow table become what Spark would have collected."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc.pipeline.look.values import rows_of

NOON = datetime.fromisoformat("2026-11-20T12:00")
ZONED = pa.timestamp("us", tz="Europe/Berlin")


def only(kind: pa.DataType, value: Any, *, structs_by_name: bool = False) -> Any:
    (row,) = rows_of(pa.table({"c": pa.array([value], kind)}), structs_by_name=structs_by_name)
    return row["c"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.decimal128(10, 2), Decimal("12.50")),
        (pa.decimal128(38, 10), Decimal("0E-10")),
        (pa.binary(), b"\0\1"),
        (pa.date32(), date(1, 1, 1)),
        (pa.timestamp("us"), datetime.fromisoformat("9999-12-31")),
        (pa.float32(), 0.10000000149011612),
        (pa.list_(pa.int64()), [1, None]),
        (pa.bool_(), False),
        (pa.string(), None),
    ],
)
def test_a_value_without_parts_is_pythons(kind: pa.DataType, value: Any) -> None:
    found = only(kind, value)
    assert (found, str(found)) == (value, str(value))


def test_an_instant_is_in_utc_without_a_zone_wherever_it_stands() -> None:
    stored = pa.array([NOON], pa.timestamp("us", tz="UTC"))[0].as_py()
    assert only(ZONED, stored) == NOON
    assert only(pa.list_(ZONED), [stored, None]) == [NOON, None]
    assert only(pa.struct([("a", ZONED)]), {"a": stored}) == (NOON,)
    assert only(pa.map_(pa.string(), ZONED), [("k", stored)]) == {"k": NOON}


def test_a_struct_is_the_tuple_of_a_row_or_a_dictionary() -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
    value = {"a": 1, "b": {"c": "x"}}
    assert only(kind, value) == (1, ("x",))
    assert only(kind, value, structs_by_name=True) == value
    assert only(kind, None) is None
    assert only(pa.list_(kind), [value, None]) == [(1, ("x",)), None]


def test_a_map_is_a_dictionary() -> None:
    assert only(pa.map_(pa.string(), pa.list_(pa.int64())), [("a", [1]), ("b", None)]) == {"a": [1], "b": None}
    assert only(pa.map_(pa.string(), pa.int64()), None) is None
