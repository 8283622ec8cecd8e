"""Every Connect type but decimals, value by value, against Python's own datetime: the exact value, or NULL for what does not fit."""

from __future__ import annotations

import base64
import math
import random
import struct
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.decode.types.connect_types import STRING, ColumnType, cast_to, column_type
from tests.support.column_values import GARBAGE, read, semantic


def test_bytes_come_back_as_they_were(session: SparkSession) -> None:
    values = [b"", b"\0", b"\xff" * 3, bytes(range(256)), b"text"]
    texts = [base64.b64encode(value).decode() for value in values]
    found = read(session, {"b": column_type({"type": "bytes"}, "sqlserver"), "cast": cast_to("BINARY")}, [*texts, "!!!", None])
    for name in ("b", "cast"):
        assert [bytes(found[name][text]) for text in texts] == values
        assert (found[name]["!!!"], found[name][None]) == (None, None)


def test_a_date_is_a_count_of_days(session: SparkSession) -> None:
    days = [0, 1, -1, 59, 60, 11_016, -25_567, 18_000, 7_000, -141_427, -719_162, 2_932_896]
    rules = {name: semantic(name, "int32") for name in ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")}
    # The year before the first, the one behind the last, and what PostgreSQL's connector makes of infinity.
    beyond = ["-719163", "2932897", "35804721", "-2147472692", "-622191234"]
    found = read(session, rules, [*map(str, days), *beyond, *GARBAGE, None, "2147483648", "1.5", "2020-01-01"])
    epoch = date(1970, 1, 1).toordinal()
    for name in rules:
        assert {text: value for text, value in found[name].items() if value} == {str(n): date.fromordinal(epoch + n) for n in days}
    assert found["io.debezium.time.Date"]["-719162"] == date(1, 1, 1)
    assert found["io.debezium.time.Date"]["2932896"] == date(9999, 12, 31)


EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time, as DATETIME2 is
MIN_MICROS = (datetime.min - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ901
MAX_MICROS = (datetime.max - EPOCH) // timedelta(microseconds=1)  # noqa: DTZ901


@pytest.mark.parametrize(
    ("names", "micros_per_unit"),
    [
        (("io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"), 1000),
        (("io.debezium.time.MicroTimestamp",), 1),
    ],
)
def test_a_timestamp_is_a_local_time_before_and_after_1970(names: tuple[str, ...], micros_per_unit: int, session: SparkSession) -> None:
    first, last = -(-MIN_MICROS // micros_per_unit), MAX_MICROS // micros_per_unit
    counts = [first, first + 1, -86_400_000, -1001, -1000, -999, -1, 0, 1, 999, 1000, 1_559_729_468_470, last - 1, last]
    rules = {name: semantic(name) for name in names}
    assert {rule.sql_type for rule in rules.values()} == {"TIMESTAMP_NTZ"}
    beyond = ["9223372036854775808", "-9223372036854775809", "9223372036854775807", "-9223372036854775808", str(first - 1), str(last + 1)]
    infinities = ["9223372036825200000", "-9223372036832400000"]

    found = read(session, rules, [*map(str, counts), *beyond, *infinities, *GARBAGE, "1.5", "2019-06-05T10:11:08Z", None])

    for name in names:
        values = {text: value for text, value in found[name].items() if value is not None}
        assert values == {str(count): EPOCH + timedelta(microseconds=count * micros_per_unit) for count in counts}
    assert found[names[0]][str(first)].date() == date(1, 1, 1)
    assert found[names[0]][str(last)].date() == date(9999, 12, 31)


def test_a_nano_timestamp_keeps_its_nine_digits_as_text(session: SparkSession) -> None:
    counts = [0, 1, -1, 999_999_999, 1_000_000_000, -1_000_000_000, -1_000_000_001, 1_559_729_468_470_123_400, 2**63 - 1, -(2**63)]
    counts += [-999_999_999, 946_684_799_999_999_999, -62_135_596_800]
    rule = semantic("io.debezium.time.NanoTimestamp")
    found = read(session, {"n": rule}, [*map(str, counts), *GARBAGE, str(2**63), "1.5", None])["n"]

    def expected(count: int) -> str:
        seconds, nanos = divmod(count, 10**9)
        return f"{EPOCH + timedelta(seconds=seconds)}.{nanos:09d}"

    assert {text: value for text, value in found.items() if value is not None} == {str(count): expected(count) for count in counts}
    assert found["1559729468470123400"] == "2019-06-05 10:11:08.470123400"
    assert found["-1"] == "1969-12-31 23:59:59.999999999"
    # Its text is what a reader casts to a timestamp, but for the last three digits.
    (cast,) = session.sql(f"SELECT CAST('{found['1559729468470123400']}' AS TIMESTAMP_NTZ)").collect()
    assert cast[0] == datetime(2019, 6, 5, 10, 11, 8, 470_123)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("names", "digits"),
    [
        (("io.debezium.time.Time", "org.apache.kafka.connect.data.Time"), 3),
        (("io.debezium.time.MicroTime",), 6),
        (("io.debezium.time.NanoTime",), 9),
    ],
)
def test_a_time_of_day_keeps_its_digits_and_may_be_the_days_end(names: tuple[str, ...], digits: int, session: SparkSession) -> None:
    unit = 10**digits
    counts = [0, 1, unit - 1, unit, 59 * unit, 60 * unit, 3600 * unit - 1, 3600 * unit, 45_296 * unit + 7, 86_400 * unit - 1, 86_400 * unit]
    rules = {name: semantic(name, "int32" if digits == 3 else "int64") for name in names}
    found = read(session, rules, [*map(str, counts), "-1", str(-unit), str(2**63), *GARBAGE, "1.5", "12:00:00", None])

    def expected(count: int) -> str:
        seconds, fraction = divmod(count, unit)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"

    for name in names:
        values = {text: value for text, value in found[name].items() if value is not None}
        assert values == {str(count): expected(count) for count in counts}
        assert values[str(86_400 * unit)] == "24:00:00." + "0" * digits
        assert values[str(45_296 * unit + 7)] == "12:34:56." + "7".zfill(digits)


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
def test_mysqls_time_is_a_span_too(connector: str, session: SparkSession) -> None:
    rule = semantic("io.debezium.time.MicroTime", connector=connector)
    texts = {
        "0": "00:00:00.000000",
        "-577707000000": "-160:28:27.000000",
        "3020399999999": "838:59:59.999999",
        "-3020399000000": "-838:59:59.000000",
        "-1": "-00:00:00.000001",
        str(-(2**63)): None,
        "x": None,
        None: None,
    }
    assert read(session, {"t": rule}, list(texts))["t"] == texts


def test_huawei_cdls_types_go_by_their_names_behind_any_vendors(session: SparkSession) -> None:
    rules = {vendor: semantic(f"{vendor}.cdc.data.timestamp", "string") for vendor in ("com.xxx", "com.huawei")}
    texts = ["2024-01-02 00:01:01.007", "2024-01-02 00:01:01.007123", "2024-01-02 00:01:01.0071234", "1704153661007", "x", None]
    found = read(session, rules, texts)
    for vendor in rules:
        assert [found[vendor][text] for text in texts] == [*map(datetime.fromisoformat, texts[:2]), None, None, None, None]  # type: ignore[arg-type]
    # Its scale is not known.
    assert semantic("com.xxx.cdc.data.Decimal", "string") is STRING


def test_a_zoned_timestamp_is_an_instant_for_postgresql(session: SparkSession) -> None:
    rule = semantic("io.debezium.time.ZonedTimestamp", "string", "postgresql")
    assert rule.sql_type == "TIMESTAMP"
    instants = {
        "2019-06-05T10:11:08Z": 1_559_729_468_000_000,
        "2019-06-05T10:11:08.47Z": 1_559_729_468_470_000,
        "2019-06-05T10:11:08.123456Z": 1_559_729_468_123_456,
        "2019-06-05T10:11:08.123456+02:00": 1_559_722_268_123_456,
        "2019-06-05T10:11:08.123456-09:30": 1_559_763_668_123_456,
        "1969-12-31T23:59:59.999999Z": -1,
        "0001-01-01T00:00:00Z": MIN_MICROS,
        "9999-12-31T23:59:59.999999Z": MAX_MICROS,
    }
    # A bare year and a bare time of day are no instants, though a cast would make some of them.
    misfits = [*GARBAGE, None, "2020", "18000", "12:34:56", "T12:34:56Z", "1559729468470", "infinity", "-infinity", "2019-13-01T00:00:00Z"]
    misfits += ["+99999-12-31T00:00:00.000000Z", "10000-01-01T00:00:00Z", "0000-12-30T00:00:00.000000Z", "-0043-03-15T00:00:00.000000Z"]
    found = read(session, {"z": rule}, [*instants, *misfits], "unix_micros({})")["z"]
    assert {text: value for text, value in found.items() if value is not None} == instants


def test_a_time_shorter_than_a_microsecond_does_not_fit_a_timestamp(session: SparkSession) -> None:
    """It was cut: two values that differ in the source became one."""
    rules = {kind: cast_to(kind) for kind in ("TIMESTAMP", "TIMESTAMP_NTZ")}
    rules["zoned"] = semantic("io.debezium.time.ZonedTimestamp", "string", "db2")
    fit = ["2024-01-01T00:00:00.123456", "2024-01-01T00:00:00.123456000", "2024-01-01 00:00:00.1234560Z", "2024-01-01T00:00:00.000000000Z"]
    cut = ["2024-01-01T00:00:00.123456789Z", "2024-01-01 00:00:00.0000001", "2024-01-01T00:00:00.1234560001+02:00"]
    found = read(session, rules, [*fit, *cut])
    for kind in rules:
        assert [text for text, value in found[kind].items() if value is not None] == fit


@pytest.mark.parametrize("connector", ["sqlserver", "oracle"])
def test_a_zoned_timestamp_stays_text_where_it_has_an_offset_and_more_than_six_digits(connector: str, session: SparkSession) -> None:
    rule = semantic("io.debezium.time.ZonedTimestamp", "string", connector)
    texts = ["2019-06-05T10:11:08.1234567+02:00", "2024-01-01T00:00:00.123456789Z", "2019-06-05T10:11:08Z", "anything", ""]
    assert rule.checked is False
    assert read(session, {"z": rule}, texts)["z"] == {text: text for text in texts}


def test_integers_fit_their_width_or_not_at_all(session: SparkSession) -> None:
    widths = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
    rules = {name: column_type({"type": name}, "sqlserver") for name in widths}
    assert [rule.sql_type for rule in rules.values()] == ["TINYINT", "SMALLINT", "INT", "BIGINT"]
    bounds = sorted({sign * 2**bits + step for bits in (7, 15, 31, 63) for sign in (1, -1) for step in (-1, 0, 1)} | {0, 1, -1})
    found = read(session, rules, [*map(str, bounds), *GARBAGE, "1.0", "1.5", "1e2", "NaN", "true", str(10**40), None])
    for name, bits in widths.items():
        values = {text: value for text, value in found[name].items() if value is not None}
        assert values == {str(n): n for n in bounds if -(2 ** (bits - 1)) <= n < 2 ** (bits - 1)}


def test_floating_point_numbers_come_back_bit_by_bit_with_nan_and_infinity(session: SparkSession) -> None:
    generator = random.Random(7)
    doubles = [generator.uniform(-1, 1) * 10 ** generator.randint(-300, 300) for _ in range(50)]
    doubles += [0.0, -0.0, 1.0, 0.1, 5e-324, 1.7976931348623157e308, float(2**53 + 1)]
    singles = [struct.unpack("f", struct.pack("f", value))[0] for value in (0.1, 3.4028234663852886e38, 1.401298464324817e-45, -2.5)]
    special = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    literals = {name: column_type({"type": name}, "sqlserver") for name in ("double", "float64", "float", "float32")}
    assert [rule.sql_type for rule in literals.values()] == ["DOUBLE", "DOUBLE", "FLOAT", "FLOAT"]

    found = read(session, literals, [*map(repr, [*doubles, *singles]), *special, *(set(GARBAGE) - {"0x10"}), "true", None])

    def bits(value: float | None) -> bytes | None:
        return None if value is None else struct.pack("d", value)

    for name in ("double", "float64"):
        assert [bits(found[name][repr(value)]) for value in doubles] == [bits(value) for value in doubles]
    for name in ("float", "float32"):
        assert [bits(found[name][repr(value)]) for value in singles] == [bits(value) for value in singles]
    for name in literals:
        assert [str(found[name][text]) for text in special] == [str(value) for value in special.values()]
        assert {found[name][text] for text in (*(set(GARBAGE) - {"0x10"}), "true", None)} == {None}


def test_booleans(session: SparkSession) -> None:
    found = read(session, {"b": column_type({"type": "boolean"}, "sqlserver")}, ["true", "false", None, *GARBAGE, "2", "maybe"])["b"]
    assert {text: value for text, value in found.items() if value is not None} == {"true": True, "false": False}


def test_texts_and_nested_values_are_kept_letter_by_letter(session: SparkSession) -> None:
    texts = ["", " ", "null", "é😀", '{"a": [1, 2.50]}', "[]", "1.10", "__debezium_unavailable_value"]
    rules = {name: column_type({"type": name}, "sqlserver") for name in ("string", "array", "map", "struct")}
    rules["xml"] = semantic("io.debezium.data.Xml", "string")
    rules["point"] = semantic("io.debezium.data.geometry.Point", "struct")
    found = read(session, rules, [*texts, None])
    for name, rule in rules.items():
        assert rule.checked is False, name
        assert found[name] == {None: None, **{text: text for text in texts}}


def test_an_array_s_elements_are_read_each_by_the_rule_of_their_type(session: SparkSession) -> None:
    def array(literal: str, name: str | None = None, **parameters: str) -> ColumnType:
        items = {"type": literal, "name": name, "optional": True, "parameters": parameters}
        return column_type({"type": "array", "field": "f", "items": items}, "postgresql")

    decimal = "org.apache.kafka.connect.data.Decimal"
    numbers = array("bytes", decimal, **{"scale": "2", "connect.decimal.precision": "10"})
    rules = {
        "int": array("int32"),
        "letters": array("string"),
        "number": numbers,
        "whole": array("bytes", decimal, **{"scale": "0", "connect.decimal.precision": "10"}),
        "day": array("int32", "io.debezium.time.Date"),
        "bytes": array("bytes"),
        "nested": column_type({"type": "array", "items": {"type": "array", "items": {"type": "int64"}}}, "postgresql"),
        "declared": cast_to("ARRAY<DECIMAL(4,1)>"),
    }
    texts = [
        "[1,null,-2]",
        "[]",
        '["99FE",null]',
        "[1234]",
        '["1234"]',
        "[12.5]",
        "[12.55]",
        "[2147483648]",
        '["a\\"b",""]',
        "[[1],[],null]",
        "x",
    ]
    found = read(session, rules, [*texts, None])
    assert {name: values["[]"] for name, values in found.items()} == {name: [] for name in rules}
    assert {(name, text) for name, values in found.items() for text in ("x", None) if values[text] is not None} == set()
    assert [found["int"][text] for text in texts[:1] + texts[5:8]] == [[1, None, -2], None, None, None]
    assert found["letters"]['["a\\"b",""]'] == ['a"b', ""]
    assert found["letters"]["[1,null,-2]"] == ["1", None, "-2"]
    # A number of four digits is base64 too: the array's quotes show it.
    unscaled = int.from_bytes(base64.b64decode("1234"), "big", signed=True)
    assert [found["number"][text] for text in texts[2:7]] == [
        [Decimal("-5362.52"), None], [Decimal("1234.00")], [Decimal(unscaled).scaleb(-2)], [Decimal("12.50")], [Decimal("12.55")]
    ]  # fmt: skip
    assert [found["whole"][text] for text in ("[1234]", '["1234"]', "[12.5]")] == [[Decimal(1234)], [Decimal(unscaled)], None]
    assert found["day"]["[1,null,-2]"] == [date(1970, 1, 2), None, date(1969, 12, 30)]
    assert found["bytes"]['["99FE",null]'] == [base64.b64decode("99FE"), None]
    assert found["nested"]["[[1],[],null]"] == [[1], [], None]
    assert [found["declared"][text] for text in ("[12.5]", "[12.55]", "[1234]")] == [[Decimal("12.5")], None, None]


def test_a_semantic_type_without_rule_is_read_by_its_literal_type() -> None:
    assert semantic("io.debezium.time.Year", "int32").sql_type == "INT"
    assert semantic("io.debezium.data.Bits", "bytes").sql_type == "BINARY"
    assert semantic("io.debezium.data.Enum", "string") is STRING
    assert column_type({"type": "int32", "name": None}, "sqlserver").sql_type == "INT"


def test_a_number_is_no_calendar_date_though_spark_takes_it_for_a_year(session: SparkSession) -> None:
    # 18000 is how a connector writes 2019-04-14; the cast alone would answer 18000-01-01.
    rules = {kind: cast_to(kind) for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")}
    numbers = ["18000", "7000", "2020", "-2020", "1559729468470", "1559729468470123", "20200101", "12:34:56", "2020-01"]
    found = read(session, rules, [*numbers, *GARBAGE, None], "CAST({} AS STRING)")
    for kind in rules:
        assert {text: value for text, value in found[kind].items() if value is not None} == {}, kind

    dates = read(
        session, {"d": rules["DATE"]}, ["2019-04-14", "0001-01-01", "9999-12-31", "2019-04-31", "2019-04-14 01:00:00", "2019-4-1"]
    )["d"]
    assert dates == {
        "2019-04-14": date(2019, 4, 14),
        "0001-01-01": date(1, 1, 1),
        "9999-12-31": date(9999, 12, 31),
        "2019-4-1": date(2019, 4, 1),
        "2019-04-31": None,
        # Its hour would be lost.
        "2019-04-14 01:00:00": None,
    }
    times = ["2019-04-14T01:02:03.456789", "2019-04-14 01:02:03", "2019-04-14"]
    local = read(session, {"t": rules["TIMESTAMP_NTZ"]}, times)["t"]
    assert [local[text] for text in times] == [datetime.fromisoformat(text) for text in times]
    instants = read(session, {"t": rules["TIMESTAMP"]}, ["2019-04-14T01:00:00Z", "2019-04-14T03:00:00+02:00"], "unix_micros({})")["t"]
    assert set(instants.values()) == {1_555_203_600_000_000}
