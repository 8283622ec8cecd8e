"""Which Spark SQL types hold the values of which others."""

from __future__ import annotations

import re

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
    """Return a Spark SQL type by the name that a table tells it by: ``decimal(10, 2)`` is ``DECIMAL(10,2)``, ``long`` ``BIGINT``."""
    name, bracket, parameters = re.sub(r"\s+", "", sql_type).upper().partition("(")
    known = _SYNONYMS.get(name, name)
    return "DECIMAL(10,0)" if known == "DECIMAL" and not bracket else known + bracket + parameters


_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def holds(column: str, value: str) -> bool:
    """Tell whether every value of one Spark SQL type is a value of a column of another."""
    if column in {value, "STRING"}:
        return True
    if column in _INTEGERS and value in _INTEGERS:
        return _INTEGERS.index(value) <= _INTEGERS.index(column)
    if column == "DOUBLE":
        return value in ("FLOAT", "TINYINT", "SMALLINT", "INT")
    if column.startswith("DECIMAL") and value.startswith("DECIMAL"):
        (p1, s1), (p2, s2) = _decimal_parts(column), _decimal_parts(value)
        return s1 >= s2 and p1 - s1 >= p2 - s2
    return False


def _decimal_parts(kind: str) -> tuple[int, int]:
    precision, scale = kind[kind.index("(") + 1 : -1].split(",")
    return int(precision), int(scale)


def reads_alike(column: str, value: str) -> bool:
    """Tell whether a column's rule reads events of another type of its kind just as well: wider integers, longer decimals.

    A decimal of another scale does not: its bytes are digits whose point is told by the event's own schema.
    """
    if column == value:
        return True
    both_integers = column in _INTEGERS and value in _INTEGERS
    same_scale = column.startswith("DECIMAL") and value.startswith("DECIMAL") and _decimal_parts(column)[1] == _decimal_parts(value)[1]
    return (both_integers or same_scale) and holds(column, value)
