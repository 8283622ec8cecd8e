"""Oracle's column types as the ``oracle`` connector spells them.

Sources: "Data type mappings" of Debezium's Oracle connector; the capture ``oracle_synth``. Not known: what the connector does not support
(BFILE, BOOLEAN, LONG, LONG RAW, UROWID, VECTOR, user-defined types).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.settings import ConnectorSettings

_MOST_DIGITS = 38
_INTEGERS = ((3, "int8"), (5, "int16"), (10, "int32"), (19, "int64"))
"""Digits in front of the point from which an integer no longer holds them."""


def _number(column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    scale = column.scale
    if scale is None:
        return fields.variable_decimal(settings.decimal)
    digits = column.length or _MOST_DIGITS
    if scale == 0 and settings.decimal != "precise":
        return literal(settings.decimal)
    held = next((kind for limit, kind in _INTEGERS if digits - scale < limit), None) if scale <= 0 else None
    return literal(held) if held else fields.decimal(settings.decimal, digits, scale)


def _bytes(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.binary(settings.binary)


def _interval(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    return fields.interval(settings.interval)


_RULES: Mapping[str, Rule] = {
    "NUMBER": _number,
    # A number of binary digits, not a float of Java's.
    "FLOAT": lambda column, settings: fields.variable_decimal(settings.decimal),
    "BINARY_FLOAT": always("float"),
    "BINARY_DOUBLE": always("double"),
    **dict.fromkeys(("CHAR", "NCHAR", "VARCHAR", "VARCHAR2", "NVARCHAR2", "CLOB", "NCLOB", "ROWID"), always("string")),
    "XMLTYPE": always("string", "io.debezium.data.Xml"),
    "JSON": always("string", "io.debezium.data.Json"),
    **dict.fromkeys(("RAW", "BLOB"), _bytes),
    # Whole seconds, and no date: it holds a time of day.
    "DATE": lambda column, settings: fields.timestamp(settings.time, 0),
    "TIMESTAMP": lambda column, settings: fields.timestamp(settings.time, 6 if column.scale is None else column.scale),
    **dict.fromkeys(("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"), always("string", fields.ZONED)),
    **dict.fromkeys(("INTERVAL DAY TO SECOND", "INTERVAL YEAR TO MONTH"), _interval),
}


def field_of(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    """Return the field that the connector writes for a column; None where it is not known."""
    rule = _RULES.get(column.type_name)
    return rule(column, settings) if rule else None


def column_of(row: Sequence[Any]) -> CatalogueColumn:
    """Return the column that a row of the catalogue tells.

    :param row: of ``all_tab_columns``: ``column_name``, ``data_type``, ``data_length``, ``char_length``, ``data_precision`` and
        ``data_scale``.
    """
    name, data_type, size, characters, precision, scale = row
    told = text(data_type)
    # TIMESTAMP(6) WITH TIME ZONE, INTERVAL DAY(2) TO SECOND(6): the digits are no part of the name.
    type_name = re.sub(r"\(\d+\)", "", told).upper()
    native = told + _measure(type_name, whole(size), whole(characters), whole(precision), whole(scale))
    return CatalogueColumn(text(name), type_name, native, whole(precision), whole(scale))


def _measure(type_name: str, size: int | None, characters: int | None, precision: int | None, scale: int | None) -> str:
    if type_name == "NUMBER" and scale is not None:
        return f"({'*' if precision is None else precision},{scale})"
    if type_name == "FLOAT":
        return f"({precision})"
    return f"({characters or size})" if type_name in ("CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "RAW") else ""
