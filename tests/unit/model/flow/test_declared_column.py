"""How a flows file declares a column of bare JSON: its type, and how the values spell it."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.declared_column import DeclaredColumn, Encoding, Unit, declared_columns

DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        ("DECIMAL(12,2)", None),
        (
            {"type": "DECIMAL(12,2)", "encoding": "base64"},
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
        ),
        (
            {"type": "decimal(38, 6)", "encoding": "base64", "scale": 2},
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "38"}},
        ),
        (
            {"type": "DECIMAL", "encoding": "base64"},
            {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "0", "connect.decimal.precision": "10"}},
        ),
        ({"type": "BINARY", "encoding": "base64"}, {"type": "bytes", "name": None}),
        ({"type": "BINARY", "encoding": "hex"}, {"type": "bytes", "name": "airflow_cdc.Hex"}),
        ({"type": "BINARY", "encoding": "base64url"}, {"type": "bytes", "name": "airflow_cdc.Base64Url"}),
        ({"type": "STRING", "encoding": "variable_scale"}, {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}),
        ({"type": "DATE", "unit": "days"}, {"type": "int32", "name": "io.debezium.time.Date"}),
        ({"type": "TIMESTAMP_NTZ", "unit": "millis"}, {"type": "int64", "name": "io.debezium.time.Timestamp"}),
        ({"type": "TIMESTAMP", "unit": "micros"}, {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
        ({"type": "STRING", "encoding": "epoch", "unit": "nanos"}, {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}),
        ({"type": "STRING", "encoding": "time_of_day", "unit": "micros"}, {"type": "int64", "name": "io.debezium.time.MicroTime"}),
        ({"type": "ARRAY<DATE>", "unit": "days"}, {"type": "array", "items": {"type": "int32", "name": "io.debezium.time.Date"}}),
    ],
)
def test_a_declaration_is_the_field_that_a_connector_which_spells_so_would_write(setting: Any, field: dict[str, Any] | None) -> None:
    declared = CdcFlow("t", columns=declared_columns({"c": setting})).declared["c"]
    assert declared.connect_field("c") == (field and {"field": "c", **field})
    assert declared.is_encoded == (field is not None)
    # What is read is spelled again as it was, but for an epoch that its unit says.
    assert declared_columns({"c": declared.to_setting()}) == declared_columns({"c": setting})


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"type": "BIGINT", "encoding": "base64"}, "BINARY, DECIMAL"),
        ({"type": "DECIMAL(4,1)", "encoding": "hex"}, "BINARY"),
        ({"type": "DECIMAL(4,1)", "encoding": "zip"}, "'base64', 'base64url', 'hex'"),
        ({"type": "DATE", "unit": "weeks"}, "'days', 'millis', 'micros', 'nanos'"),
        ({"type": "DATE", "unit": "micros"}, "unit: days"),
        ({"type": "TIMESTAMP_NTZ", "unit": "days"}, "unit: micros, millis, nanos"),
        # Since midnight or since 1970?
        ({"type": "STRING", "unit": "micros"}, "unit: nanos"),
        ({"type": "TIMESTAMP_NTZ", "encoding": "epoch"}, "unit: micros, millis, nanos"),
        ({"type": "STRING", "encoding": "time_of_day"}, "unit: micros, millis, nanos"),
        ({"type": "STRING", "encoding": "time_of_day", "unit": "days"}, "unit: micros, millis, nanos"),
        ({"type": "DECIMAL(4,1)", "encoding": "base64", "unit": "days"}, "unit: none"),
        ({"type": "BINARY", "encoding": "base64", "scale": 2}, "a scale beside a DECIMAL"),
        ({"type": "DECIMAL(4,1)", "scale": 2}, "a scale beside encoding: base64"),
        ({"type": "DECIMAL(4,1)", "encoding": "base64", "scale": True}, "a whole number as scale"),
        ({"type": "DECIMAL(4,1)", "encoding": "base64", "digits": 2}, "{type, encoding, unit, scale}"),
        ({"encoding": "base64"}, "a type"),
        ({"type": "", "encoding": "base64"}, "a type"),
        (5, "{type, encoding, unit, scale}"),
        ("", "{type, encoding, unit, scale}"),
    ],
)
def test_what_cannot_be_is_refused_with_column_and_choice(setting: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match="columns") as refused:
        CdcFlow.from_mapping({"topic": "shop.orders", "columns": {"total": setting}})
    assert "shop.orders" in str(refused.value)
    assert "'total'" in str(refused.value)
    assert expected in str(refused.value)


def test_a_scale_may_be_negative_as_oracle_s_are() -> None:
    declared = DeclaredColumn("DECIMAL(12,0)", Encoding.BASE64, scale=-3)
    assert (declared.connect_field("c") or {})["parameters"]["scale"] == "-3"
    assert declared.to_setting() == {"type": "DECIMAL(12,0)", "encoding": "base64", "scale": -3}


def test_the_unit_declares_that_a_number_counts_since_1970() -> None:
    assert declared_columns({"c": {"type": "DATE", "unit": "days"}}) == {"c": DeclaredColumn("DATE", Encoding.EPOCH, Unit.DAYS)}
