"""How the native engine (DuckDB) reads a JSON leaf: the counterpart of the rules in ``connect_types.py``.

A reading takes the SQL of the leaf's JSON text (VARCHAR): a string is in quotes, a number is not. It returns the value that Spark's rule
returns, or NULL where that is not certain: Spark then reads the whole microbatch. DuckDB prints a fraction anew, so the text of a JSON
number with a point or an exponent is not the archived one; only a DOUBLE may be read from it.
"""

from __future__ import annotations

from collections.abc import Callable

Reading = Callable[[str], str]
"""From the SQL of a leaf's JSON text to the SQL of the value."""

_INTEGER = "-?[0-9]{1,40}"
_INTEGERS = {"TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INTEGER", "BIGINT": "BIGINT"}
_BASE64 = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_MOST_BYTES = 15
"""Bytes of a decimal's unscaled value that surely have fewer than 38 digits."""
_DATE, _TIME = "[0-9]{4}-[0-9]{2}-[0-9]{2}", r"([01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
"""Patterns. To DuckDB 24:00 is the next day's midnight, and to Spark no time."""
_MIDNIGHT = "TIMESTAMP '1970-01-01 00:00:00'"


def definition_of(column: str) -> str:
    """Return the SQL name of a column's definition in an event's own schema, beside the event's leaves."""
    return '"definition ' + column.replace('"', '""') + '"'


def text(leaf: str) -> str:
    """Return the SQL of a JSON string's value; NULL for a leaf of any other type."""
    plain = f"substr({leaf}, 2, length({leaf}) - 2)"
    return f"""CASE WHEN {leaf}[1] = '"' THEN CASE WHEN contains({leaf}, '\\') THEN json_extract_string({leaf}, '$') ELSE {plain} END END"""


def _integer(leaf: str, kind: str) -> str:
    return f"CASE WHEN regexp_full_match({leaf}, '{_INTEGER}') THEN TRY_CAST({leaf} AS {kind}) END"


def read_integer(sql_type: str) -> Reading:
    """Return the reading of an integer column of a Spark type."""
    return lambda leaf: _integer(leaf, _INTEGERS[sql_type])


def read_boolean(leaf: str) -> str:
    """Return the SQL of a JSON boolean."""
    return f"CASE WHEN {leaf} IN ('true', 'false') THEN {leaf} = 'true' END"


def read_double(leaf: str) -> str:
    """Return the SQL of a JSON number as DOUBLE."""
    return f"CASE WHEN regexp_matches({leaf}, '^-?[0-9]') AND isfinite(TRY_CAST({leaf} AS DOUBLE)) THEN TRY_CAST({leaf} AS DOUBLE) END"


def read_float(leaf: str) -> str:
    """Return the SQL of a JSON number as FLOAT, if it has few enough digits to be rounded once."""
    few = r"-?[0-9]{1,7}(\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?"
    return f"CASE WHEN regexp_full_match({leaf}, '{few}') AND isfinite(TRY_CAST({leaf} AS FLOAT)) THEN TRY_CAST({leaf} AS FLOAT) END"


def read_number(sql_type: str, scale: int) -> Reading:
    """Return the reading of a decimal that is archived as a JSON integer, or as a string of plain digits."""
    plain = rf"-?[0-9]{{1,38}}(\.[0-9]{{0,{scale}}}0*)?"

    def read(leaf: str) -> str:
        digits = f"CASE WHEN {leaf}[1] = '\"' THEN {text(leaf)} WHEN NOT contains({leaf}, '.') THEN {leaf} END"
        return f"CASE WHEN regexp_full_match({digits}, '{plain}') THEN TRY_CAST({digits} AS {sql_type}) END"

    return read


def read_unscaled(sql_type: str, scale: int) -> Reading:
    """Return the reading of a Connect ``Decimal``: base64 of the unscaled value in two's complement.

    A base64 text that looks like a number is left to Spark, which compares it with the raw line.
    """

    def read(leaf: str) -> str:
        base64 = text(leaf)
        digits = f"hex(from_base64({base64}))"
        size = f"length({digits})"
        beyond = f"CAST(1 AS HUGEINT) << CAST(4 * {size} AS INTEGER)"
        # In two parts: before DuckDB 2 no HUGEINT is read from hexadecimal digits.
        high, low = (f"CAST(CAST('0x' || {side}(lpad({digits}, 32, '0'), 16) AS UBIGINT) AS HUGEINT)" for side in ("left", "right"))
        number = f"{high} * {2**64} + {low} - CASE WHEN {digits} >= '8' THEN {beyond} ELSE 0 END"
        unscaled = f"CAST({number} AS VARCHAR)"
        is_plain = f"regexp_full_match({base64}, '{_BASE64}') AND NOT regexp_full_match({base64}, '[0-9]+')"
        fits = f"{size} BETWEEN 2 AND {2 * _MOST_BYTES}"
        return f"CASE WHEN {is_plain} THEN CASE WHEN {fits} THEN TRY_CAST({_with_point(unscaled, scale)} AS {sql_type}) END END"

    return read


def _with_point(number: str, scale: int) -> str:
    if scale <= 0:
        return f"({number} || '{'0' * -scale}')"
    digits = f"lpad(ltrim({number}, '-'), CAST(greatest({scale + 1}, length(ltrim({number}, '-'))) AS INTEGER), '0')"
    return f"(CASE WHEN {number}[1] = '-' THEN '-' ELSE '' END || {digits}[:-{scale + 1}] || '.' || right({digits}, {scale}))"


def read_bytes(leaf: str) -> str:
    """Return the SQL of bytes in base64."""
    base64 = text(leaf)
    return f"CASE WHEN regexp_full_match({base64}, '{_BASE64}') THEN from_base64({base64}) END"


def read_days(first: int, last: int) -> Reading:
    """Return the reading of a date as days since 1970, from ``first`` to ``last``."""

    def read(leaf: str) -> str:
        days = _integer(leaf, "BIGINT")
        return f"CASE WHEN {days} BETWEEN {first} AND {last} THEN DATE '1970-01-01' + CAST({days} AS INTEGER) END"

    return read


def read_instant(units_per_second: int, first_day: int, last_day: int) -> Reading:
    """Return the reading of a timestamp as a count of units since 1970, within these days."""
    first, last = first_day * 86_400 * units_per_second, (last_day + 1) * 86_400 * units_per_second - 1

    def read(leaf: str) -> str:
        count = _integer(leaf, "BIGINT")
        return f"CASE WHEN {count} BETWEEN {first} AND {last} THEN make_timestamp({count} * {1_000_000 // units_per_second}) END"

    return read


def _calendar(leaf: str, spelled: str, kind: str) -> str:
    value = text(leaf)
    return f"CASE WHEN regexp_full_match({value}, '{spelled}') AND {value} >= '0001' THEN TRY_CAST(rtrim({value}, 'Z') AS {kind}) END"


def read_zoned(leaf: str) -> str:
    """Return the SQL of an ISO timestamp in UTC with at most six fraction digits, as ``ZonedTimestamp`` usually has it."""
    return _calendar(leaf, f"{_DATE}T{_TIME}Z", "TIMESTAMP")


def read_calendar(sql_type: str) -> Reading:
    """Return the reading of a DATE, TIMESTAMP or TIMESTAMP_NTZ that is archived as ISO text.

    A time without a zone is UTC in a TIMESTAMP; one with a zone is left to Spark where the column has none.
    """
    if sql_type == "DATE":
        return lambda leaf: _calendar(leaf, _DATE, "DATE")
    zone = "Z?" if sql_type == "TIMESTAMP" else ""
    return lambda leaf: _calendar(leaf, f"{_DATE}[T ]{_TIME}{zone}", "TIMESTAMP")


def read_time_of_day(units_per_second: int, *, signed: bool) -> Reading:
    """Return the reading of a time of day, or with ``signed`` a duration, as text; from a count of units."""
    fraction = len(str(units_per_second)) - 1

    def read(leaf: str) -> str:
        count = _integer(leaf, "BIGINT")
        size = f"abs({count})"
        whole = f"({size} // {units_per_second})"
        parts = f"{whole} // 3600, {whole} // 60 % 60, {whole} % 60, {size} % {units_per_second}"
        value = f"printf('%02d:%02d:%02d.%0{fraction}d', {parts})"
        if signed:
            value = f"CASE WHEN {count} < 0 THEN '-' ELSE '' END || {value}"
        return f"CASE WHEN {count} >= {-(2**63) + 1 if signed else 0} THEN {value} END"

    return read
