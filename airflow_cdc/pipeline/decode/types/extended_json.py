"""Conversion of MongoDB's extended JSON to a column's values.

The text is that of a JSON leaf from ``from_json``: a text without its quotes, a number, or the JSON of an object or array. Types are
written as objects, in two modes and two generations: ``{"$date": 5}``, ``{"$date": {"$numberLong": "5"}}``,
``{"$date": "1970-01-01T00:00:00.005Z"}``. NULL for a text that is not NULL means that the value does not fit. Only DOUBLE rounds.
"""

from __future__ import annotations

from airflow_cdc.pipeline.decode.types.connect_types import cast_to, instant
from airflow_cdc.pipeline.decode.types.decimal_types import digits_behind_point
from airflow_cdc.pipeline.spark import sql

_NUMBERS = ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal")
_MEMBERS = (*_NUMBERS, "$date", "$oid", "$uuid", "$binary", "$type")
_WRAPPED = r"""text RLIKE r'^\s*\{\s*"\$'"""
_PLAIN = """if(leaf IN ('"NaN"', '"Infinity"', '"-Infinity"'), trim(BOTH '"' FROM leaf), leaf)"""
"""SQL of a leaf without the quotes that from_json adds to a bare NaN or infinity."""
_UUID_SUBTYPES = "('04', '4')"
_UUID_LENGTH = 16


def value_of(text: str, sql_type: str) -> str:
    """Return the SQL of a value.

    :param text: SQL of the leaf's text.
    :param sql_type: the column's type, one of those of :class:`~airflow_cdc.model.flow.document_columns.DocumentColumn`.
    """
    ddl = ", ".join(f"{sql.name(member)} STRING" for member in _MEMBERS)
    wrapper = f"if({_WRAPPED}, from_json(text, {sql.text(ddl)}), NULL)"
    read = sql.let("wrapper", wrapper, f"if(text IS NULL, NULL, {_read(sql_type)})")
    return sql.let("leaf", text, sql.let("text", _PLAIN, read))


def _read(sql_type: str) -> str:
    if sql_type in ("INT", "BIGINT"):
        # MongoDB's shell writes whole numbers as doubles: 5.0 is 5, and 5.5 does not fit.
        whole = f"CASE WHEN {digits_behind_point('number')} <= 0 THEN try_cast(number AS DECIMAL(38,0)) END"
        return sql.let("number", _number(), f"try_cast({whole} AS {sql_type})")
    if sql_type == "DOUBLE" or sql_type.startswith("DECIMAL"):
        return sql.let("number", _number(), cast_to(sql_type).read("number"))
    return {"BOOLEAN": _BOOLEAN, "TIMESTAMP": _timestamp(), "DATE": _date(), "BINARY": _binary(), "STRING": _string()}[sql_type]


_BOOLEAN = "CASE text WHEN 'true' THEN true WHEN 'false' THEN false END"


def _member(name: str) -> str:
    return f"wrapper.{sql.name(name)}"


def _inner(text: str, name: str) -> str:
    """Return the SQL of a member of a text that may be an object. For any other text, from_json would raise and catch an exception."""
    return f"if(startswith({text}, '{{'), from_json({text}, '{sql.name(name)} STRING').{sql.name(name)}, NULL)"


def _number() -> str:
    return f"if(wrapper IS NULL, text, coalesce({', '.join(map(_member, _NUMBERS))}))"


def _instant() -> str:
    """Return the SQL of a ``$date``'s time, NULL outside the years 1 to 9999."""
    millis = f"coalesce({_inner('dated', '$numberLong')}, dated)"
    return sql.let("dated", _member("$date"), f"coalesce({instant(millis, 1000)}, {cast_to('TIMESTAMP').read('dated')})")


def _timestamp() -> str:
    return f"if(wrapper IS NULL, {cast_to('TIMESTAMP').read('text')}, {_instant()})"


def _date() -> str:
    day = sql.let("moment", _instant(), "if(date_trunc('DAY', moment) = moment, CAST(moment AS DATE), NULL)")
    return f"if(wrapper IS NULL, {cast_to('DATE').read('text')}, {day})"


def _binary() -> str:
    encoded = f"coalesce({_inner(_member('$binary'), 'base64')}, {_member('$binary')})"
    uuid = sql.let(
        "bytes", f"try_to_binary(replace({_member('$uuid')}, '-', ''), 'hex')", f"if(length(bytes) = {_UUID_LENGTH}, bytes, NULL)"
    )
    return f"coalesce(try_to_binary({encoded}, 'base64'), {uuid})"


def _string() -> str:
    """Return the SQL of a text that is the same in every mode: digits, an identifier, a time, base64; else JSON."""
    time = sql.let("moment", _instant(), """date_format(moment, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")""")
    subtype = f"coalesce({_inner(_member('$binary'), 'subType')}, {_member('$type')})"
    groups = r"'(.{8})(.{4})(.{4})(.{4})(.{12})', '$1-$2-$3-$4-$5'"
    identifier = f"regexp_replace(lower(hex(bytes)), {groups})"
    is_uuid = f"length(bytes) = {_UUID_LENGTH} AND ({_member('$uuid')} IS NOT NULL OR {subtype} IN {_UUID_SUBTYPES})"
    of_bytes = sql.let("bytes", _binary(), f"if({is_uuid}, {identifier}, base64(bytes))")
    return f"if(wrapper IS NULL, text, coalesce({_number()}, {_member('$oid')}, {time}, {of_bytes}, text))"
