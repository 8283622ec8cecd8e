"""SQL Server's column types as the ``sqlserver`` connector spells them.

Sources: "Data type mappings" of Debezium's SQL Server connector; the capture ``sqlserver_synth``. Not known: ``rowversion``,
``sql_variant``, ``hierarchyid``, geometries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field
from airflow_cdc.model.catalogue.settings import ConnectorSettings

FIXED_DIGITS: Mapping[str, int] = {"DATETIME": 3, "SMALLDATETIME": 0}
"""Digits of the second of types that take no length."""
_WIDE = ("NCHAR", "NVARCHAR")
_SIZED = ("CHAR", "VARCHAR", "BINARY", "VARBINARY", *_WIDE)
_UNLIMITED = -1


def _decimal(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    return fields.decimal(settings.decimal, column.length, column.scale or 0) if column.length else None


def _time(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    return None if column.scale is None else fields.time_of_day(settings.time, column.scale)


def _timestamp(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    digits = FIXED_DIGITS.get(column.type_name, column.scale)
    return None if digits is None else fields.timestamp(settings.time, digits)


def _bytes(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.binary(settings.binary)


_RULES: Mapping[str, Rule] = {
    "BIT": always("boolean"),
    **dict.fromkeys(("TINYINT", "SMALLINT"), always("int16")),
    "INT": always("int32"),
    "BIGINT": always("int64"),
    "REAL": always("float"),
    "FLOAT": always("double"),
    **dict.fromkeys(("CHAR", "VARCHAR", "TEXT", "NCHAR", "NVARCHAR", "NTEXT", "UNIQUEIDENTIFIER"), always("string")),
    "XML": always("string", "io.debezium.data.Xml"),
    **dict.fromkeys(("BINARY", "VARBINARY", "IMAGE"), _bytes),
    **dict.fromkeys(("DECIMAL", "NUMERIC", "MONEY", "SMALLMONEY"), _decimal),
    "DATE": lambda column, settings: fields.date(settings.time),
    "TIME": _time,
    **dict.fromkeys(("DATETIME", "SMALLDATETIME", "DATETIME2"), _timestamp),
    "DATETIMEOFFSET": always("string", fields.ZONED),
}


def field_of(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    """Return the field that the connector writes for a column; None where it is not known."""
    rule = _RULES.get(column.type_name)
    return rule(column, settings) if rule else None


def column_of(row: Sequence[Any]) -> CatalogueColumn:
    """Return the column that a row of the catalogue tells.

    :param row: of ``sys.columns``: name; the type's name, and its base type's; ``max_length``, ``precision``, ``scale``.
    """
    name, declared, base, size, precision, scale = row
    type_name = text(base).upper()
    native = text(declared) + _measure(type_name, int(size or 0), whole(precision), whole(scale))
    return CatalogueColumn(text(name), type_name, native, whole(precision), whole(scale))


def _measure(type_name: str, size: int, precision: int | None, scale: int | None) -> str:
    if type_name in _SIZED:
        return "(max)" if size == _UNLIMITED else f"({size // 2 if type_name in _WIDE else size})"
    if type_name in ("DECIMAL", "NUMERIC"):
        return f"({precision},{scale})"
    return f"({scale})" if type_name in ("TIME", "DATETIME2", "DATETIMEOFFSET") else ""
