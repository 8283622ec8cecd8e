"""Which columns the values prove to be what the schema-change topic says, and which not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.decode.types.native_types import NativeType, native_type
from airflow_cdc.pipeline.decode.types.schema_topic_types import common_native, schema_topic_types
from airflow_cdc.pipeline.decode.types.seen_values import SeenValues, look_at_values

WHOLE, TEXT = frozenset({"whole"}), frozenset({"text"})


def maria(type_name: str, length: int | None = None, scale: int | None = None) -> NativeType:
    found = native_type("mariadb", type_name, length, scale)
    assert found
    return found


def sqlserver(type_name: str, length: int | None = None, scale: int | None = None) -> NativeType:
    found = native_type("sqlserver", type_name, length, scale)
    assert found
    return found


def whole(*values: int) -> SeenValues:
    return SeenValues(
        WHOLE,
        max(map(abs, values)),
        some_part_of_1000=any(value % 1000 for value in values),
        some_part_of_1000000=any(value % 10**6 for value in values),
        some_part_of_1000000000=any(value % 10**9 for value in values),
    )


def types(
    columns: dict[str, NativeType], seen: dict[str, SeenValues], connector: str = "mariadb", proven: tuple[str, ...] = ()
) -> dict[str, str]:
    return {name: rule.sql_type for name, rule in schema_topic_types(columns, seen, connector, proven=proven).items()}


@pytest.mark.parametrize(
    ("connector", "type_name", "length", "scale", "expected"),
    [
        ("mariadb", "INT UNSIGNED", 10, None, ("int64", None)),
        ("mariadb", "INT(10) UNSIGNED ZEROFILL", 10, None, ("int64", None)),
        ("mysql", "DATETIME", None, None, ("int64", "io.debezium.time.Timestamp")),
        ("mysql", "DATETIME", 3, None, ("int64", "io.debezium.time.Timestamp")),
        ("mysql", "DATETIME", 4, None, ("int64", "io.debezium.time.MicroTimestamp")),
        ("mysql", "TIME", None, None, ("int64", "io.debezium.time.MicroTime")),
        ("mysql", "BIT", 1, None, ("boolean", None)),
        ("mysql", "BIT", 9, None, ("bytes", None)),
        ("sqlserver", "int identity", 10, 0, ("int32", None)),
        ("sqlserver", "decimal() identity", 9, 0, ("bytes", "org.apache.kafka.connect.data.Decimal")),
        ("sqlserver", "datetime2", 27, 7, ("int64", "io.debezium.time.NanoTimestamp")),
        ("sqlserver", "time", 8, 0, ("int64", "io.debezium.time.Time")),
    ],
)
def test_a_native_type_is_the_field_that_the_connector_would_write(
    connector: str, type_name: str, length: int | None, scale: int | None, expected: tuple[str, str | None]
) -> None:
    found = native_type(connector, type_name, length, scale)
    assert found
    assert (found.type, found.name) == expected


@pytest.mark.parametrize(
    ("connector", "type_name", "length", "scale"),
    [
        ("mariadb", "GEOMETRY", None, None),
        ("mariadb", "FLOAT", 53, None),
        ("sqlserver", "datetime2", None, None),
        ("sqlserver", "decimal", None, None),
        ("postgresql", "integer", None, None),
    ],
)
def test_a_type_that_may_be_spelled_in_several_ways_is_not_known(
    connector: str, type_name: str, length: int | None, scale: int | None
) -> None:
    assert native_type(connector, type_name, length, scale) is None


def test_an_altered_column_is_known_where_one_rule_reads_it_before_and_after() -> None:
    assert common_native((maria("INT"), maria("BIGINT"))) == maria("BIGINT")
    assert common_native((maria("BIGINT"), maria("INT"))) == maria("BIGINT")
    assert common_native((maria("DECIMAL", 10, 2), maria("DECIMAL", 12, 2))) == maria("DECIMAL", 12, 2)
    assert common_native((maria("DATETIME"), maria("DATETIME", 3))) == maria("DATETIME", 3)


@pytest.mark.parametrize(
    "natives",
    [
        (maria("DECIMAL", 10, 2), maria("DECIMAL", 20, 4)),
        (maria("DECIMAL", 65, 2), maria("DECIMAL", 65, 4)),
        (maria("DATETIME", 3), maria("DATETIME", 6)),
        (maria("DATE"), maria("DATETIME")),
        (maria("INT"), maria("VARCHAR", 20)),
        (maria("INT"), maria("DOUBLE")),
        (sqlserver("time", None, 3), sqlserver("time", None, 7)),
        (maria("BIGINT UNSIGNED"), maria("DECIMAL", 20, 0)),
        (maria("INT"), None),
    ],
)
def test_an_altered_column_of_which_one_rule_does_not_read_all_values_is_not_known(natives: tuple[NativeType | None, ...]) -> None:
    assert common_native(natives) is None
    assert common_native(natives[::-1]) is None


MILLIS, MICROS, NANOS = 1_531_481_430_123, 1_531_481_430_123_456, 1_531_481_430_123_456_700


def test_times_are_known_where_the_values_rule_out_every_other_precision_mode() -> None:
    columns = {"seconds": maria("DATETIME"), "micros": maria("DATETIME", 6), "span": maria("TIME")}
    seen = {"seconds": whole(1_531_481_430_000), "micros": whole(MICROS), "span": whole(-30_000_000)}

    assert types(columns, seen) == {"seconds": "TIMESTAMP_NTZ", "micros": "TIMESTAMP_NTZ", "span": "STRING"}


@pytest.mark.parametrize(
    ("native", "values"),
    [
        pytest.param(maria("DATETIME", 6), whole(MILLIS), id="time.precision.mode=connect"),
        pytest.param(maria("DATETIME"), whole(1_531_481_430_000_000), id="microseconds"),
        pytest.param(maria("DATETIME", 6), whole(MICROS * 1000), id="nanoseconds"),
        pytest.param(maria("DATETIME", 6), whole(1_531_481_430_123_000), id="micros or nanos"),
        pytest.param(maria("DATETIME"), whole(1_531_481_000_000), id="millis or micros"),
        pytest.param(maria("TIME"), whole(30_000_000_000), id="micros or nanos of a span"),
        pytest.param(maria("DATETIME", 6), SeenValues(TEXT, some_no_numeral=True), id="isostring"),
        pytest.param(maria("DATE"), whole(MILLIS), id="no days"),
        pytest.param(maria("INT"), whole(2**31), id="too large"),
        pytest.param(maria("TINYINT", 1), SeenValues(frozenset({"boolean"})), id="a converter's boolean"),
        pytest.param(maria("VARCHAR", 20), SeenValues(frozenset({"text", "whole"})), id="mixed"),
        pytest.param(maria("TIMESTAMP"), SeenValues(TEXT, some_no_instant=True), id="no zone"),
        pytest.param(maria("BLOB"), SeenValues(TEXT), id="base64 or hexadecimal"),
        pytest.param(maria("BLOB"), SeenValues(TEXT, some_no_hex=True, some_no_base64=True), id="base64-url-safe"),
        pytest.param(maria("DECIMAL", 9, 0), SeenValues(TEXT), id="base64 or digits"),
        pytest.param(maria("DECIMAL", 9, 2), SeenValues(TEXT, some_no_base64=True), id="decimal.handling.mode=string"),
    ],
)
def test_what_the_values_do_not_prove_is_not_known(native: NativeType, values: SeenValues) -> None:
    assert types({"it": native}, {"it": values}) == {}


def test_a_time_is_known_by_what_another_column_or_an_earlier_microbatch_proved() -> None:
    columns = {"created": maria("DATETIME", 6), "changed": maria("DATETIME", 6)}
    unclear = {"created": whole(1_531_481_430_123_000)}

    assert types(columns, unclear) == {}
    assert types(columns, {**unclear, "changed": whole(MICROS)}) == {"created": "TIMESTAMP_NTZ", "changed": "TIMESTAMP_NTZ"}
    assert types(columns, unclear, proven=("changed",)) == {"created": "TIMESTAMP_NTZ"}


def test_what_was_proven_of_a_column_proves_nothing_of_modes_in_which_it_would_be_the_same() -> None:
    columns = {"old": maria("DATETIME"), "new": maria("DATETIME", 6)}
    of_sqlserver = {"old": sqlserver("datetime2", 27, 7), "new": sqlserver("time", 16, 7)}

    # In time.precision.mode=connect both are milliseconds.
    assert types(columns, {"new": whole(MILLIS)}, proven=("old",)) == {}
    assert types(columns, {"new": whole(MICROS)}, proven=("old",)) == {"new": "TIMESTAMP_NTZ"}
    assert types(of_sqlserver, {"new": whole(3_600_000_000)}, "sqlserver", proven=("old",)) == {}


def test_a_time_of_sql_server_needs_proof_against_adaptive_time_microseconds() -> None:
    columns = {"at": sqlserver("datetime2", 27, 7), "of_day": sqlserver("time", 16, 7)}

    assert types(columns, {"at": whole(NANOS), "of_day": whole(3_600_000_000)}, "sqlserver") == {"at": "STRING"}
    assert types(columns, {"at": whole(NANOS), "of_day": whole(43_200_000_000_100)}, "sqlserver") == {"at": "STRING", "of_day": "STRING"}


def test_decimals_are_base64_where_one_of_them_can_be_nothing_else() -> None:
    columns = {"amount": maria("DECIMAL", 10, 2), "count": maria("DECIMAL", 9, 0), "big": maria("BIGINT UNSIGNED")}
    base64 = SeenValues(TEXT, some_no_numeral=True, some_no_point=True)
    digits = SeenValues(TEXT, some_no_point=True)

    assert types(columns, {"count": digits}) == {}
    assert types(columns, {"amount": base64, "count": digits}) == {"amount": "DECIMAL(10,2)", "count": "DECIMAL(9,0)"}
    # In text mode 12.50 has its point: four digits without one are base64.
    assert types(columns, {"amount": digits}) == {"amount": "DECIMAL(10,2)"}
    assert types(columns, {"big": digits}) == {"big": "DECIMAL(20,0)"}
    assert types(columns, {"amount": SeenValues(frozenset({"whole", "fraction"}))}) == {"amount": "DECIMAL(10,2)"}


def test_values_are_seen_as_what_their_json_is(spark: SparkSession, tmp_path: Path) -> None:
    images = [
        ('{"n": 1531481430000, "f": 1.5, "t": "1234", "b": true, "o": {"x": 1}, "z": "2026-11-20T08:00:00Z", "nothing": null}',),
        ('{"n": -18446744073709551616, "f": 2.0, "t": "+w==", "b": null, "o": [1], "z": "2026-11-20T08:00:00.1+01:00"}',),
    ]

    found = look_at_values(
        spark.createDataFrame(images, "image string").selectExpr("try_parse_json(image) AS image"),
        ["n", "f", "t", "b", "o", "z", "nothing"],
    )

    assert {name: set(values.kinds) for name, values in found.items()} == {
        "n": {"whole"},
        "f": {"fraction"},
        "t": {"text"},
        "b": {"boolean"},
        "o": {"other"},
        "z": {"text"},
    }
    parts = {"some_part_of_1000": True, "some_part_of_1000000": True, "some_part_of_1000000000": True}
    numbers = SeenValues(WHOLE, 2**63 - 1, **parts, count=2, least=1531481430000, most=2**63 - 1)
    assert replace(found["n"], examples=()) == numbers
    assert {*found["n"].examples} == {"1531481430000", "-18446744073709551616"}
    texts = SeenValues(TEXT, some_no_numeral=True, some_no_point=True, some_no_hex=True, some_no_instant=True, some_padded=True)
    assert replace(found["t"], examples=()) == replace(texts, count=2, longest=4)
    assert not found["z"].some_no_instant
