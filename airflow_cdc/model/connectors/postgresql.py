"""PostgreSQL: the ``postgresql`` connector.

Sources: Debezium's reference; the captures ``pg_types_precise`` and ``pg_load``. Column types that are not known: those that only some
versions of the connector write (boxes, circles, sparse vectors), composite types, multiranges, arrays of domains.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text
from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.modes import ConnectorSettings, having
from airflow_cdc.model.catalogue.queries import Queries
from airflow_cdc.model.catalogue.row_hashes import CellForm, Dialect, bars, double_quoted
from airflow_cdc.model.connectors.connector import (
    NUMBER,
    Catalogue,
    Connector,
    Cut,
    Flattened,
    Images,
    NativeRule,
    PositionRule,
    Snapshots,
    Spelling,
    Transactions,
)

_LSN_BITS = 32


def postgres_lsn(text: str) -> int:
    """Return a PostgreSQL LSN ``0/16B3748`` (two hexadecimal numbers of 32 bits) as one number."""
    high, low = (int(part, 16) for part in text.split("/"))
    return (high << _LSN_BITS) | low


def format_postgres_lsn(number: int) -> str:
    """Return the LSN in the form of PostgreSQL."""
    return f"{number >> _LSN_BITS:X}/{number & (2**_LSN_BITS - 1):X}"


def postgres_sequence(text: str) -> tuple[int | None, int | None]:
    """Return ``source.sequence``: (last commit LSN, change LSN), either may be absent."""
    commit, change = json.loads(text)
    return (None if commit is None else int(commit)), (None if change is None else int(change))


def _sequence(place: int) -> str:
    number = f"try_cast(get(from_json(source.sequence, 'ARRAY<STRING>'), {place}) AS {NUMBER})"
    # The usual form of all connectors: parsing it as JSON costs as much as parsing a whole line.
    usual = f"trim(BOTH '[]\"' FROM split_part(source.sequence, ',', {place + 1}))"
    return rf"""if(source.sequence RLIKE r'^\[(null|"\d{{1,38}}"),"\d{{1,38}}"\]$', CAST(nullif({usual}, 'null') AS {NUMBER}), {number})"""


def _native_sequence(place: int) -> str:
    number = rf"TRY_CAST(nullif(trim(split_part(source.sequence, ',', {place + 1}), '[]\"'), 'null') AS {NUMBER})"
    return rf"""CASE WHEN regexp_full_match(source.sequence, '\[(null|"[0-9]{{1,38}}"),"[0-9]{{1,38}}"\]') THEN {number} END"""


ENUM = "enum"
_BASE_TYPES = frozenset("br")
"""``pg_type.typtype`` of base types and of ranges."""
_HEADER = 4
"""PostgreSQL's offset in the modifiers of types with a length (``VARHDRSZ``)."""
_LONGEST = 2_147_483_647


def _numeric(column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    if column.length is None:
        return fields.variable_decimal(settings.decimal)
    return fields.decimal(settings.decimal, column.length, column.scale or 0)


def _money(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    # Its precision is not available; its scale is money.fraction.digits, 2 by default.
    return literal("bytes", fields.DECIMAL, scale="2") if settings.decimal == "precise" else literal(settings.decimal)


def _hstore(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    if settings.hstore == "map":
        return {"type": "map", "keys": literal("string"), "values": literal("string")}
    return literal("string", "io.debezium.data.Json")


def _vector(kind: str, name: str) -> Rule:
    return lambda column, settings: {**fields.array(literal(kind)), "name": name}


_TEXTS = ("bpchar", "varchar", "text", "char", "citext", "inet", "cidr", "macaddr", "macaddr8")
_RANGES = ("int4range", "int8range", "numrange", "tsrange", "tstzrange", "daterange")

_IN_ARRAYS: Mapping[str, Rule] = {
    "bool": always("boolean"),
    "int2": always("int16"),
    "int4": always("int32"),
    **dict.fromkeys(("int8", "oid"), always("int64")),
    "float4": always("float"),
    "float8": always("double"),
    "numeric": _numeric,
    **dict.fromkeys((*_TEXTS, *_RANGES), always("string")),
    "uuid": always("string", "io.debezium.data.Uuid"),
    **dict.fromkeys(("json", "jsonb"), always("string", "io.debezium.data.Json")),
    "ltree": always("string", "io.debezium.data.Ltree"),
    "bytea": lambda column, settings: fields.binary(settings.binary),
    "date": lambda column, settings: fields.date(settings.time),
    "time": lambda column, settings: fields.time_of_day(settings.time, 6 if column.scale is None else column.scale),
    "timetz": always("string", "io.debezium.time.ZonedTime"),
    "timestamp": lambda column, settings: fields.timestamp(settings.time, 6 if column.scale is None else column.scale),
    "timestamptz": always("string", fields.ZONED),
    "hstore": _hstore,
    "geometry": lambda column, settings: fields.geometry(),
    "geography": lambda column, settings: fields.geometry("Geography"),
    ENUM: lambda column, settings: literal("string", "io.debezium.data.Enum", allowed=column.labels),
}
"""Types that the connector writes both alone and as array elements."""

_RULES: Mapping[str, Rule] = {
    **_IN_ARRAYS,
    "name": always("string"),
    "money": _money,
    "xml": always("string", "io.debezium.data.Xml"),
    "tsvector": always("string", "io.debezium.data.Tsvector"),
    "interval": lambda column, settings: fields.interval(settings.interval),
    **dict.fromkeys(("bit", "varbit"), lambda column, settings: fields.bits(column.length or _LONGEST)),
    "point": lambda column, settings: fields.point(),
    "vector": _vector("double", "io.debezium.data.DoubleVector"),
    "halfvec": _vector("float", "io.debezium.data.FloatVector"),
}


def field_of(column: CatalogueColumn, settings: ConnectorSettings) -> Field | None:
    """Return the field that the connector writes for a column; None where it is not known."""
    rule = (_IN_ARRAYS if column.is_array else _RULES).get(column.type_name)
    found = rule(column, settings) if rule else None
    return fields.array(found) if found and column.is_array else found


def column_of(row: Sequence[Any]) -> CatalogueColumn:
    """Return the column from a row of the catalogue.

    :param row: name; type for people; name and ``typtype`` of the base or element type; whether it is an array; the modifier; the labels of
        an enumeration, separated by commas.
    """
    name, native, type_name, kind, is_array, modifier, labels = row
    plain = ENUM if text(kind) == "e" else text(type_name) if text(kind) in _BASE_TYPES else ""
    length, scale = _measures(plain, -1 if modifier is None else int(modifier))
    return CatalogueColumn(text(name), plain, text(native), length, scale, bool(is_array), text(labels or ""))


def _measures(type_name: str, modifier: int) -> tuple[int | None, int | None]:
    """Return length and scale from a type's modifier (``pg_attribute.atttypmod``), as the driver and therefore the connector read it."""
    if modifier < 0:
        return None, None
    if type_name == "numeric":
        # For numeric(5,-2) the scale is 2046, and the connector writes that.
        return (modifier - _HEADER) >> 16 & 0xFFFF, (modifier - _HEADER) & 0xFFFF
    if type_name in ("time", "timestamp"):
        return None, modifier
    return (modifier, None) if type_name in ("bit", "varbit") else (None, None)


_QUERIES = Queries(
    tables="""
SELECT current_database(), n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2, 3""",
    # A domain is resolved to its base type; the first modifier on the way counts.
    columns="""
WITH RECURSIVE found AS (
  SELECT a.attnum AS place, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS native,
    a.atttypid AS type, a.atttypmod AS modifier
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = ? AND c.relname = ? AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT f.place, f.attname, f.native, t.typbasetype, CASE WHEN f.modifier = -1 THEN t.typtypmod ELSE f.modifier END
  FROM found f JOIN pg_catalog.pg_type t ON t.oid = f.type WHERE t.typtype = 'd'
)
SELECT f.attname, f.native, coalesce(e.typname, t.typname), coalesce(e.typtype, t.typtype), e.oid IS NOT NULL, f.modifier,
  (SELECT string_agg(l.enumlabel, ',' ORDER BY l.enumsortorder) FROM pg_catalog.pg_enum l WHERE l.enumtypid = coalesce(e.oid, t.oid))
FROM found f JOIN pg_catalog.pg_type t ON t.oid = f.type AND t.typtype <> 'd' LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
ORDER BY f.place""",
    keys="""
SELECT a.attname FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS m (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = m.attnum
WHERE k.contype = 'p' AND n.nspname = ? AND c.relname = ? ORDER BY m.place""",
)

_SECONDS = "EXTRACT(EPOCH FROM date_trunc('second', {c}))::bigint * 1000000 + EXTRACT(MICROSECONDS FROM {c})::bigint % 1000000"
# A day of infinity minus another raises an error.
_FINITE = "CASE WHEN isfinite({c}) THEN ({value})::text ELSE {c}::text END"

_DIALECT = Dialect(
    quote=double_quoted,
    forms={
        CellForm.WHOLE: "{c}::text",
        # MONEY has no other text that is a number's.
        CellForm.DECIMAL: "{c}::numeric::text",
        # concat, because a cast of CHARACTER(n) cuts its blanks off.
        CellForm.TEXT: "CASE WHEN {c} IS NOT NULL THEN concat({c}) END",
        CellForm.BOOLEAN: "{c}::int::text",
        CellForm.BYTES: "{c}",
        CellForm.DAY: _FINITE.replace("{value}", "{c} - DATE '1970-01-01'"),
        CellForm.MICROSECONDS: _FINITE.replace("{value}", _SECONDS),
        CellForm.INSTANT: _FINITE.replace("{value}", _SECONDS),
    },
    join=bars,
    length="char_length",
    digits="md5(convert_to({t}, 'UTF8'))",
    digits_of_bytes="md5({t})",
    # A policy would hide rows; so it is an error.
    session=("SET row_security = off",),
    # A table's events are its own rows', not those of tables that inherit from it. A partitioned table has no other rows.
    before_name="""
SELECT CASE c.relkind WHEN 'r' THEN 'ONLY ' ELSE '' END FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ?""",
    number="('x' || {d})::bit(60)::bigint",
    clock="SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint",
)

POSTGRESQL = Connector(
    names=("postgresql",),
    title="PostgreSQL",
    position=PositionRule(
        # lsn alone is not monotone: transactions interleave. sequence is [last commit, lsn]; the first event has no last commit.
        fields=("sequence", "lsn", "txId"),
        commit=f"coalesce({_sequence(0)}, {_sequence(1)})",
        # Versions 1.5 and 1.6 write the last commit twice; lsn alone tells the changes apart.
        change=f"if({_sequence(1)} IS NULL, NULL, coalesce(try_cast(source.lsn AS {NUMBER}), {_sequence(1)}))",
        spelling=Spelling(re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"), postgres_lsn, format_postgres_lsn),
        # COPY logs many rows as one record.
        is_shared_by_rows=True,
    ),
    transactions=Transactions(identity="source.txId"),
    native=NativeRule(
        commit=f"coalesce({_native_sequence(0)}, {_native_sequence(1)})",
        change=f"coalesce(TRY_CAST(source.lsn AS {NUMBER}), {_native_sequence(1)})",
        transaction="source.txId",
    ),
    # Counted over 20,410 reads without an exception: docs/reference/dialects.md. A blocking snapshot's reads have both numbers.
    snapshots=Snapshots(initial="coalesce(source.sequence LIKE '[null,%', false)"),
    # REPLICA IDENTITY FULL writes the whole old row; any other the columns of an index.
    images=Images(before_has_omitted=True, before_has_fillers=True),
    topic=("schema", "table"),
    # Other connectors have a sequence too.
    flattened=Flattened(fields=("sequence", "lsn"), may_be_anothers=True),
    # The id is txId:lsn, and the LSN differs between BEGIN, each event and END (captures pg_load).
    cut=Cut(re.compile(r"(?P<key>\d+):(?P<place>\d+)"), int),
    catalogue=Catalogue(
        queries=_QUERIES,
        column_of=column_of,
        field_of=field_of,
        settings=having(
            "decimal.handling.mode", "time.precision.mode", "binary.handling.mode", "interval.handling.mode", "hstore.handling.mode"
        ),
        connection_type="postgres",
        provider="apache-airflow-providers-postgres",
        dialect=_DIALECT,
    ),
)
"""The entry."""
