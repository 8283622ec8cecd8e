"""Db2's column types as the ``db2`` connector spells them.

Source: "Data type mappings" of Debezium's Db2 connector. Not known: DECFLOAT, which its versions spell differently; GRAPHIC; CHAR and
VARCHAR FOR BIT DATA, which the mappings do not name; distinct types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field
from airflow_cdc.model.catalogue.settings import ConnectorSettings

_SIZED = ("CHARACTER", "VARCHAR", "VARGRAPHIC", "BINARY", "VARBINARY")
_TEXTS = ("CHARACTER", "VARCHAR")


def _decimal(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    return fields.decimal(settings.decimal, column.length, column.scale or 0) if column.length else None


_RULES: Mapping[str, Rule] = {
    "BOOLEAN": always("boolean"),
    "SMALLINT": always("int16"),
    "INTEGER": always("int32"),
    "BIGINT": always("int64"),
    "REAL": always("float"),
    "DOUBLE": always("double"),
    **dict.fromkeys(("DECIMAL", "NUMERIC"), _decimal),
    **dict.fromkeys(("CHARACTER", "VARCHAR", "CLOB", "VARGRAPHIC", "DBCLOB"), always("string")),
    "XML": always("string", "io.debezium.data.Xml"),
    **dict.fromkeys(("BINARY", "VARBINARY", "BLOB"), always("bytes")),
    "DATE": lambda column, settings: fields.date(settings.time),
    "TIME": lambda column, settings: fields.time_of_day(settings.time, 0),
    "TIMESTAMP": lambda column, settings: fields.timestamp(settings.time, 6 if column.scale is None else column.scale),
}


def field_of(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    """Return the field that the connector writes for a column; None where it is not known."""
    rule = _RULES.get(column.type_name)
    return rule(column, settings) if rule else None


def column_of(row: Sequence[Any]) -> CatalogueColumn:
    """Return the column that a row of the catalogue tells.

    :param row: of ``syscat.columns``: ``colname``, ``typeschema``, ``typename``, ``length``, ``scale``, ``codepage``.
    """
    name, schema, type_name, length, scale, codepage = row
    word = text(type_name).strip().upper()
    native = word + _measure(word, whole(length), whole(scale))
    is_bits = word in _TEXTS and codepage == 0
    # The scale of a decimal, and the digits of a timestamp's second.
    known = "" if is_bits or text(schema).strip() != "SYSIBM" else word
    return CatalogueColumn(text(name), known, f"{native} FOR BIT DATA" if is_bits else native, whole(length), whole(scale))


def _measure(word: str, length: int | None, scale: int | None) -> str:
    if word in ("DECIMAL", "NUMERIC"):
        return f"({length},{scale})"
    if word == "TIMESTAMP":
        return f"({scale})"
    return f"({length})" if word in _SIZED else ""
