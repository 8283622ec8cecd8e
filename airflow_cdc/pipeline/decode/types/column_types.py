"""Relations between Spark SQL types: which type holds the values of another."""

from __future__ import annotations

import re

from airflow_cdc.pipeline.decode.types.decimal_types import MAX_PRECISION

_SYNONYMS = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}


def canonical(sql_type: str) -> str:
    """Return a Spark SQL type by the name that a table reports: ``decimal(10, 2)`` is ``DECIMAL(10,2)``, ``long`` ``BIGINT``."""
    name, bracket, parameters = re.sub(r"\s+", "", sql_type).upper().partition("(")
    known = _SYNONYMS.get(name, name)
    return "DECIMAL(10,0)" if known == "DECIMAL" and not bracket else known + bracket + parameters


_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_INTEGER_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}


def holds(column: str, value: str) -> bool:
    """Return whether a column of one Spark SQL type holds every value of another type."""
    if column == value:
        return True
    if column == "STRING":
        # Readers disagree on an array's text, and bytes need not be text.
        return value != "BINARY" and not value.startswith("ARRAY<")
    if column in _INTEGERS and value in _INTEGERS:
        return _INTEGERS.index(value) <= _INTEGERS.index(column)
    if column == "DOUBLE":
        return value in ("FLOAT", "TINYINT", "SMALLINT", "INT")
    if column.startswith("DECIMAL") and (value.startswith("DECIMAL") or value in _INTEGERS):
        (p1, s1), (p2, s2) = _decimal_parts(column), _decimal_parts(value)
        return s1 >= s2 and p1 - s1 >= p2 - s2
    # A date converts to its midnight. With a time zone, the zone of that midnight would be unknown.
    return (column, value) == ("TIMESTAMP_NTZ", "DATE")


def common_type(one: str, other: str) -> str | None:
    """Return the narrowest Spark SQL type that holds every value of both types, None if only text does."""
    if holds(one, other) and one != "STRING":
        return one
    if holds(other, one) and other != "STRING":
        return other
    numbers = [kind for kind in (one, other) if kind.startswith("DECIMAL") or kind in _INTEGERS]
    if len(numbers) < 2:
        return "DOUBLE" if holds("DOUBLE", one) and holds("DOUBLE", other) else None
    (p1, s1), (p2, s2) = _decimal_parts(one), _decimal_parts(other)
    scale = max(s1, s2)
    precision = max(p1 - s1, p2 - s2) + scale
    return f"DECIMAL({precision},{scale})" if precision <= MAX_PRECISION else None


def widened(column: str, value: str) -> str | None:
    """Return the type to which Delta can widen a column so that it also holds another type's values, None if there is none.

    Source: Delta's protocol, type widening: integers to wider ones, to DECIMAL, up to INT to DOUBLE; FLOAT to DOUBLE; DECIMAL by
    digits before and behind the point; DATE to TIMESTAMP_NTZ.
    """
    wider = common_type(column, value)
    if wider is None or wider == column:
        return wider
    if wider.startswith("DECIMAL") and column in _INTEGERS:
        precision, scale = _decimal_parts(wider)
        # Delta requires room for 20 digits from BIGINT, and for 10 from any shorter integer.
        before_point = max(precision - scale, 20 if column == "BIGINT" else 10)
        return f"DECIMAL({before_point + scale},{scale})" if before_point + scale <= MAX_PRECISION else None
    return wider


def _decimal_parts(kind: str) -> tuple[int, int]:
    if kind in _INTEGERS:
        return _INTEGER_DIGITS[kind], 0
    precision, scale = kind[kind.index("(") + 1 : -1].split(",")
    return int(precision), int(scale)


def reads_alike(column: str, value: str) -> bool:
    """Return whether a column's rule also reads events of a narrower type of its kind: integers, decimals of the same scale.

    It does not read a decimal of another scale: the bytes are digits, and only the event's own schema carries the scale.
    """
    if column == value:
        return True
    both_integers = column in _INTEGERS and value in _INTEGERS
    same_scale = column.startswith("DECIMAL") and value.startswith("DECIMAL") and _decimal_parts(column)[1] == _decimal_parts(value)[1]
    return (both_integers or same_scale) and holds(column, value)
