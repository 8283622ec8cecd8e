"""Keys of bare JSON that are read as DOUBLE or FLOAT: a number that is not the double's own is refused, so that two never become one key.

Of all numbers with up to 15 digits each has a double of its own (6: a float of its own). Of the longer ones that share a double, one is
the double's: whose digits it is written with.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_cdc.pipeline.decode.types.connect_types import ColumnType
from airflow_cdc.pipeline.spark import sql

_OWN_DIGITS = {"DOUBLE": (15, "2.2250738585072014E-308D"), "FLOAT": (6, "1.17549435E-38D")}
"""By type: how many digits any number may have, and the least number of which this holds."""


def exact_key(rule: ColumnType) -> ColumnType:
    """Return the rule of a key column whose type no schema gives: of a floating-point type it reads no two numbers as one."""
    if rule.sql_type not in _OWN_DIGITS:
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
