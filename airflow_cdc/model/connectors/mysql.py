"""MySQL and MariaDB: the ``mysql`` and the ``mariadb`` connector.

Sources: Debezium's reference; the captures ``maria_types_precise`` and ``maria_load``. Column types that are not known: INET4 and INET6,
which the connectors do not name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text, whole
from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.modes import ConnectorSettings, having
from airflow_cdc.model.catalogue.queries import Queries
from airflow_cdc.model.catalogue.row_hashes import CellForm, Dialect, concatenated
from airflow_cdc.model.connectors.connector import (
    AS_SIGNED_TIME,
    NUMBER,
    Catalogue,
    Connector,
    Flattened,
    NativeRule,
    PositionRule,
    SchemaChanges,
    Snapshots,
    Spelling,
    Transactions,
    Types,
)

_FILE_BITS = 64
"""File and offset make one number, as a snapshot read needs it: no file reaches 2^64 bytes."""

# The number behind the last dot of mariadb-bin.000003: as text, .1000000 sorts before .999999. gtid gives no order: it holds domain and
# server too.
_FILE = rf"try_cast(regexp_extract(source.file, r'\.(\d+)\s*$', 1) AS {NUMBER})"


_NATIVE_FILE = r"CAST(regexp_extract(source.file, '\.([0-9]{1,9})$', 1) AS HUGEINT)"
_NATIVE_PLACE = (
    rf"CASE WHEN regexp_matches(source.file, '\.[0-9]{{1,9}}$') AND regexp_full_match(source.pos, '[0-9]{{1,18}}')"
    rf" THEN CAST({_NATIVE_FILE} * {2**_FILE_BITS} + CAST(source.pos AS HUGEINT) AS {NUMBER}) END"
)
_NATIVE_ROW = (
    f"CASE WHEN source.row IS NULL THEN CAST(0 AS {NUMBER}) WHEN regexp_full_match(source.row, '[0-9]{{1,18}}')"
    f" THEN CAST(source.row AS {NUMBER}) END"
)


def binlog_position(text: str) -> int:
    """Return a position ``binlog.000003:1234`` as one number."""
    file, _, place = text.rpartition(":")
    return (int(file.rpartition(".")[2]) << _FILE_BITS) | int(place)


def format_binlog_position(number: int) -> str:
    """Return the position as ``*.000003:1234``: the number does not hold the name of the binlog before its last dot."""
    return f"*.{number >> _FILE_BITS:06d}:{number & (2**_FILE_BITS - 1)}"


_LABEL = re.compile(r"'((?:[^']|'')*)'")
_FLOAT_DIGITS = 24
"""FLOAT(p) up to this precision is single precision."""


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
    # TINYINT(1) too: the connector writes a boolean only where a statement used the word BOOLEAN.
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
    """Return the column from a row of the catalogue.

    :param row: ``column_name``, ``column_type``, ``data_type``, ``numeric_precision``, ``numeric_scale``, ``datetime_precision``.
    """
    name, native, data_type, digits, scale, fraction = row
    spelled, type_name = text(native), text(data_type).upper()
    labels = _allowed(spelled) if type_name in ("ENUM", "SET") else ""
    if not labels and " unsigned" in spelled.lower():
        type_name += " UNSIGNED"
    # The catalogue shows FLOAT's default 12 digits where the definition has none.
    length = None if type_name.startswith("FLOAT") else whole(digits)
    return CatalogueColumn(text(name), type_name, spelled, length, whole(scale if fraction is None else fraction), labels=labels)


def _allowed(native: str) -> str:
    """Return the labels of ``enum('a','b,c')`` as the connector lists them."""
    return ",".join(label.replace("''", "'").replace(",", "\\,") for label in _LABEL.findall(native))


_QUERIES = Queries(
    tables="""
SELECT table_schema, table_schema, table_name FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 2, 3""",
    columns="""
SELECT column_name, column_type, data_type, numeric_precision, numeric_scale, datetime_precision FROM information_schema.columns
WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position""",
    keys="""
SELECT column_name FROM information_schema.key_column_usage
WHERE constraint_name = 'PRIMARY' AND table_schema = ? AND table_name = ? ORDER BY ordinal_position""",
)

# Both connectors refuse to start with "adaptive".
_SETTINGS = {
    **having("decimal.handling.mode", "binary.handling.mode", "bigint.unsigned.handling.mode"),
    "time.precision.mode": ("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
}

_DIALECT = Dialect(
    quote=lambda name: "`" + name.replace("`", "``") + "`",
    forms={
        # A cast, because ZEROFILL shows in the text of a number.
        CellForm.WHOLE: "CAST(CAST({c} AS DECIMAL(65,0)) AS CHAR)",
        CellForm.DECIMAL: "CAST(({c} + 0) AS CHAR)",
        CellForm.TEXT: "CONVERT({c} USING utf8mb4)",
        CellForm.BOOLEAN: "CAST(({c} + 0) AS CHAR)",
        CellForm.BYTES: "{c}",
        CellForm.DAY: "CAST(DATEDIFF({c}, '1970-01-01') AS CHAR)",
        CellForm.MICROSECONDS: "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', {c}) AS CHAR)",
        # Of a TIMESTAMP it is what is stored, whatever the session's zone and its hour that comes twice.
        CellForm.INSTANT: "CAST(CAST(UNIX_TIMESTAMP({c}) * 1000000 AS SIGNED) AS CHAR)",
    },
    join=concatenated,
    length="CHAR_LENGTH",
    digits="MD5(CONVERT({t} USING utf8mb4))",
    digits_of_bytes="MD5({t})",
    # PAD_CHAR_TO_FULL_LENGTH would pad texts.
    session=("SET SESSION sql_mode = ''",),
    number="CAST(CONV({d}, 16, 10) AS UNSIGNED)",
    clock="SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)",
)

MYSQL = Connector(
    names=("mysql", "mariadb"),
    title="MySQL and MariaDB",
    position=PositionRule(
        fields=("file", "pos", "row", "gtid"),
        commit=f"CAST({_FILE} * {2**_FILE_BITS}BD + try_cast(source.pos AS {NUMBER}) AS {NUMBER})",
        # One event of the log holds the rows of one statement. All events of a compressed transaction have the position of the whole.
        change=f"coalesce(try_cast(source.row AS {NUMBER}), CAST(0 AS {NUMBER}))",
        change_restarts=True,
        spelling=Spelling(re.compile(r".*\.\d+:\d+"), binlog_position, format_binlog_position),
    ),
    # Without GTIDs transactions cannot be distinguished, and need not be: a key is free before another row takes it.
    transactions=Transactions(identity="source.gtid"),
    native=NativeRule(commit=_NATIVE_PLACE, change=_NATIVE_ROW, transaction="source.gtid"),
    # Only with GTIDs; the reads of a blocking snapshot carry the GTID at which the stream paused.
    snapshots=Snapshots(initial="source.gtid IS NULL", initial_needs="gtid"),
    # TIME is also a duration: -838:59:59 to 838:59:59.
    types=Types(own=dict.fromkeys((*fields.TIMES_OF_DAY, fields.CONNECT_TIME), AS_SIGNED_TIME)),
    topic=("db", "table"),
    flattened=Flattened(fields=("file", "pos")),
    catalogue=Catalogue(
        queries=_QUERIES,
        column_of=column_of,
        field_of=field_of,
        settings=_SETTINGS,
        # One connection type for both; their connectors treat UUIDs differently and have different names.
        connection_type="mysql",
        provider="apache-airflow-providers-mysql",
        name_query="SELECT version()",
        dialect=_DIALECT,
    ),
    schema_changes=SchemaChanges(
        settings={"bigint.unsigned.handling.mode": "precise"},
        texts=("INET4", "INET6"),
        unclear_with_length=("FLOAT",),
        length_is_digits=("TIME", "DATETIME"),
        seconds={"TIME": 839 * 3_600},
    ),
)
"""The entry."""
