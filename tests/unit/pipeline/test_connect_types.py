"""Every Connect type, value by value, against Python's own decimal and datetime: the exact value, or NULL for what does not fit."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.pipeline.decode.connect_types import STRING, ColumnType, cast_to, column_type
from airflow_cdc.pipeline.session import session_for_batch

GARBAGE = ("", " ", "x", "null", "1.5.2", "--1", "{}", "[1]", "0x10", "１２", "1 2", "1,5")


@pytest.fixture(scope="module", params=["interpreted", "compiled"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """The sessions of a small and of a large batch: Spark evaluates their expressions with different code."""
    return session_for_batch(spark, batch_bytes=1 if request.param == "interpreted" else 2**20)


def read(
    session: SparkSession, rules: Mapping[str, ColumnType], texts: Sequence[str | None], as_sql: str = "{}"
) -> dict[str, dict[str | None, Any]]:
    """Return by rule and text the value that the rule reads; ``as_sql`` says in what form to fetch it."""
    frame = session.createDataFrame([(text, None, None) for text in texts], f"text STRING, {RAW} STRING, {RAW_KEY} STRING")
    fetched = [f"{as_sql.format(rule.read('text'))} AS `{name}`" for name, rule in rules.items()]
    rows = frame.selectExpr("text", *fetched).collect()
    types = dict(frame.selectExpr(*[f"{rule.read('text')} AS `{name}`" for name, rule in rules.items()]).dtypes)
    assert types == {name: rule.sql_type.lower() for name, rule in rules.items()}
    return {name: {row["text"]: row[name] for row in rows} for name in rules}


def semantic(name: str, literal: str = "int64", connector: str = "sqlserver", **more: Any) -> ColumnType:
    return column_type({"type": literal, "name": name, "optional": True, "field": "f", **more}, connector)


def decimal(scale: int, precision: int | None = None) -> ColumnType:
    parameters = {"scale": str(scale)} | ({"connect.decimal.precision": str(precision)} if precision else {})
    return semantic("org.apache.kafka.connect.data.Decimal", "bytes", parameters=parameters)


def encoded(number: int, size: int | None = None) -> str:
    """Return a number as Java's ``BigInteger.toByteArray`` and the JSON converter write it; wider than needed where asked."""
    width = size or (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(width, "big", signed=True)).decode()


MAX = 10**38 - 1


def unscaled_numbers() -> list[int]:
    edges = [0, 1, 5, 10, 99, 100, 12_345, 10**10, 10**18, 10**19, 10**34, 10**37, MAX, MAX + 1, 2**127 - 1]
    edges += [2**bits + step for bits in (7, 8, 15, 16, 31, 32, 63, 64, 65, 100, 112, 119, 120, 126) for step in (-1, 0, 1)]
    generator = random.Random(5)
    edges += [generator.randrange(10 ** generator.randint(1, 38)) for _ in range(150)]
    return sorted({*edges, *(-edge for edge in edges), -(2**127)})


@pytest.mark.parametrize(
    ("scale", "precision", "sql_type"),
    [
        (0, 38, "DECIMAL(38,0)"),
        (2, 38, "DECIMAL(38,2)"),
        (4, 19, "DECIMAL(19,4)"),
        (38, 38, "DECIMAL(38,38)"),
        (2, 10, "DECIMAL(10,2)"),
        (0, 1, "DECIMAL(1,0)"),
        (4, None, "DECIMAL(38,4)"),
        # What other databases have and Spark has not: a scale above the precision or below zero.
        (5, 2, "DECIMAL(5,5)"),
        (-2, 5, "DECIMAL(7,0)"),
        (-2, 36, "DECIMAL(38,0)"),
    ],
)
def test_a_decimal_is_exact_in_all_its_digits_or_null(scale: int, precision: int | None, sql_type: str, session: SparkSession) -> None:
    rule = decimal(scale, precision)
    assert rule.sql_type == sql_type
    digits, places = (int(part) for part in sql_type[8:-1].split(","))
    numbers = unscaled_numbers()

    found = read(session, {"d": rule}, [encoded(number) for number in numbers], "CAST({} AS STRING)")["d"]

    def expected(number: int) -> str | None:
        with localcontext() as context:
            context.prec = 100
            value = Decimal(number).scaleb(-scale)
            return f"{value:.{places}f}" if abs(value) <= Decimal(10**digits - 1).scaleb(-places) else None

    assert {number: found[encoded(number)] for number in numbers} == {number: expected(number) for number in numbers}
    assert any(expected(number) for number in numbers if number < 0)


def test_a_decimal_may_have_more_bytes_than_it_needs_up_to_sixteen(session: SparkSession) -> None:
    sizes = range(1, 20)
    texts = {(number, size): encoded(number, size) for number in (0, 5, 127, -1, -128) for size in sizes}
    found = read(session, {"d": decimal(2, 10)}, list(texts.values()), "CAST({} AS STRING)")["d"]
    for (number, size), text in texts.items():
        assert found[text] == (f"{Decimal(number).scaleb(-2):.2f}" if size <= 16 else None), (number, size)


def numeral(number: int, scale: int) -> str:
    with localcontext() as context:
        context.prec = 3000
        return f"{Decimal(number).scaleb(-scale):.{max(scale, 0)}f}"


@pytest.mark.parametrize(("scale", "precision"), [(0, 65), (30, 65), (2046, 5), (-2, 38), (40, None)])
def test_a_decimal_that_no_column_of_spark_holds_is_the_text_of_all_its_digits(
    scale: int, precision: int | None, session: SparkSession
) -> None:
    rule = decimal(scale, precision)
    assert rule.sql_type == "STRING"
    numbers = [*unscaled_numbers()[::7], *(sign * 10**digits + step for digits in (38, 40, 65) for sign in (1, -1) for step in (-1, 0, 1))]
    numbers += [2**bits * sign for bits in (119, 120, 127, 128, 143, 144, 1000) for sign in (1, -1)]
    found = read(session, {"d": rule}, [encoded(number) for number in numbers])["d"]
    assert {number: found[encoded(number)] for number in numbers} == {number: numeral(number, scale) for number in numbers}


def test_a_decimal_of_varying_scale_is_the_text_of_its_digits(session: SparkSession) -> None:
    numbers = [(0, 0), (0, 2), (0, -3), (5, 0), (-5, 1), (150, 2), (-939_091_500, 0), (1, 6), (7, -3), (10**40 - 1, 0), (-(10**40), 38)]
    texts = {(number, scale): json.dumps({"scale": scale, "value": encoded(number)}) for number, scale in numbers}
    bad = ["", "x", "null", "{}", '{"scale":0}', '{"scale":0,"value":""}', '{"scale":0,"value":"!"}', '{"value":"AQ=="}', None]
    found = read(session, {"v": semantic("io.debezium.data.VariableScaleDecimal", "struct")}, [*texts.values(), *bad])["v"]
    assert {pair: found[text] for pair, text in texts.items()} == {(n, scale): numeral(n, scale) for n, scale in numbers if scale >= 0} | {
        (0, -3): "0",
        (7, -3): "7000",
    }
    assert {found[text] for text in bad} == {None}


def test_a_decimal_may_come_as_a_number(session: SparkSession) -> None:
    # decimal.format=NUMERIC; 1234 is also the base64 of three bytes: the quotes in the line tell.
    rules = {"f": decimal(2, 10), "whole": decimal(0, 20), "long": decimal(2, 65)}
    numbers = ["0.00", "-0.01", "1973.70", "-12345678.90", "1", "12345", "-5"]
    found = read(session, rules, [*numbers, "0E-10", "1.005", "123456789012.00", "1e3"], "CAST({} AS STRING)")
    assert [found["f"][text] for text in numbers] == ["0.00", "-0.01", "1973.70", "-12345678.90", "1.00", "12345.00", "-5.00"]
    assert (found["f"]["0E-10"], found["f"]["1.005"], found["f"]["123456789012.00"], found["f"]["1e3"]) == ("0.00", None, None, "1000.00")
    assert [found["long"][text] for text in numbers] == numbers
    assert found["whole"]["12345"] == "12345"

    lines = {
        '{"f":1234}': "1234",
        '{"f": 1234}': "1234",
        '{"f":"1234"}': str(0xD76DF8 - 2**24),
        '{"g":1234,"f":"1234"}': str(0xD76DF8 - 2**24),
    }
    frame = session.createDataFrame([("1234", line, None) for line in lines], f"text STRING, {RAW} STRING, {RAW_KEY} STRING")
    rows = frame.selectExpr(RAW, f"CAST({rules['whole'].read('text')} AS STRING) AS value").collect()
    assert {row[RAW]: row["value"] for row in rows} == lines


def test_what_is_no_base64_and_no_number_is_no_decimal_and_no_bytes(session: SparkSession) -> None:
    texts = [None, " ", "!", "!!!!", "A", "AAAAA", "=", "AA=A", "A===", "á"]
    found = read(session, {"d": decimal(0, 38), "b": column_type({"type": "bytes"}, "sqlserver")}, texts, "CAST({} AS STRING)")
    assert {text: value for text, value in found["d"].items() if value is not None} == {}
    # No bytes at all are bytes, but no number.
    none = read(session, {"d": decimal(0, 38), "b": column_type({"type": "bytes"}, "sqlserver")}, [""], "hex(CAST({} AS STRING))")
    assert (none["d"][""], none["b"][""]) == (None, "")


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
    found = read(session, rules, [*map(str, days), *GARBAGE, None, "2147483648", "1.5", "2020-01-01"])
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
    beyond = ["9223372036854775808", "-9223372036854775809"] + (
        ["9223372036854775807", "-9223372036854775808"] if micros_per_unit > 1 else []
    )

    found = read(session, rules, [*map(str, counts), *beyond, *GARBAGE, "1.5", "2019-06-05T10:11:08Z", None])

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
    # Nothing tells its scale.
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
    found = read(session, {"z": rule}, [*instants, *misfits], "unix_micros({})")["z"]
    assert {text: value for text, value in found.items() if value is not None} == instants


def test_a_zoned_timestamp_stays_text_for_sql_server_because_it_has_an_offset_and_seven_digits(session: SparkSession) -> None:
    rule = semantic("io.debezium.time.ZonedTimestamp", "string", "sqlserver")
    texts = ["2019-06-05T10:11:08.1234567+02:00", "2019-06-05T10:11:08Z", "anything", ""]
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


def test_a_semantic_type_without_rule_is_read_by_its_literal_type() -> None:
    assert semantic("io.debezium.time.Year", "int32").sql_type == "INT"
    assert semantic("io.debezium.data.Bits", "bytes").sql_type == "BINARY"
    assert semantic("io.debezium.data.Enum", "string") is STRING
    assert column_type({"type": "int32", "name": None}, "sqlserver").sql_type == "INT"


def exact(places: int, digits: int) -> Callable[[str], Decimal | None]:
    """Return what a DECIMAL column holds of a number's text: all of it or nothing."""

    def value(text: str) -> Decimal | None:
        with localcontext() as context:
            context.prec = 200
            number = Decimal(text)
            fits = number == round(number, places) and abs(number) <= Decimal(10**digits - 1).scaleb(-places)
            return round(number, places) if fits else None

    return value


def test_a_number_that_a_decimal_column_would_round_does_not_fit_it(session: SparkSession) -> None:
    texts = ["0", "-0", "0.0", "1", "-1", "1.5", "1.50", "1.500000000000000000000000000000000000000000", "1.05", "1.239", "0.005"]
    texts += ["1e3", "1E+3", "1.5E1", "1.234E2", "1.5E-1", "1.5E-3", "12E-2", "1E-7", "0E-8", "0.00E-5", "-0.0e9", "99999999.99"]
    texts += ["100000000", "99999999.994", "9" * 38, "9" * 39, "-" + "9" * 38, "." + "0" * 37 + "1", ".5", "5.", "+7", "1E50"]
    rules = {kind: cast_to(kind) for kind in ("DECIMAL(38,0)", "DECIMAL(10,2)", "DECIMAL(38,38)", "DECIMAL(3, 1)")}
    found = {}
    for kind, rule in rules.items():
        frame = session.createDataFrame([(text,) for text in [*texts, *GARBAGE, "NaN"]], "text STRING")
        found[kind] = {row["text"]: row["value"] for row in frame.selectExpr("text", f"{rule.read('text')} AS value").collect()}
    for kind, (digits, places) in {
        "DECIMAL(38,0)": (38, 0),
        "DECIMAL(10,2)": (10, 2),
        "DECIMAL(38,38)": (38, 38),
        "DECIMAL(3, 1)": (3, 1),
    }.items():
        assert {text: found[kind][text] for text in texts} == {text: exact(places, digits)(text) for text in texts}, kind
        # Java reads the digits of every script.
        assert {text for text in (*GARBAGE, "NaN") if found[kind][text] is not None} <= {"１２"}


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
