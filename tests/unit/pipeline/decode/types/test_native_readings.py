"""The native engine reads a JSON leaf as Spark does, or not at all."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.decode.envelope import parse_line
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, cast_to, column_type

duckdb = pytest.importorskip("duckdb")

_MICROS = (0, 1, -1, 1_700_000_000_000_000, -62_135_596_800_000_000, -62_135_596_800_000_001, 253_402_300_799_999_999, 2**63 - 1)
_NUMBERS = ("0", "-0", "7", "-7", "127", "128", "-129", "32768", "2147483648", "9223372036854775808", "1.0", "1.5", "-0.0", "1e3", "1E-2")
_LONG = ("12345678901234567.125", "123456789012345678901234567890", "0.1", "3.4028236e38", "1e400", "16777217", "1.10", "12.345", "100.000")
_TEXTS = (
    "",
    " ",
    "a",
    '"',
    "\\",
    "naïve",
    "\n",
    "null",
    "true",
    "1",
    "-1.50",
    "1.234",
    "+1",
    " 1 ",
    "1e2",
    "NaN",
    "Infinity",
    "99999999999.99",
)
_MORE = ("e30=", "AQ==", "////", "gAA=", "1234", "AQIDBAUGBwgJCgsMDQ4P", "AQIDBAUGBwgJCgsMDQ4PEA==", "A", "====", "2026-11-24T10:00:00Z")
_DATES = (
    "2026-11-24T10:00:00.123456Z",
    "2026-11-24T10:00:00.1234567Z",
    "2026-02-30T10:00:00Z",
    "0000-01-01T00:00:00Z",
    "2026-11-24",
    "24:00:00",
    "0001-01-03",
    "9999-12-31",
    "1582-10-10",
    "1900-02-29",
    "2024-02-29",
    "2024-2-9",
    "12024-02-29",
    "2026-11-24Z",
    "2026-11-24T10:00:00",
    "2026-11-24 10:00:00.5",
    "2026-11-24T10:00",
    "2026-11-24T24:00:00",
    "2026-11-24T24:00:00Z",
    "2026-11-24T10:00:60",
    "2026-11-24T10:00:00+01:00",
    "2026-11-24T10:00:00.1234560",
    "0001-01-03T00:00:00",
    "9999-12-31T23:59:59.999999Z",
    "1582-10-10 12:00:00",
)
_OTHERS = ("true", "false", "null", "[1, 2]", '{"a": 1}', "[]")
LEAVES = [
    *_NUMBERS,
    *_LONG,
    *map(str, (*_MICROS, 86_399_999_999, 86_400_000_000, -719_162, -719_163, 2_932_896, 2_932_897, 20_416)),
    *map(json.dumps, (*_TEXTS, *_MORE, *_DATES)),
    json.dumps("naïve", ensure_ascii=False),
    *_OTHERS,
]


def _field(kind: str, name: str | None = None, **parameters: str) -> ColumnType:
    return column_type({"field": "v", "type": kind, "name": name, "parameters": parameters}, "postgresql")


RULES = {
    **{kind: cast_to(kind) for kind in ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN", "STRING", "BINARY")},
    **{kind: cast_to(kind) for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")},
    **{f"DECIMAL({digits})": cast_to(f"DECIMAL({digits})") for digits in ("5,2", "38,0", "38,38", "20,4")},
    "decimal in bytes": _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="2", **{"connect.decimal.precision": "10"}),
    "decimal in bytes, no scale": _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="0"),
    "decimal in bytes, negative scale": _field(
        "bytes", "org.apache.kafka.connect.data.Decimal", scale="-2", **{"connect.decimal.precision": "10"}
    ),
    "decimal in bytes, all fraction": _field("bytes", "org.apache.kafka.connect.data.Decimal", scale="38"),
    "date": _field("int32", "io.debezium.time.Date"),
    "milliseconds": _field("int64", "io.debezium.time.Timestamp"),
    "microseconds": _field("int64", "io.debezium.time.MicroTimestamp"),
    "zoned": _field("string", "io.debezium.time.ZonedTimestamp"),
    "time": _field("int64", "io.debezium.time.MicroTime"),
    "time in milliseconds": _field("int32", "io.debezium.time.Time"),
    "duration": column_type({"field": "v", "type": "int64", "name": "io.debezium.time.MicroTime"}, "mysql"),
}


def random_leaves(count: int) -> Iterator[str]:
    """Yield leaves of the kinds that connectors write."""
    pick = random.Random(7)
    for _ in range(count):
        size = pick.randrange(1, 18)
        number = pick.randrange(-(10**size), 10**size)
        yield str(number)
        yield json.dumps(str(Decimal(number).scaleb(-pick.randrange(0, 5))))
        yield repr(pick.uniform(-1, 1) * 10 ** pick.randrange(-10, 20))
        yield json.dumps("".join(pick.choice('ab1é☃"\\\n😀 ') for _ in range(pick.randrange(0, 8))), ensure_ascii=pick.random() < 0.5)


LEAVES += random_leaves(50)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("leaves") / "leaves.jsonl"
    path.write_text("".join(f'{{"i": {number}, "v": {leaf}}}\n' for number, leaf in enumerate(LEAVES)), encoding="utf-8")
    return path


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_leaf_is_read_as_spark_reads_it_or_handed_over(spark: SparkSession, file: Path, rule: ColumnType) -> None:
    assert rule.native
    lines = spark.read.text(str(file)).selectExpr("value AS __cdc_raw", "CAST(NULL AS STRING) AS __cdc_raw_key")
    parsed = lines.selectExpr("__cdc_raw", "__cdc_raw_key", f"{parse_line('i STRING, v STRING')} AS line")
    expected = {int(row["i"]): row["v"] for row in parsed.selectExpr("line.i AS i", f"{rule.read('line.v')} AS v").collect()}
    columns = "{i: 'BIGINT', v: 'JSON'}"
    read = f"SELECT i, CAST(v AS VARCHAR) AS leaf FROM read_json('{file}', format = 'newline_delimited', columns = {columns})"
    with duckdb.connect() as connection:
        found = dict(connection.execute(f"SELECT i, {rule.native('leaf')} FROM ({read})").fetchall())
    wrong = [(LEAVES[i], value, expected[i]) for i, value in found.items() if value is not None and not _same(value, expected[i])]
    assert wrong == []
    assert sum(value is not None for value in found.values()) > 1, "nothing is read"


def _same(found: Any, expected: Any) -> bool:
    if expected is None:
        return False
    if hasattr(expected, "tzinfo") and expected.tzinfo is None and hasattr(found, "tzinfo"):
        return bool(found == expected)
    if isinstance(expected, bytearray):
        return bytes(expected) == bytes(found)
    # Of two zeros, one may be negative.
    return type(found) is type(expected) and bool(found == expected) and (not isinstance(found, float) or str(found) == str(expected))


def test_each_rule_has_leaves_that_it_reads() -> None:
    leaves: Sequence[str] = LEAVES
    assert len(set(leaves)) > 100
