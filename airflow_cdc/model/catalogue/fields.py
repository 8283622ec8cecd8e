"""Fields of Connect schemas, as Debezium's connectors build them; each by the setting that changes it.

Sources: the "data type mappings" of Debezium's reference; the captures under tests/golden, whose events carry their schemas. Optionality
and defaults are left out, because they do not change how a value is read.
"""

from __future__ import annotations

from typing import Any

Field = dict[str, Any]

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
DATE = "io.debezium.time.Date"
ZONED = "io.debezium.time.ZonedTimestamp"
TIMES_OF_DAY = {
    "io.debezium.time.Time": 1_000,
    "io.debezium.time.MicroTime": 1_000_000,
    "io.debezium.time.NanoTime": 1_000_000_000,
}
"""Units per second."""
CONNECT_TIME = "org.apache.kafka.connect.data.Time"
"""Milliseconds since midnight, in every mode of the connector."""


def literal(kind: str, name: str | None = None, **parameters: str) -> Field:
    """Return a field of a literal type, with a semantic type and its parameters where there are any."""
    return {"type": kind, **({"name": name} if name else {}), **({"parameters": parameters} if parameters else {})}


def decimal(mode: str, precision: int, scale: int) -> Field:
    """Return the field of decimals of one scale.

    :param mode: ``decimal.handling.mode``.
    """
    if mode != "precise":
        return literal(mode)
    return literal("bytes", DECIMAL, scale=str(scale), **{"connect.decimal.precision": str(precision)})


def variable_decimal(mode: str) -> Field:
    """Return the field of decimals with individual scales."""
    if mode != "precise":
        return literal(mode)
    fields = [{"field": "scale", "type": "int32"}, {"field": "value", "type": "bytes"}]
    return {"type": "struct", "fields": fields, "name": VARIABLE_SCALE_DECIMAL}


def date(mode: str) -> Field:
    """Return the field of dates.

    :param mode: ``time.precision.mode``.
    """
    if mode == "isostring":
        return literal("string", "io.debezium.time.IsoDate")
    return literal("int32", "org.apache.kafka.connect.data.Date" if mode == "connect" else DATE)


def time_of_day(mode: str, digits: int) -> Field:
    """Return the field of times without a date.

    :param digits: of the second, behind the point.
    """
    if mode == "isostring":
        return literal("string", "io.debezium.time.IsoTime")
    if mode == "connect":
        return literal("int32", "org.apache.kafka.connect.data.Time")
    unit = "Micro" if mode == "adaptive_time_microseconds" else _unit(mode, digits)
    return literal("int64" if unit else "int32", f"io.debezium.time.{unit}Time")


def timestamp(mode: str, digits: int) -> Field:
    """Return the field of timestamps without a zone."""
    if mode == "isostring":
        return literal("string", "io.debezium.time.IsoTimestamp")
    if mode == "connect":
        return literal("int64", "org.apache.kafka.connect.data.Timestamp")
    return literal("int64", f"io.debezium.time.{_unit(mode, digits)}Timestamp")


def _unit(mode: str, digits: int) -> str:
    fixed = {"microseconds": "Micro", "nanoseconds": "Nano"}.get(mode)
    return fixed or ("" if digits <= 3 else "Micro" if digits <= 6 else "Nano")


def interval(mode: str) -> Field:
    """Return the field of intervals.

    :param mode: ``interval.handling.mode``.
    """
    return literal("string", "io.debezium.time.Interval") if mode == "string" else literal("int64", "io.debezium.time.MicroDuration")


def binary(mode: str) -> Field:
    """Return the field of bytes.

    :param mode: ``binary.handling.mode``; text of bytes is a text to Connect.
    """
    return literal("bytes" if mode == "bytes" else "string")


def bits(count: int) -> Field:
    """Return the field of a bit string; a single bit is a boolean."""
    return literal("bytes", "io.debezium.data.Bits", length=str(count)) if count > 1 else literal("boolean")


def array(items: Field) -> Field:
    """Return the field of an array."""
    return {"type": "array", "items": items}


def point() -> Field:
    """Return the field of a point."""
    return _geometry("Point", {"x": "double", "y": "double", "wkb": "bytes", "srid": "int32"})


def geometry(name: str = "Geometry") -> Field:
    """Return the field of other geometries, and of geographies."""
    return _geometry(name, {"wkb": "bytes", "srid": "int32"})


def _geometry(name: str, members: dict[str, str]) -> Field:
    fields = [{"field": member, "type": kind} for member, kind in members.items()]
    return {"type": "struct", "fields": fields, "name": f"io.debezium.data.geometry.{name}"}
