"""How each Kafka Connect type becomes a Spark column: a table of facts, literal and semantic types.

Every leaf arrives as the text of its JSON value (``envelope.parse_line``). A rule gives the column's Spark type and the
SQL that reads the text; NULL for a text that is not NULL means that the value does not fit, and the record is rejected.
Sources: Kafka Connect's schema types; Debezium's "data type mappings" (reference/debezium-sqlserver.txt, tables 8.10 to 8.13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_PRECISION = 38
_TWO_64 = "18446744073709551616"


@dataclass(frozen=True)
class ColumnType:
    """A column's Spark SQL type and how a JSON leaf's text becomes a value of it."""

    sql_type: str
    read: Callable[[str], str]
    """From the SQL of the text to the SQL of the value."""
    checked: bool = True
    """False where every text fits."""


STRING = ColumnType("STRING", lambda value: value, checked=False)
_BINARY = ColumnType("BINARY", lambda value: f"try_to_binary({value}, 'base64')")

_CALENDAR_DATE = r"^\s*[+-]?\d{4,}-\d{1,2}-\d{1,2}"


def cast_to(sql_type: str) -> ColumnType:
    """Read a JSON number, boolean or text by Spark's own cast; what the cast would bend instead of refuse does not fit."""

    def cast(value: str) -> str:
        return f"try_cast({value} AS {sql_type})"

    if sql_type == "STRING":
        return STRING
    if sql_type == "BINARY":
        # JSON has no bytes: they come as base64, and a cast would keep its letters.
        return _BINARY
    if sql_type.startswith("DECIMAL("):
        return ColumnType(
            sql_type, lambda value: f"CASE WHEN {_digits_behind_point(value)} <= {_scale_of(sql_type)} THEN {cast(value)} END"
        )
    if sql_type == "DATE":
        # The cast takes 18000 (days since 1970, as connectors write a date) for the year 18000, and drops a time of day.
        return ColumnType(sql_type, lambda value: rf"CASE WHEN {value} RLIKE r'{_CALENDAR_DATE}\s*$' THEN {cast(value)} END")
    if sql_type in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        # The cast takes 18000 for a year and 12:34:56 for a time of the day on which it runs.
        return ColumnType(sql_type, lambda value: f"CASE WHEN {value} RLIKE r'{_CALENDAR_DATE}' THEN {cast(value)} END")
    return ColumnType(sql_type, cast)


def _scale_of(sql_type: str) -> int:
    return int(sql_type.rstrip(")").rpartition(",")[2]) if "," in sql_type else 0


def _digits_behind_point(value: str) -> str:
    """SQL: how many digits a number's text needs behind the point, by its fraction and exponent; a cast would round them away."""
    fraction = rf"length(rtrim('0', regexp_extract({value}, r'^[^.eE]*\.(\d*)', 1)))"
    exponent = rf"coalesce(try_cast(regexp_extract({value}, r'[eE]([+-]?\d+)\s*$', 1) AS INT), 0)"
    return rf"if({value} RLIKE r'^\s*[+-]?[0.]+([eE]|\s*$)', 0, {fraction} - {exponent})"


_LITERAL: Mapping[str, ColumnType] = {
    "int8": cast_to("TINYINT"),
    "int16": cast_to("SMALLINT"),
    "int32": cast_to("INT"),
    "int64": cast_to("BIGINT"),
    "float": cast_to("FLOAT"),
    "float32": cast_to("FLOAT"),
    "double": cast_to("DOUBLE"),
    "float64": cast_to("DOUBLE"),
    "boolean": cast_to("BOOLEAN"),
    "string": STRING,
    "bytes": _BINARY,
    # Nested values keep their JSON text.
    "array": STRING,
    "map": STRING,
    "struct": STRING,
}


def _days(value: str) -> str:
    return f"date_from_unix_date(try_cast({value} AS INT))"


def _local_timestamp(units_per_second: int) -> ColumnType:
    factor = 1_000_000 // units_per_second
    # The session's zone is UTC, so the instant and the local time have the same fields.
    return ColumnType(
        "TIMESTAMP_NTZ", lambda value: f"CAST(timestamp_micros(try_multiply(try_cast({value} AS BIGINT), {factor}L)) AS TIMESTAMP_NTZ)"
    )


def _nano_timestamp(value: str) -> str:
    # A Spark timestamp ends at microseconds; SQL Server's datetime2(7) does not. The text keeps all and casts to TIMESTAMP_NTZ.
    nanos = f"try_cast({value} AS BIGINT)"
    seconds = f"CAST(timestamp_seconds(floor({nanos} / 1000000000BD)) AS TIMESTAMP_NTZ)"
    return f"concat(CAST({seconds} AS STRING), '.', lpad(CAST(pmod({nanos}, 1000000000) AS STRING), 9, '0'))"


def _time_of_day(units_per_second: int) -> ColumnType:
    digits = len(str(units_per_second)) - 1

    def read(value: str) -> str:
        count = f"try_cast({value} AS BIGINT)"
        whole = f"({count} DIV {units_per_second})"
        # Arithmetic, because PostgreSQL's 24:00:00 is a time and not midnight.
        parts = f"{whole} DIV 3600, {whole} DIV 60 % 60, {whole} % 60, {count} % {units_per_second}"
        return f"format_string('%02d:%02d:%02d.%0{digits}d', {parts})"

    return ColumnType("STRING", lambda value: f"CASE WHEN try_cast({value} AS BIGINT) >= 0 THEN {read(value)} END")


_ZONED = cast_to("TIMESTAMP")

_SEMANTIC: Mapping[str, ColumnType] = {
    "io.debezium.time.Date": ColumnType("DATE", _days),
    "org.apache.kafka.connect.data.Date": ColumnType("DATE", _days),
    "io.debezium.time.Time": _time_of_day(1_000),
    "org.apache.kafka.connect.data.Time": _time_of_day(1_000),
    "io.debezium.time.MicroTime": _time_of_day(1_000_000),
    "io.debezium.time.NanoTime": _time_of_day(1_000_000_000),
    "io.debezium.time.Timestamp": _local_timestamp(1_000),
    "org.apache.kafka.connect.data.Timestamp": _local_timestamp(1_000),
    "io.debezium.time.MicroTimestamp": _local_timestamp(1_000_000),
    "io.debezium.time.NanoTimestamp": ColumnType("STRING", _nano_timestamp),
    "io.debezium.time.ZonedTimestamp": _ZONED,
}

_BY_CONNECTOR: Mapping[tuple[str, str], ColumnType] = {
    # DATETIMEOFFSET holds an offset and 100 ns; a Spark TIMESTAMP holds neither.
    ("sqlserver", "io.debezium.time.ZonedTimestamp"): STRING,
}


def _decimal(scale: int, precision: int | None) -> ColumnType:
    """Read ``org.apache.kafka.connect.data.Decimal``: base64 of the unscaled big-endian two's complement."""
    sql_type = _decimal_type(scale, precision or MAX_PRECISION)

    def read(value: str) -> str:
        # Sign-extended to 16 bytes: the upper eight as a signed number, the lower eight as an unsigned one. Below zero the halves
        # lean to zero (one more up there, 2^64 less down here): else the upper half alone would overflow near -10^38.
        digits = f"hex(try_to_binary({value}, 'base64'))"
        padded = f"lpad({digits}, 32, if(substr({digits}, 1, 1) >= '8', 'F', '0'))"
        high = f"CAST(conv(substr({padded}, 1, 16), 16, -10) AS DECIMAL(20,0))"
        low = f"CAST(conv(substr({padded}, 17, 16), 16, 10) AS DECIMAL(20,0))"
        carry = f"if({digits} >= '8', 1, 0)"
        unscaled = f"try_add(try_multiply({high} + {carry}, {_TWO_64}BD), {low} - {carry} * {_TWO_64}BD)"
        return f"CASE WHEN length({digits}) BETWEEN 2 AND 32 THEN {_scaled(unscaled, scale, sql_type)} END"

    return ColumnType(sql_type, read)


def _decimal_type(scale: int, precision: int) -> str:
    """Return the Spark type that holds the values: Spark has neither a negative scale nor one above the precision, databases have."""
    if scale > MAX_PRECISION:
        return "STRING"
    return f"DECIMAL({min(max(precision - min(scale, 0), scale), MAX_PRECISION)},{max(scale, 0)})"


def _scaled(unscaled: str, scale: int, sql_type: str) -> str:
    if scale <= 0:
        return f"try_cast(concat(CAST({unscaled} AS STRING), '{'0' * -scale}') AS {sql_type})"
    # Through the digits: a decimal product of 38 digits would round the scale away.
    # The sign goes as text too: Spark's abs() and unary minus round a DECIMAL to 34 digits.
    digits = f"ltrim('-', CAST({unscaled} AS STRING))"
    text = f"lpad({digits}, greatest({scale + 1}, length({digits})), '0')"
    point = f"concat(if({unscaled} < 0, '-', ''), left({text}, length({text}) - {scale}), '.', right({text}, {scale}))"
    return f"try_cast({point} AS {sql_type})"


def column_type(field: Mapping[str, Any], connector: str) -> ColumnType:
    """Return the rule for one field of a Connect schema.

    :param field: ``{type, name, parameters, …}`` as the JSON converter writes it.
    :param connector: ``source.connector``; some connectors use one semantic type for values that differ.
    """
    semantic = field.get("name")
    if semantic == "org.apache.kafka.connect.data.Decimal":
        parameters = field.get("parameters") or {}
        precision = parameters.get("connect.decimal.precision")
        return _decimal(int(parameters.get("scale", 0)), int(precision) if precision else None)
    by_connector = _BY_CONNECTOR.get((connector, str(semantic)))
    return by_connector or _SEMANTIC.get(str(semantic)) or _LITERAL[field["type"]]
