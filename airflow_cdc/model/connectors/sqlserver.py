"""SQL Server: the ``sqlserver`` connector.

Sources: Debezium's reference; the capture ``sqlserver_synth``. Column types that are not known: ``rowversion``, ``sql_variant``,
``hierarchyid``, geometries.
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
    AS_TEXT,
    NUMBER,
    Catalogue,
    Connector,
    Cut,
    Flattened,
    Images,
    NativeRule,
    PositionRule,
    SchemaChanges,
    Spelling,
    Transactions,
    Types,
)

_BLOCK_BITS, _SLOT_BITS = 32, 16
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,4}")


def sqlserver_lsn(text: str) -> int:
    """Return a SQL Server LSN ``vlf:block:slot`` (hexadecimal, 32 + 32 + 16 bits) as one number.

    Source of the rule: the ten bytes of ``sys.fn_cdc_get_max_lsn`` compare as one unsigned number.
    """
    vlf, block, slot = (int(part, 16) for part in text.split(":"))
    return (vlf << (_BLOCK_BITS + _SLOT_BITS)) | (block << _SLOT_BITS) | slot


def format_sqlserver_lsn(number: int) -> str:
    """Return the LSN in the form of SQL Server and Debezium."""
    slot = number & 0xFFFF
    block = (number >> _SLOT_BITS) & 0xFFFFFFFF
    return f"{number >> (_BLOCK_BITS + _SLOT_BITS):08x}:{block:08x}:{slot:04x}"


def _lsn(field: str) -> str:
    """Return the SQL of an LSN as one number; NULL for any other text."""

    def part(number: int, weight: int) -> str:
        digits = f"conv(split_part(source.{field}, ':', {number}), 16, 10)"
        return f"CAST({digits} AS {NUMBER}) * {weight}BD"

    number = f"{part(1, 2**48)} + {part(2, 2**16)} + {part(3, 1)}"
    # The usual form, which fits into 64 bits: taking all of them apart would cost a tenth of a microbatch.
    digits = f"concat(substr(source.{field}, 5, 4), substr(source.{field}, 10, 8), substr(source.{field}, 19, 4))"
    # unhex is NULL for any other character. A pattern would cost twice as much as all the rest.
    is_usual = (
        f"(octet_length(source.{field}) = 22 AND startswith(source.{field}, '0000') AND substr(source.{field}, 9, 1) = ':'"
        f" AND substr(source.{field}, 18, 1) = ':' AND unhex({digits}) IS NOT NULL)"
    )
    is_any = f"source.{field} RLIKE '^{_LSN.pattern}$'"
    return f"CASE WHEN {is_usual} THEN CAST(conv({digits}, 16, 10) AS {NUMBER}) WHEN {is_any} THEN CAST({number} AS {NUMBER}) END"


def _native_lsn(field: str) -> str:
    def part(number: int, weight: int) -> str:
        return f"CAST(CAST('0x' || split_part(source.{field}, ':', {number}) AS UBIGINT) AS HUGEINT) * {weight}"

    number = f"{part(1, 2**48)} + {part(2, 2**16)} + {part(3, 1)}"
    # The usual form, as above. DuckDB takes underscores between digits.
    digits = f"substr(source.{field}, 5, 4) || substr(source.{field}, 10, 8) || substr(source.{field}, 19, 4)"
    has_form = f"strlen(source.{field}) = 22 AND starts_with(source.{field}, '0000') AND NOT contains(source.{field}, '_')"
    is_usual = f"{has_form} AND source.{field}[9] = ':' AND source.{field}[18] = ':'"
    usual = f"CAST(TRY_CAST('0x' || {digits} AS UBIGINT) AS {NUMBER})"
    is_any = f"regexp_full_match(source.{field}, '{_LSN.pattern}')"
    return f"CASE WHEN {is_usual} THEN {usual} WHEN {is_any} THEN CAST({number} AS {NUMBER}) END"


FIXED_DIGITS: Mapping[str, int] = {"DATETIME": 3, "SMALLDATETIME": 0}
"""Fraction digits of the second for types without a length."""
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
    """Return the column from a row of the catalogue.

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


_QUERIES = Queries(
    tables="""
SELECT DB_NAME(), s.name, t.name FROM sys.tables t JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE t.is_ms_shipped = 0 ORDER BY s.name, t.name""",
    # An alias type is resolved to its base type; a CLR type has none.
    columns="""
SELECT c.name, d.name, coalesce(b.name, d.name), c.max_length, c.precision, c.scale
FROM sys.columns c JOIN sys.tables t ON t.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = t.schema_id
JOIN sys.types d ON d.user_type_id = c.user_type_id LEFT JOIN sys.types b ON b.user_type_id = c.system_type_id
WHERE s.name = ? AND t.name = ? ORDER BY c.column_id""",
    keys="""
SELECT c.name FROM sys.indexes i JOIN sys.index_columns m ON m.object_id = i.object_id AND m.index_id = i.index_id
JOIN sys.columns c ON c.object_id = m.object_id AND c.column_id = m.column_id
JOIN sys.tables t ON t.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE i.is_primary_key = 1 AND m.key_ordinal > 0 AND s.name = ? AND t.name = ? ORDER BY m.key_ordinal""",
)

SQLSERVER = Connector(
    names=("sqlserver",),
    title="SQL Server",
    position=PositionRule(
        fields=("commit_lsn", "change_lsn", "event_serial_no"),
        commit=_lsn("commit_lsn"),
        change=_lsn("change_lsn"),
        # A number in the schema, a string in the documentation's examples; 1 where the connector leaves it out.
        serial="coalesce(try_cast(source.event_serial_no AS BIGINT), 1)",
        spelling=Spelling(_LSN, sqlserver_lsn, format_sqlserver_lsn),
        # One connector may capture several databases, each with a log of its own.
        log=("name", "db"),
    ),
    transactions=Transactions(identity="source.commit_lsn"),
    native=NativeRule(
        commit=_native_lsn("commit_lsn"),
        change=_native_lsn("change_lsn"),
        # Only the plain form of a number: Spark's cast accepts others.
        serial="CASE WHEN source.event_serial_no IS NULL THEN 1 WHEN regexp_full_match(source.event_serial_no, '[0-9]{1,18}')"
        " THEN CAST(source.event_serial_no AS BIGINT) END",
        transaction="source.commit_lsn",
    ),
    # The change table holds no large object of the row before (docs/sources/sqlserver.md#large-values).
    images=Images(before_omits_large=True),
    # DATETIMEOFFSET holds an offset and 100 ns; a Spark TIMESTAMP holds neither.
    types=Types(own={fields.ZONED: AS_TEXT}),
    topic=("db", "schema", "table"),
    flattened=Flattened(fields=("commit_lsn", "change_lsn")),
    # The transaction's id is its commit LSN.
    cut=Cut(re.compile(f"(?P<key>(?P<place>{_LSN.pattern}))"), sqlserver_lsn),
    catalogue=Catalogue(
        queries=_QUERIES,
        column_of=column_of,
        field_of=field_of,
        settings=having("decimal.handling.mode", "time.precision.mode", "binary.handling.mode"),
        connection_type="mssql",
        provider="apache-airflow-providers-microsoft-mssql",
        words=("sql server",),
    ),
    schema_changes=SchemaChanges(fixed_digits=FIXED_DIGITS, seconds={"TIME": 86_400}),
)
"""The entry."""
