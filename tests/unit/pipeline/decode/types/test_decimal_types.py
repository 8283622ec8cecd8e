"""Every decimal, digit by digit, against Python's own: the exact value, its text, or NULL for what does not fit."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from decimal import Decimal, localcontext

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, cast_to, column_type
from tests.support.column_values import GARBAGE, read, semantic


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
    # decimal.format=NUMERIC; 1234 is also the base64 of three bytes: the quotes in the line show it.
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
