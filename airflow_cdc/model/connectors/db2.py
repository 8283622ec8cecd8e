"""Db2: the ``db2`` connector, derived from SQL Server's.

Source: Debezium's reference. Column types that are not known: DECFLOAT, which its versions spell differently; GRAPHIC; CHAR and VARCHAR FOR
BIT DATA, which the mappings do not name; distinct types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field
from airflow_cdc.model.catalogue.modes import ConnectorSettings, having
from airflow_cdc.model.catalogue.queries import Queries
from airflow_cdc.model.connectors.connector import (
    NUMBER,
    Catalogue,
    Connector,
    Flattened,
    Images,
    NativeRule,
    PositionRule,
    Spelling,
    Transactions,
)

_LSN = re.compile(r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,16}")


def db2_lsn(text: str) -> int:
    """Return an LSN ``xxxxxxxx:xxxxxxxx:xxxxxxxxxxxxxxxx`` (hexadecimal, 16 bytes) as one number.

    Source of the rule: Debezium prints the bytes with colons behind the fourth and the eighth, and compares them one by one.
    """
    high, middle, low = (int(part, 16) for part in text.split(":"))
    return (high << 96) | (middle << 64) | low


def format_db2_lsn(number: int) -> str:
    """Return the LSN in the form of Debezium."""
    return f"{number >> 96:08x}:{number >> 64 & (2**32 - 1):08x}:{number & (2**64 - 1):016x}"


def _lsn(field: str) -> str:
    """Return the SQL of an LSN as one number; NULL for any other text."""

    def part(number: int) -> str:
        return f"CAST(conv(split_part(source.{field}, ':', {number}), 16, 10) AS {NUMBER})"

    # 16 bytes may exceed 38 digits. No real log counts that far, so such a text is not a position here.
    high = f"try_add(try_multiply({part(1)}, {2**96}BD), {part(2)} * {2**64}BD)"
    number = f"try_cast(try_add({high}, {part(3)}) AS {NUMBER})"
    return f"CASE WHEN source.{field} RLIKE '^{_LSN.pattern}$' THEN {number} END"


def _native_lsn(field: str) -> str:
    def part(number: int) -> str:
        return f"CAST(CAST('0x' || split_part(source.{field}, ':', {number}) AS UBIGINT) AS HUGEINT)"

    # Up to 28 bits in front: a larger number may have more than 38 digits.
    spelled = "0?[0-9A-Fa-f]{1,7}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,16}"
    number = f"{part(1)} * {2**96} + {part(2)} * {2**64} + {part(3)}"
    return f"CASE WHEN regexp_full_match(source.{field}, '{spelled}') THEN CAST({number} AS {NUMBER}) END"


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
    """Return the column from a row of the catalogue.

    :param row: of ``syscat.columns``: ``colname``, ``typeschema``, ``typename``, ``length``, ``scale``, ``codepage``.
    """
    name, schema, type_name, length, scale, codepage = row
    word = text(type_name).strip().upper()
    native = word + _measure(word, whole(length), whole(scale))
    is_bits = word in _TEXTS and codepage == 0
    # scale is a decimal's scale, or the fraction digits of a timestamp's second.
    known = "" if is_bits or text(schema).strip() != "SYSIBM" else word
    return CatalogueColumn(text(name), known, f"{native} FOR BIT DATA" if is_bits else native, whole(length), whole(scale))


def _measure(word: str, length: int | None, scale: int | None) -> str:
    if word in ("DECIMAL", "NUMERIC"):
        return f"({length},{scale})"
    if word == "TIMESTAMP":
        return f"({scale})"
    return f"({length})" if word in _SIZED else ""


_QUERIES = Queries(
    tables="""
SELECT CURRENT SERVER, RTRIM(tabschema), tabname FROM syscat.tables WHERE type = 'T' AND ownertype = 'U' ORDER BY 2, 3""",
    columns="""
SELECT colname, typeschema, typename, length, scale, codepage FROM syscat.columns WHERE tabschema = ? AND tabname = ? ORDER BY colno""",
    keys="""
SELECT m.colname FROM syscat.tabconst k JOIN syscat.keycoluse m
ON m.constname = k.constname AND m.tabschema = k.tabschema AND m.tabname = k.tabname
WHERE k.type = 'P' AND k.tabschema = ? AND k.tabname = ? ORDER BY m.colseq""",
)

DB2 = Connector(
    names=("db2",),
    title="Db2",
    position=PositionRule(
        fields=("commit_lsn", "change_lsn"),
        commit=_lsn("commit_lsn"),
        change=_lsn("change_lsn"),
        # A key change has no serial numbers: its delete and create share one position.
        spelling=Spelling(_LSN, db2_lsn, format_db2_lsn),
    ),
    transactions=Transactions(identity="source.commit_lsn"),
    native=NativeRule(commit=_native_lsn("commit_lsn"), change=_native_lsn("change_lsn"), transaction="source.commit_lsn"),
    # Not known; as of SQL Server.
    images=Images(before_omits_large=True),
    topic=("schema", "table"),
    # SQL Server has the same fields, but at most four digits after the second colon.
    flattened=Flattened(fields=("commit_lsn", "change_lsn"), pattern="^[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{5,16}$"),
    catalogue=Catalogue(
        queries=_QUERIES,
        column_of=column_of,
        field_of=field_of,
        # The connector writes bytes, whatever binary.handling.mode is.
        settings=having("decimal.handling.mode", "time.precision.mode"),
        connection_type="ibmdb2",
        provider="apache-airflow-providers-ibm-db2",
    ),
)
"""The entry."""
