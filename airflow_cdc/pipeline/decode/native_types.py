"""What a connector makes of a database's column types: the Connect field that it would write, were the schemas archived.

Sources: Debezium's "data type mappings" of its default modes; the capture ``maria_types_precise`` holds both spellings of the same values.
Which modes a connector was given the schema-change topic does not tell: :mod:`airflow_cdc.pipeline.decode.told_types` asks the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.pipeline.decode.connect_types import DECIMAL, FORMERLY

DATE = "io.debezium.time.Date"
ZONED = "io.debezium.time.ZonedTimestamp"
_UNITS = {
    "io.debezium.time.Time": 1_000,
    "io.debezium.time.MicroTime": 1_000_000,
    "io.debezium.time.NanoTime": 1_000_000_000,
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
_SECONDS_TO_YEAR_10000 = 253_402_300_800
_SECONDS_OF_DAY = 86_400
_SECONDS_OF_SPAN = 839 * 3_600
"""MySQL's TIME goes to 838:59:59."""


@dataclass(frozen=True)
class NativeType:
    """How a connector spells the values of one column type."""

    type: str
    """The Connect field's literal type."""
    name: str | None = None
    """The Connect field's semantic type."""
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    digits: int = 0
    """Of a time: digits of its second behind the point."""
    is_unsigned: bool = False
    """Whether it is a decimal only because no integer of Connect holds it."""
    seconds: int = _SECONDS_TO_YEAR_10000
    """Of a time: how far from zero it goes."""
    formerly: tuple[str, ...] = field(default=(), compare=False)
    """Older names under which events may have the column."""

    @property
    def units(self) -> int | None:
        """Units per second of a time that is told as a number; None of anything else."""
        return _UNITS.get(self.name or "")

    @property
    def is_time_of_day(self) -> bool:
        """Whether it is a time without a date."""
        return self.units is not None and not (self.name or "").endswith("stamp")

    @property
    def is_encoded(self) -> bool:
        """Whether the JSON text alone does not say what the value is."""
        return self.name in (DECIMAL, DATE) or self.units is not None

    @property
    def scale(self) -> int:
        """Digits of a decimal behind the point."""
        return int(self.parameters.get("scale", 0))

    def connect_field(self, column: str) -> dict[str, Any]:
        """Return the field as a Connect schema has it."""
        return {"field": column, "type": self.type, "name": self.name, "parameters": dict(self.parameters), FORMERLY: self.formerly}


Facts = Callable[[int | None, int | None], NativeType | None]
"""From a column's length and scale to its type; None where they do not tell it."""


def _always(kind: str, name: str | None = None) -> Facts:
    return lambda length, scale: NativeType(kind, name)


def _decimal(precision: int | None) -> Facts:
    """Decimals of a length, or of ``precision`` where the column tells none."""

    def told(length: int | None, scale: int | None) -> NativeType | None:
        digits = length or precision
        return NativeType("bytes", DECIMAL, {"scale": str(scale or 0), "connect.decimal.precision": str(digits)}) if digits else None

    return told


def _unsigned_bigint(_length: int | None, _scale: int | None) -> NativeType:
    return NativeType("bytes", DECIMAL, {"scale": "0", "connect.decimal.precision": "20"}, is_unsigned=True)


def _bits(length: int | None, _scale: int | None) -> NativeType:
    return NativeType("boolean" if (length or 1) == 1 else "bytes")


def _float_without_length(length: int | None, _scale: int | None) -> NativeType | None:
    # A length in the definition may make it a DOUBLE.
    return NativeType("float") if length is None else None


def _time_by_digits(kind: str, seconds: int, digits: int | None) -> NativeType | None:
    if digits is None or digits not in range(10):
        return None
    prefix = "" if digits <= 3 else "Micro" if digits <= 6 else "Nano"
    return NativeType("int64", f"io.debezium.time.{prefix}{kind}", digits=digits, seconds=seconds)


_MYSQL: Mapping[str, Facts] = {
    "TINYINT": _always("int16"),
    "TINYINT UNSIGNED": _always("int16"),
    "SMALLINT": _always("int16"),
    "SMALLINT UNSIGNED": _always("int32"),
    **dict.fromkeys(("MEDIUMINT", "MEDIUMINT UNSIGNED", "INT", "INTEGER", "YEAR"), _always("int32")),
    **dict.fromkeys(("INT UNSIGNED", "INTEGER UNSIGNED", "BIGINT"), _always("int64")),
    "BIGINT UNSIGNED": _unsigned_bigint,
    **dict.fromkeys(("BOOLEAN", "BOOL"), _always("boolean")),
    "BIT": _bits,
    "FLOAT": _float_without_length,
    **dict.fromkeys(("DOUBLE", "DOUBLE PRECISION", "REAL"), _always("double")),
    **dict.fromkeys(("DECIMAL", "DECIMAL UNSIGNED", "NUMERIC", "NUMERIC UNSIGNED", "DEC", "FIXED"), _decimal(10)),
    **dict.fromkeys(("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"), _always("string")),
    **dict.fromkeys(("ENUM", "SET", "JSON", "UUID", "INET4", "INET6"), _always("string")),
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), _always("bytes")),
    "DATE": _always("int32", DATE),
    "TIME": lambda length, scale: NativeType("int64", "io.debezium.time.MicroTime", digits=length or 0, seconds=_SECONDS_OF_SPAN),
    "DATETIME": lambda length, scale: _time_by_digits("Timestamp", _SECONDS_TO_YEAR_10000, length or 0),
    "TIMESTAMP": _always("string", ZONED),
}
"""MySQL's and MariaDB's; of a time the length is its digits behind the point."""

_SQL_SERVER: Mapping[str, Facts] = {
    "BIT": _always("boolean"),
    **dict.fromkeys(("TINYINT", "SMALLINT"), _always("int16")),
    "INT": _always("int32"),
    "BIGINT": _always("int64"),
    "REAL": _always("float"),
    "FLOAT": _always("double"),
    **dict.fromkeys(("CHAR", "VARCHAR", "TEXT", "NCHAR", "NVARCHAR", "NTEXT", "XML", "UNIQUEIDENTIFIER"), _always("string")),
    **dict.fromkeys(("BINARY", "VARBINARY"), _always("bytes")),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "MONEY", "SMALLMONEY"), _decimal(None)),
    "DATE": _always("int32", DATE),
    "TIME": lambda length, scale: _time_by_digits("Time", _SECONDS_OF_DAY, scale),
    "DATETIME": lambda length, scale: NativeType("int64", "io.debezium.time.Timestamp", digits=3),
    "SMALLDATETIME": lambda length, scale: NativeType("int64", "io.debezium.time.Timestamp"),
    "DATETIME2": lambda length, scale: _time_by_digits("Timestamp", _SECONDS_TO_YEAR_10000, scale),
    "DATETIMEOFFSET": _always("string", ZONED),
}

_BY_CONNECTOR: Mapping[str, Mapping[str, Facts]] = {"mysql": _MYSQL, "mariadb": _MYSQL, "sqlserver": _SQL_SERVER}

CONNECTORS = tuple(_BY_CONNECTOR)
"""Connectors whose column types are known."""


def native_type(connector: str, type_name: str, length: int | None, scale: int | None) -> NativeType | None:
    """Return how a connector spells the values of a column; None where its type is not known, or could be spelled otherwise.

    :param type_name: ``typeName`` of the schema-change topic, such as ``INT UNSIGNED`` or ``int identity``.
    """
    # "decimal() identity", "INT(10) UNSIGNED ZEROFILL": what it does not change is left out.
    plain = re.sub(r"\([^)]*\)|\b(IDENTITY|ZEROFILL|SIGNED)\b", " ", type_name.upper())
    facts = _BY_CONNECTOR.get(connector, {}).get(" ".join(plain.split()))
    return facts(length, scale) if facts else None
