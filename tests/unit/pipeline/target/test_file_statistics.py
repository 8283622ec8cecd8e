"""Statistics of a file, as Delta writes them."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_cdc.pipeline.target.file_statistics import read_footer, statistics_of_file, to_json


def statistics_of(rows: pa.Table, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the statistics of a file that DuckDB writes."""
    with duckdb.connect() as connection, TemporaryDirectory() as folder:
        connection.register("rows", rows)
        connection.execute(f"COPY rows TO '{folder}/file' (FORMAT parquet)")
        found: dict[str, Any] = json.loads(statistics_of_file(read_footer(f"{folder}/file"), fields), parse_float=Decimal)
        return found


def statistics(values: list[Any], arrow: pa.DataType, delta: Any) -> tuple[Any, Any, Any]:
    """Return the least and the greatest value of a column, None where it has none, and its number of nulls."""
    found = statistics_of(pa.table({"c": pa.array(values, arrow)}), [{"name": "c", "type": delta}])
    assert found["numRecords"] == len(values)
    assert found["tightBounds"] is True
    return found["minValues"].get("c"), found["maxValues"].get("c"), found["nullCount"].get("c")


UTC = timezone.utc
INSTANT = pa.timestamp("us", tz="UTC")
LONG_AGO = datetime(1, 1, 1, 0, 0, 0, 1, UTC).replace(tzinfo=None)
END = "\U0010ffff"


@pytest.mark.parametrize(
    ("values", "arrow", "delta", "expected"),
    [
        ([2, None, -1], pa.int64(), "long", (-1, 2, 1)),
        ([None], pa.int32(), "integer", (None, None, 1)),
        ([Decimal("1.10"), Decimal("12345678901234567890.25")], pa.decimal128(38, 2), "decimal(38,2)",
         (Decimal("1.10"), Decimal("12345678901234567890.25"), 0)),
        (["b", "a" * 40], pa.string(), "string", ("a" * 32, "b", 0)),
        (["a", "b" * 40], pa.string(), "string", ("a", "b" * 32 + END, 0)),
        (["a", "b" * 32], pa.string(), "string", ("a", "b" * 32, 0)),
        # Nothing of one more character is behind it.
        (["a", "b" * 32 + END * 2], pa.string(), "string", (None, None, 0)),
        (["\u00e9" * 33], pa.string(), "string", ("\u00e9" * 32, "\u00e9" * 32 + END, 0)),
        ([datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)], INSTANT, "timestamp", ("2024-01-02T03:04:05.123Z", "2024-01-02T03:04:05.124Z", 0)),
        ([datetime(2024, 1, 2, 3, 4, 5, 123000, UTC)], INSTANT, "timestamp", ("2024-01-02T03:04:05.123Z", "2024-01-02T03:04:05.123Z", 0)),
        ([LONG_AGO], pa.timestamp("us"), "timestamp_ntz", ("0001-01-01T00:00:00.000", "0001-01-01T00:00:00.001", 0)),
        ([datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)], INSTANT, "timestamp", (None, None, 0)),
        ([date(1, 1, 1), date(9999, 12, 31)], pa.date32(), "date", ("0001-01-01", "9999-12-31", 0)),
        ([0.5, float("nan")], pa.float64(), "double", (None, None, 0)),
        ([0.5, float("-inf")], pa.float64(), "double", (None, None, 0)),
        ([0.5, 0.25], pa.float64(), "double", (Decimal("0.25"), Decimal("0.5"), 0)),
        ([True], pa.bool_(), "boolean", (None, None, 0)),
        ([b"x", None], pa.binary(), "binary", (None, None, 1)),
        # A footer counts the nulls of items.
        ([[1], None], pa.list_(pa.int64()), {"type": "array", "elementType": "long"}, (None, None, None)),
        ([0.0, 1.5], pa.float64(), "double", (Decimal("-0.0"), Decimal("1.5"), 0)),
        ([-0.0, -1.5], pa.float32(), "float", (Decimal("-1.5"), Decimal("0.0"), 0)),
    ],
)  # fmt: skip
def test_a_range_holds_every_value(values: list[Any], arrow: pa.DataType, delta: Any, expected: tuple[Any, Any, Any]) -> None:
    assert statistics(values, arrow, delta) == expected


def test_a_struct_s_fields_are_columns_of_their_own() -> None:
    kind = {"type": "struct", "fields": [{"name": "x", "type": "long"}, {"name": "y z", "type": "string"}]}
    arrow = pa.struct([("x", pa.int64()), ("y z", pa.string())])
    assert statistics([{"x": 1, "y z": "a"}, None], arrow, kind) == ({"x": 1, "y z": "a"}, {"x": 1, "y z": "a"}, {"x": 1, "y z": 1})


def test_the_first_32_columns_have_statistics() -> None:
    fields = [{"name": f"c{number}", "type": "long"} for number in range(40)]
    found = statistics_of(pa.table({field["name"]: pa.array([1], pa.int64()) for field in fields}), fields)
    assert list(found["minValues"]) == list(found["nullCount"]) == [f"c{number}" for number in range(32)]


def test_a_decimal_keeps_its_digits_as_a_number() -> None:
    assert to_json({"a b": Decimal("0.000000000000000000000000000000000001"), "c": [None, '"x"']}) == (
        '{"a b":0.000000000000000000000000000000000001,"c":[null, "\\"x\\""]}'
    )
