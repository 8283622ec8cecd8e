"""PostgreSQL's column types as the ``postgresql`` connector spells them.

Sources: "Data type mappings" of Debezium's PostgreSQL connector; the captures ``pg_types_precise`` and ``pg_load``. Not known: types that
only some versions of the connector write (boxes, circles, sparse vectors), composite types, multiranges, arrays of domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.catalogue import fields
from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule, always, text
from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.settings import ConnectorSettings

ENUM = "enum"
_BASE_TYPES = frozenset("br")
"""``pg_type.typtype`` of base types and of ranges."""
_HEADER = 4
"""What PostgreSQL adds to the modifiers of its types with a length (``VARHDRSZ``)."""
_LONGEST = 2_147_483_647


def _numeric(column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    if column.length is None:
        return fields.variable_decimal(settings.decimal)
    return fields.decimal(settings.decimal, column.length, column.scale or 0)


def _money(_column: CatalogueColumn, settings: ConnectorSettings) -> Field:
    # Its precision is told nowhere; its scale is money.fraction.digits, of which 2 is the default.
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
"""Types that the connector writes alone and as elements of an array."""

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
    """Return the column that a row of the catalogue tells.

    :param row: name; type as people write it; name and ``typtype`` of the base or element type; whether it is an array; the modifier; the
        labels of an enumeration, separated by commas.
    """
    name, native, type_name, kind, is_array, modifier, labels = row
    plain = ENUM if text(kind) == "e" else text(type_name) if text(kind) in _BASE_TYPES else ""
    length, scale = _measures(plain, -1 if modifier is None else int(modifier))
    return CatalogueColumn(text(name), plain, text(native), length, scale, bool(is_array), text(labels or ""))


def _measures(type_name: str, modifier: int) -> tuple[int | None, int | None]:
    """Return length and scale as the driver, and so the connector, takes them from a type's modifier (``pg_attribute.atttypmod``)."""
    if modifier < 0:
        return None, None
    if type_name == "numeric":
        # Of numeric(5,-2) this is 2046, and so writes the connector.
        return (modifier - _HEADER) >> 16 & 0xFFFF, (modifier - _HEADER) & 0xFFFF
    if type_name in ("time", "timestamp"):
        return None, modifier
    return (modifier, None) if type_name in ("bit", "varbit") else (None, None)
