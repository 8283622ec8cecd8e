"""Keys whose numbers no schema vouches for: a value that is not the number's own spelling is refused, so that two never become one key.

A text such as ``07`` is no integer: beside it the source may have ``7``. Of all numbers with up to 15 digits each has a double of its own
(6: a float of its own). Of the longer ones that share a double, one is the double's: whose digits it is written with.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, cast_to
from airflow_cdc.pipeline.spark import sql

_OWN_DIGITS = {"DOUBLE": (15, "2.2250738585072014E-308D"), "FLOAT": (6, "1.17549435E-38D")}
"""By type: how many digits any number may have, and the least number of which this holds."""
_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")


def exact_key(rule: ColumnType, *, is_declared: bool = False) -> ColumnType:
    """Return the rule of a key column whose type is not its events' own: it reads no two values as one number.

    :param is_declared: whether the events have a schema, beside the declared type. Their floating-point numbers are the source's own.
    """
    if rule.sql_type in _INTEGERS and rule.read("v") == cast_to(rule.sql_type).read("v"):
        # The native engine reads JSON numbers alone, which have no leading zeros.
        return replace(rule, read=lambda value: f"CASE WHEN {value} RLIKE r'^-?(0|[1-9][0-9]*)$' THEN {rule.read(value)} END")
    if rule.sql_type not in _OWN_DIGITS or is_declared:
        return rule
    most, least = _OWN_DIGITS[rule.sql_type]

    def read(value: str) -> str:
        is_short = f"length({_digits(value)}) <= {most} AND abs(number) >= {least} AND abs(number) < double('Infinity')"
        fits = f"{is_short} OR {_digits(value)} = {_digits('CAST(number AS STRING)')}"
        return sql.let("number", rule.read(value), f"CASE WHEN {fits} THEN number END")

    return replace(rule, read=read, native=None, is_fraction=True)


def _digits(number: str) -> str:
    """Return the SQL of the digits of a number's text, from the first to the last that is not zero."""
    return f"trim(BOTH '0' FROM regexp_replace({number}, r'[eE].*|[^0-9]', ''))"
