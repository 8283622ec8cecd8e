"""MySQL's and MariaDB's column types as their connectors spell them.

Sources: "Data type mappings" of Debezium's MySQL and MariaDB connectors; the captures ``maria_types_precise`` and ``maria_load``.
Not known: INET4 and INET6, which the connectors do not name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.settings import ConnectorSettings

_LABEL = re.compile(r"'((?:[^']|'')*)'")
_FLOAT_DIGITS = 24
"""Of FLOAT(p): up to these it is of single precision."""


def _decimal(column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.decimal(settings.decimal, column.length or 10, column.scale or 0)


def _unsigned_bigint(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.decimal("precise", 20, 0) if settings.bigint_unsigned == "precise" else literal("int64")


def _float(column: CatalogueColumn, _settings: ConnectorSettings) -> Field:
    # FLOAT(7,4) has a scale, and is read as a double.
    return literal("float" if column.scale is None and (column.length or 0) <= _FLOAT_DIGITS else "double")


def _bytes(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.binary(settings.binary)


def _labels(name: str) -> Rule:
    return lambda column, settings: literal("string", name, allowed=column.labels)


_GEOMETRIES = ("GEOMETRY", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION", "GEOMCOLLECTION")

_RULES: Mapping[str, Rule] = {
    # TINYINT(1) too: the connector writes a boolean only where it read the word BOOLEAN in a statement.
    **dict.fromkeys(("TINYINT", "TINYINT UNSIGNED", "SMALLINT"), always("int16")),
    **dict.fromkeys(("SMALLINT UNSIGNED", "MEDIUMINT", "MEDIUMINT UNSIGNED", "INT", "INTEGER"), always("int32")),
    **dict.fromkeys(("INT UNSIGNED", "INTEGER UNSIGNED", "BIGINT"), always("int64")),
    "BIGINT UNSIGNED": _unsigned_bigint,
    "YEAR": always("int32", "io.debezium.time.Year"),
    **dict.fromkeys(("BOOLEAN", "BOOL"), always("boolean")),
    "BIT": lambda column, settings: fields.bits(column.length or 1),
    **dict.fromkeys(("FLOAT", "FLOAT UNSIGNED"), _float),
    **dict.fromkeys(("DOUBLE", "DOUBLE UNSIGNED", "DOUBLE PRECISION", "REAL"), always("double")),
    **dict.fromkeys(("DECIMAL", "DECIMAL UNSIGNED", "NUMERIC", "NUMERIC UNSIGNED", "DEC", "FIXED"), _decimal),
    **dict.fromkeys(("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"), always("string")),
    "ENUM": _labels("io.debezium.data.Enum"),
    "SET": _labels("io.debezium.data.EnumSet"),
    "JSON": always("string", "io.debezium.data.Json"),
    "UUID": always("string", "io.debezium.data.Uuid"),
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"), _bytes),
    "DATE": lambda column, settings: fields.date(settings.time),
    "TIME": lambda column, settings: fields.time_of_day(settings.time, column.scale or 0),
    "DATETIME": lambda column, settings: fields.timestamp(settings.time, column.scale or 0),
    "TIMESTAMP": always("string", fields.ZONED),
    "POINT": lambda column, settings: fields.point(),
    **dict.fromkeys(_GEOMETRIES, lambda column, settings: fields.geometry()),
    "VECTOR": lambda column, settings: {**fields.array(literal("float")), "name": "io.debezium.data.FloatVector"},
}


def field_of(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    """Return the field that the connector writes for a column; None where it is not known."""
    rule = _RULES.get(column.type_name)
    return rule(column, settings) if rule else None


def column_of(row: Sequence[Any]) -> CatalogueColumn:
    """Return the column that a row of the catalogue tells.

    :param row: ``column_name``, ``column_type``, ``data_type``, ``numeric_precision``, ``numeric_scale``, ``datetime_precision``.
    """
    name, native, data_type, digits, scale, fraction = row
    spelled, type_name = text(native), text(data_type).upper()
    labels = _allowed(spelled) if type_name in ("ENUM", "SET") else ""
    if not labels and " unsigned" in spelled.lower():
        type_name += " UNSIGNED"
    # The catalogue tells FLOAT's own 12 digits where its definition has none.
    length = None if type_name.startswith("FLOAT") else whole(digits)
    return CatalogueColumn(text(name), type_name, spelled, length, whole(scale if fraction is None else fraction), labels=labels)


def _allowed(native: str) -> str:
    """Return the labels of ``enum('a','b,c')`` as the connector lists them."""
    return ",".join(label.replace("''", "'").replace(",", "\\,") for label in _LABEL.findall(native))
