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


def cast_to(sql_type: str) -> ColumnType:
    """Read a JSON number, boolean or text by Spark's own strict cast."""
    return ColumnType(sql_type, lambda value: f"try_cast({value} AS {sql_type})")


STRING = ColumnType("STRING", lambda value: value, checked=False)
_BINARY = ColumnType("BINARY", lambda value: f"try_to_binary({value}, 'base64')")

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
    micros = {1_000: "* 1000", 1_000_000: ""}[units_per_second]
    # The session's zone is UTC, so the instant and the local time have the same fields.
    return ColumnType("TIMESTAMP_NTZ", lambda value: f"CAST(timestamp_micros(try_cast({value} AS BIGINT) {micros}) AS TIMESTAMP_NTZ)")


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
        return f"format_string('%02d:%02d:%02d.%0{digits}d', {whole} DIV 3600, {whole} DIV 60 % 60, {whole} % 60, {count} % {units_per_second})"

    return ColumnType("STRING", lambda value: f"CASE WHEN try_cast({value} AS BIGINT) >= 0 THEN {read(value)} END")


_ZONED = ColumnType("TIMESTAMP", lambda value: f"try_cast({value} AS TIMESTAMP)")

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
    sql_type = f"DECIMAL({min(precision or MAX_PRECISION, MAX_PRECISION)},{scale})"

    def read(value: str) -> str:
        # Sign-extended to 16 bytes: the upper eight as a signed number, the lower eight as an unsigned one.
        digits = f"hex(try_to_binary({value}, 'base64'))"
        padded = f"lpad({digits}, 32, if(substr({digits}, 1, 1) >= '8', 'F', '0'))"
        high = f"CAST(conv(substr({padded}, 1, 16), 16, -10) AS DECIMAL(20,0))"
        low = f"CAST(conv(substr({padded}, 17, 16), 16, 10) AS DECIMAL(20,0))"
        unscaled = f"try_add(try_multiply({high}, {_TWO_64}BD), {low})"
        return f"CASE WHEN length({digits}) BETWEEN 2 AND 32 THEN {_scaled(unscaled, scale, sql_type)} END"

    return ColumnType(sql_type, read)


def _scaled(unscaled: str, scale: int, sql_type: str) -> str:
    if scale <= 0:
        return f"try_cast(concat(CAST({unscaled} AS STRING), '{'0' * -scale}') AS {sql_type})"
    # Through the digits: a decimal product of 38 digits would round the scale away.
    text = f"lpad(CAST(abs({unscaled}) AS STRING), greatest({scale + 1}, length(CAST(abs({unscaled}) AS STRING))), '0')"
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
