"""What document columns read out of extended JSON: every spelling of a value, every path."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from math import inf, isnan, nan
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from airflow_cdc.model.flow.document_columns import document_columns
from airflow_cdc.pipeline.target.document_columns import with_document_columns


def flatten(spark: SparkSession, document: str, setting: dict[str, Any]) -> Row:
    rows = spark.createDataFrame([(document,)], "document STRING")
    columns = document_columns(setting)
    (row,) = with_document_columns(rows, columns).select(*[f"`{name.replace('`', '``')}`" for name in columns]).collect()
    return row


LONG = 2**63 - 1
UUID = "7b226c6f-6e67-4a5b-8c9d-0e1f2a3b4c5d"
UUID_BASE64 = "eyJsb25nSluMnQ4fKjtMXQ=="
NOON = datetime(2021, 6, 1, 12, 0, 0, 5000)  # noqa: DTZ001

VALUES: list[tuple[str, str, Any]] = [
    # numbers, in all their spellings
    ("5", "INT", 5),
    ("5.0", "INT", 5),
    ("-0.0", "INT", 0),
    ("5.5", "INT", None),
    ("2147483648", "INT", None),
    ("NaN", "INT", None),
    ('"7"', "INT", 7),
    ('"x"', "INT", None),
    ('""', "INT", None),
    ("true", "INT", None),
    ("{}", "INT", None),
    ("[1]", "INT", None),
    ('{"$numberInt": "-3"}', "INT", -3),
    ('{"$numberLong": "3"}', "INT", 3),
    ('{"$numberDouble": "4.0"}', "BIGINT", 4),
    ('{"$numberDecimal": "1E+3"}', "BIGINT", 1000),
    ('{"$numberDecimal": "0.1"}', "BIGINT", None),
    ('{ "$numberLong" : "9223372036854775807" }', "BIGINT", LONG),
    ('{"$numberLong": "9223372036854775808"}', "BIGINT", None),
    ("9223372036854775807", "BIGINT", LONG),
    ("1.0E10", "BIGINT", 10**10),
    ("0.1", "DOUBLE", 0.1),
    ("NaN", "DOUBLE", nan),
    ("-Infinity", "DOUBLE", -inf),
    ('{"$numberDouble": "NaN"}', "DOUBLE", nan),
    ('{"$numberDouble": "Infinity"}', "DOUBLE", inf),
    ('{"$numberInt": "2"}', "DOUBLE", 2.0),
    ('{"$numberDecimal": "465.44"}', "DECIMAL(10,2)", Decimal("465.44")),
    ('{"$numberDecimal": "465.440"}', "DECIMAL(10,2)", Decimal("465.44")),
    ('{"$numberDecimal": "465.445"}', "DECIMAL(10,2)", None),
    ('{"$numberDecimal": "NaN"}', "DECIMAL(10,2)", None),
    ("1.25", "DECIMAL(4,2)", Decimal("1.25")),
    ('{"$numberDecimal": "99999999999999999999999999999999999999"}', "DECIMAL(38,0)", Decimal("9" * 38)),
    # booleans
    ("true", "BOOLEAN", True),
    ("false", "BOOLEAN", False),
    ("1", "BOOLEAN", None),
    ('"yes"', "BOOLEAN", None),
    # times
    ('{"$date": 1622548800005}', "TIMESTAMP", NOON),
    ('{"$date": {"$numberLong": "1622548800005"}}', "TIMESTAMP", NOON),
    ('{"$date": "2021-06-01T12:00:00.005Z"}', "TIMESTAMP", NOON),
    ('{"$date": "2021-06-01T14:00:00.005+02:00"}', "TIMESTAMP", NOON),
    ('{"$date": -1}', "TIMESTAMP", datetime(1969, 12, 31, 23, 59, 59, 999000)),  # noqa: DTZ001
    ('{"$date": 253402300800000}', "TIMESTAMP", None),
    ('{"$date": {"$numberLong": "9223372036854775807"}}', "TIMESTAMP", None),
    ('"2021-06-01T12:00:00.005Z"', "TIMESTAMP", NOON),
    ('"2021"', "TIMESTAMP", None),
    ("1622548800005", "TIMESTAMP", None),
    ('{"$date": 1622505600000}', "DATE", date(2021, 6, 1)),
    ('{"$date": 1622548800005}', "DATE", None),
    ('"2021-06-01"', "DATE", date(2021, 6, 1)),
    # bytes
    ('{"$binary": "AQID", "$type": "00"}', "BINARY", b"\x01\x02\x03"),
    ('{"$binary": {"base64": "AQID", "subType": "00"}}', "BINARY", b"\x01\x02\x03"),
    (f'{{"$uuid": "{UUID}"}}', "BINARY", bytes.fromhex(UUID.replace("-", ""))),
    ('{"$uuid": "12"}', "BINARY", None),
    ('"AQID"', "BINARY", None),
    # text: every value has one, the same in either mode
    ('"a \\u00e9 \\"b\\""', "STRING", 'a é "b"'),
    ('""', "STRING", ""),
    ("12", "STRING", "12"),
    ('{"$numberLong": "12"}', "STRING", "12"),
    ("NaN", "STRING", "NaN"),
    ('{"$oid": "596e275826f08b2730779e1f"}', "STRING", "596e275826f08b2730779e1f"),
    ('{"$date": 1622548800005}', "STRING", "2021-06-01T12:00:00.005Z"),
    ('{"$date": 253402300800000}', "STRING", '{"$date":253402300800000}'),
    (f'{{"$uuid": "{UUID}"}}', "STRING", UUID),
    (f'{{"$binary": "{UUID_BASE64}","$type": "04"}}', "STRING", UUID),
    (f'{{"$binary": {{"base64": "{UUID_BASE64}", "subType": "04"}}}}', "STRING", UUID),
    (f'{{"$binary": "{UUID_BASE64}","$type": "00"}}', "STRING", UUID_BASE64),
    ('{"$regex": "^a", "$options": "i"}', "STRING", '{"$regex":"^a","$options":"i"}'),
    ('{"b": {"c": NaN}, "a": [1, "x"]}', "STRING", '{"b":{"c":"NaN"},"a":[1,"x"]}'),
    ("true", "STRING", "true"),
]


def test_every_spelling_of_a_value_becomes_the_column_s_value_or_null(spark: SparkSession) -> None:
    document = "{" + ", ".join(f'"c{at}": {value}' for at, (value, _, _) in enumerate(VALUES)) + "}"
    row = flatten(spark, document, {f"c{at}": kind for at, (_, kind, _) in enumerate(VALUES)})

    read = [(value, kind, row[at]) for at, (value, kind, _) in enumerate(VALUES)]
    wrong = [seen for seen, (_, _, expected) in zip(read, VALUES, strict=True) if not same(seen[2], expected)]
    assert wrong == []


def same(seen: Any, expected: Any) -> bool:
    if isinstance(expected, float) and isnan(expected):
        return isinstance(seen, float) and isnan(seen)
    return type(seen) in (type(expected), bytearray) and bool(seen == expected)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("address", '{"city":"c","Zip":"z","geo":{"lat":1.5}}'),
        ("address.city", "c"),
        ("address.Zip", "z"),
        ("address.zip", None),
        ("address.geo.lat", "1.5"),
        ("address.city.name", None),
        ("address.0", None),
        ("items", '[{"sku":"A","parts":[[1,2],[3]]},{"sku":{"q":1}},5,[{"sku":"inner"}]]'),
        ("items.0.sku", "A"),
        ("items.1.sku", '{"q":1}'),
        ("items.1.sku.q", "1"),
        ("items.2", "5"),
        ("items.2.sku", None),
        ("items.3.sku", None),
        ("items.3.0.sku", "inner"),
        ("items.9.sku", None),
        ("items.sku", None),
        ("items.0.parts.0.1", "2"),
        ("$odd`na'me \\", "odd"),
        ("created.$date", "5"),
        ("nothing", None),
        ("none", None),
    ],
)
def test_paths_go_through_members_and_indexes_and_ask_for_nothing_else(path: str, expected: str | None, spark: SparkSession) -> None:
    assert flatten(spark, DOCUMENT, {"c": {"path": path, "type": "STRING"}}) == (expected,)


DOCUMENT = json.dumps(
    {
        "_id": 1,
        "address": {"city": "c", "Zip": "z", "geo": {"lat": 1.5}},
        "items": [{"sku": "A", "parts": [[1, 2], [3]]}, {"sku": {"q": 1}}, 5, [{"sku": "inner"}]],
        "$odd`na'me \\": "odd",
        "created": {"$date": 5},
        "none": None,
    }
)


def test_paths_that_one_look_cannot_answer_are_answered_beside_each_other(spark: SparkSession) -> None:
    paths = [
        "address",
        "address.city",
        "address.Zip",
        "address.zip",
        "items",
        "items.0.sku",
        "items.1.sku.q",
        "items.3.0.sku",
        "address.geo.lat",
    ]
    row = flatten(spark, DOCUMENT, {f"c {at}": {"path": path, "type": "STRING"} for at, path in enumerate(paths)})

    together = '{"city":"c","Zip":"z","geo":{"lat":1.5}}'
    items = '[{"sku":"A","parts":[[1,2],[3]]},{"sku":{"q":1}},5,[{"sku":"inner"}]]'
    assert tuple(row) == (together, "c", "z", None, items, "A", "1", "inner", "1.5")
