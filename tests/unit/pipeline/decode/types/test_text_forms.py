"""One value has one text in a form, and the zeros that make it are exact; what would be cut does not fit."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, column_type, read_as
from airflow_cdc.pipeline.decode.types.text_forms import OWN_SCALE, TEXT, TIME, WHOLE, TextForm, common_form, form_of_type
from tests.support.column_values import read, semantic

TIMES = {3: "io.debezium.time.Time", 6: "io.debezium.time.MicroTime", 9: "io.debezium.time.NanoTime"}
NANOS = TextForm("TIMESTAMP_NTZ", 9)


def decimal(scale: int, precision: int) -> ColumnType:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return column_type({"field": "v", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}, "oracle")


@given(st.sampled_from(["TEXT", "TIME", "TIMESTAMP_NTZ", "DECIMAL"]), st.integers(0, 40))
def test_a_notation_is_read_as_its_form(kind: str, digits: int) -> None:
    assert TextForm.parse(str(TextForm(kind, digits))) == TextForm(kind, digits)


def test_what_is_no_notation_is_refused() -> None:
    with pytest.raises(ValueError, match="is no form"):
        TextForm.parse("TIME(6) or so")


@pytest.mark.parametrize(
    ("forms", "expected"),
    [
        ([TEXT, WHOLE], TEXT),
        ([WHOLE], WHOLE),
        ([TextForm(TIME, 3), TextForm(TIME, 9), TextForm(TIME, 6)], TextForm(TIME, 9)),
        ([WHOLE, TextForm("DECIMAL", 2)], TextForm("DECIMAL", 2)),
        ([TEXT, TextForm("DECIMAL", 2)], None),
        ([TEXT, TextForm(TIME, 3)], None),
        ([OWN_SCALE, TextForm("DECIMAL", 2)], None),
        ([TextForm("DATE"), TextForm("TIMESTAMP_NTZ")], None),
    ],
)
def test_the_form_of_several(forms: list[TextForm], expected: TextForm | None) -> None:
    assert common_form(forms) == expected
    assert common_form(forms[::-1]) == expected


def test_each_rule_of_a_text_knows_its_form() -> None:
    known = {name: semantic(name).text_form for name in (*TIMES.values(), "io.debezium.time.NanoTimestamp", "timestamp-nanos")}
    assert list(known.values()) == [*(TextForm(TIME, digits) for digits in TIMES), NANOS, TextForm("TIMESTAMP", 9)]
    assert semantic("io.debezium.data.VariableScaleDecimal").text_form == OWN_SCALE
    assert (decimal(4, 60).text_form, decimal(4, 20).text_form) == (TextForm("DECIMAL", 4), TextForm("DECIMAL", 4))
    assert [form_of_type(kind) for kind in ("INT", "BIGINT", "DATE", "BINARY")] == [WHOLE, WHOLE, TextForm("DATE"), TEXT]
    zoned = semantic("io.debezium.time.ZonedTimestamp")
    assert (zoned.text_form, read_as("STRING", zoned).text_form) == (TEXT, TEXT)


VALUES = [0, 1, 37_830_123, 86_399_999, 86_400_000]


@pytest.mark.parametrize("digits", [6, 9])
def test_a_time_in_a_finer_form_has_more_zeros_in_both_engines(session: SparkSession, digits: int) -> None:
    rule = semantic(TIMES[3]).in_form(TextForm(TIME, digits))
    assert rule.native is not None
    found = read(session, {"t": rule}, [*map(str, VALUES), None])["t"]
    for value in VALUES:
        seconds, millis = divmod(value, 1_000)
        wanted = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis:03}" + "0" * (digits - 3)
        assert found[str(value)] == wanted
        with duckdb.connect() as connection:
            natively = connection.execute(f"SELECT {rule.native('leaf')} FROM (SELECT '{value}' AS leaf)").fetchall()
        assert natively == [(wanted,)]
    assert found[None] is None


def test_what_a_coarser_form_would_cut_does_not_fit(session: SparkSession) -> None:
    rule = semantic(TIMES[6]).in_form(TextForm(TIME, 3))
    assert read(session, {"t": rule}, ["3600000000"])["t"]["3600000000"] is None


def test_timestamps_beside_nanoseconds_have_nine_digits(session: SparkSession) -> None:
    since = [0, 1, -1, 1_531_481_430_123, 253_402_300_799_999, -62_135_596_800_000]
    rule = read_as("STRING", semantic("io.debezium.time.Timestamp")).in_form(NANOS)
    found = read(session, {"t": rule}, [*map(str, since)])["t"]
    for millis in since:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=millis)  # noqa: DTZ001 - a local time
        assert found[str(millis)] == f"{moment.isoformat(sep=' ', timespec='microseconds')}000"


def test_decimals_beside_a_longer_scale_have_its_zeros(session: SparkSession) -> None:
    rule = read_as("STRING", decimal(2, 12)).in_form(TextForm("DECIMAL", 4))
    found = read(session, {"d": rule, "i": read_as("STRING", column_type({"type": "int32"}, "")).in_form(TextForm("DECIMAL", 2))}, ["-7"])
    assert found["i"]["-7"] == f"{Decimal(-7):.2f}"
    assert read(session, {"d": rule}, ["C2E="])["d"]["C2E="] == f"{Decimal('29.13'):.4f}"


def test_a_text_of_another_kind_stays() -> None:
    rule = semantic(TIMES[3])
    assert rule.in_form(NANOS) is rule
    assert rule.in_form(TEXT) is rule
    assert rule.in_form(None) is rule
