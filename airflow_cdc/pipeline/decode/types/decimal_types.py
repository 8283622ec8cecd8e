"""Encodings of decimals, and the SQL that reads each without losing a digit.

Kafka Connect's ``Decimal`` is base64 of the unscaled big-endian two's complement, or with ``decimal.format=NUMERIC`` a JSON number.
Debezium's ``VariableScaleDecimal`` is ``{"scale": …, "value": base64}``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.pipeline.spark import sql

MAX_PRECISION = 38
_TWO_64 = "18446744073709551616"
_SAFE_HEX_DIGITS = 30
"""Fifteen bytes: every such number has fewer than 38 decimal digits."""


def decimal_type(scale: int, precision: int) -> str:
    """Return the Spark type that holds the values. Unlike databases, Spark allows no scale below zero or above the precision."""
    digits = max(precision - min(scale, 0), scale)
    return "STRING" if digits > MAX_PRECISION else f"DECIMAL({digits},{max(scale, 0)})"


def read_decimal(value: str, fields: Sequence[str], scale: int, sql_type: str, array: str | None = None) -> str:
    """Return the SQL of a Connect ``Decimal`` as a value of ``sql_type``, NULL where it does not fit.

    :param value: SQL of the JSON leaf's text.
    :param fields: the column's names in the events; used to distinguish a number from a text of digits in the raw line.
    :param sql_type: from :func:`decimal_type`.
    :param array: SQL of the JSON text of the array whose element the value is.
    """
    digits = f"hex(try_to_binary({value}, 'base64'))"
    if sql_type == "STRING":
        number, encoded = value, _numeral(digits, str(scale))
    else:
        number = f"CASE WHEN {digits_behind_point(value)} <= {max(scale, 0)} THEN try_cast({value} AS {sql_type}) END"
        encoded = f"CASE WHEN length({digits}) BETWEEN 2 AND 32 THEN {_scaled(_unscaled(digits), scale, sql_type)} END"
    return f"CASE WHEN {_is_number(value, fields, array)} THEN {number} ELSE {encoded} END"


def read_variable_scale(value: str) -> str:
    """Return the SQL of a ``VariableScaleDecimal`` as text: it may have more digits than any DECIMAL column holds."""
    digits = f"hex(try_to_binary(get_json_object({value}, '$.value'), 'base64'))"
    return _numeral(digits, f"try_cast(get_json_object({value}, '$.scale') AS INT)")


def digits_behind_point(value: str) -> str:
    """Return the SQL of the number of digits that a number's text needs behind the point. A cast would round them away."""
    fraction = rf"length(trim(TRAILING '0' FROM regexp_extract({value}, r'^[^.eE]*\.(\d*)', 1)))"
    # A failed cast makes Spark raise and catch an exception with its whole message: ten times the cost of the value.
    exponent = rf"coalesce(try_cast(nullif(regexp_extract({value}, r'[eE]([+-]?\d+)\s*$', 1), '') AS INT), 0)"
    any_number = rf"if({value} RLIKE r'^\s*[+-]?[0.]+([eE]|\s*$)', 0, {fraction} - {exponent})"
    plain = f"if(instr({value}, '.') = 0, 0, length(trim(TRAILING '0' FROM substr({value}, instr({value}, '.') + 1))))"
    return rf"if({value} RLIKE r'^[+-]?\d+(\.\d+)?$', {plain}, {any_number})"


def _is_number(value: str, fields: Sequence[str], array: str | None) -> str:
    """Return the SQL that is true for a JSON number rather than base64: except for its quotes, ``1234`` is both."""
    unquoted = (
        f"NOT contains({array}, '{chr(34)}')"
        if array
        else " OR ".join(
            f"coalesce(instr({line}, concat({sql.text(json.dumps(field, ensure_ascii=False) + colon)}, {value})) > 0, false)"
            for field in fields
            for line in (RAW, RAW_KEY)
            for colon in (":", ": ")
        )
    )
    no_base64 = f"{value} RLIKE '[.-]' OR length({value}) % 4 <> 0"
    return rf"{value} RLIKE r'^-?\d+(\.\d+)?([eE][+-]?\d+)?$' AND ({no_base64} OR {unquoted})"


def _unscaled(digits: str) -> str:
    """Return the SQL of up to sixteen bytes (hexadecimal digits) as a DECIMAL(38,0), NULL beyond its range."""
    # Sign-extended to 16 bytes: the upper eight as a signed number, the lower eight as an unsigned one. For a negative number, one is
    # added to the upper half and 2^64 subtracted from the lower: otherwise the upper half alone would overflow near -10^38.
    padded = f"lpad({digits}, 32, if(substr({digits}, 1, 1) >= '8', 'F', '0'))"
    high = f"CAST(conv(substr({padded}, 1, 16), 16, -10) AS DECIMAL(20,0))"
    low = f"CAST(conv(substr({padded}, 17, 16), 16, 10) AS DECIMAL(20,0))"
    carry = f"if({digits} >= '8', 1, 0)"
    return f"try_add(try_multiply({high} + {carry}, {_TWO_64}BD), {low} - {carry} * {_TWO_64}BD)"


def _scaled(unscaled: str, scale: int, sql_type: str) -> str:
    if scale <= 0:
        return f"try_cast(concat(CAST({unscaled} AS STRING), '{'0' * -scale}') AS {sql_type})"
    # By the digits: a decimal product of 38 digits would round the scale away.
    return f"try_cast({_with_point(f'CAST({unscaled} AS STRING)', str(scale))} AS {sql_type})"


def _with_point(text: str, scale: str) -> str:
    """Return the SQL of an integer's text with ``scale`` (above zero) of its digits behind a point."""
    # The sign is handled as text too: Spark's abs() and unary minus round a DECIMAL to 34 digits.
    digits = f"trim(LEADING '-' FROM {text})"
    padded = f"lpad({digits}, greatest({scale} + 1, length({digits})), '0')"
    sign = f"if(startswith({text}, '-'), '-', '')"
    return f"concat({sign}, left({padded}, length({padded}) - {scale}), '.', right({padded}, {scale}))"


def _numeral(digits: str, scale: str) -> str:
    """Return the SQL of a number of any length as text: its sign and all its digits, ``scale`` of them behind the point."""
    small = f"CAST({_unscaled('digits')} AS STRING)"
    text = f"CASE WHEN length(digits) <= {_SAFE_HEX_DIGITS} THEN {small} ELSE {_LONG_UNSCALED} END"
    zeros = "concat(text, repeat('0', -scale))"
    placed = (
        f"CASE WHEN scale = 0 OR text = '0' AND scale < 0 THEN text WHEN scale < 0 THEN {zeros} ELSE {_with_point('text', 'scale')} END"
    )
    # SQL has no let: a transform over one element names an expression that is used many times.
    named = f"transform(array(named_struct('digits', {digits}, 'scale', {scale})), pair -> {{}})[0]"
    texts = f"named_struct('scale', pair.scale, 'text', transform(array(pair.digits), digits -> {text})[0])"
    inner = f"transform(array({texts}), number -> {placed.replace('scale', 'number.scale').replace('text', 'number.text')})[0]"
    return f"CASE WHEN length({digits}) >= 2 THEN {named.format(inner)} END"


# Numbers of more than fifteen bytes, by long multiplication: 24 bits at a time into limbs of nine decimal digits, lowest first. The digits
# of a negative number are those of its complement plus one.
_LONG_UNSCALED = """
transform(array(named_struct(
    'below_zero', digits >= '8',
    'chunks', CAST((length(digits) + 5) DIV 6 AS INT),
    'bits', lpad(if(digits >= '8', translate(digits, '0123456789ABCDEF', 'FEDCBA9876543210'), digits),
        CAST((length(digits) + 5) DIV 6 * 6 AS INT), '0'))),
  n -> concat(if(n.below_zero, '-', ''), trim(LEADING '0' FROM array_join(reverse(transform(
    aggregate(
      sequence(1, n.chunks),
      array(0L),
      (limbs, chunk) -> aggregate(
        limbs,
        named_struct(
          'carry', CAST(conv(substr(n.bits, chunk * 6 - 5, 6), 16, 10) AS BIGINT) + if(n.below_zero AND chunk = n.chunks, 1L, 0L),
          'limbs', slice(limbs, 1, 0)),
        (state, limb) -> named_struct(
          'carry', (limb * 16777216L + state.carry) DIV 1000000000L,
          'limbs', array_append(state.limbs, (limb * 16777216L + state.carry) % 1000000000L)),
        state -> if(state.carry > 0, array_append(state.limbs, state.carry), state.limbs))),
    limb -> lpad(CAST(limb AS STRING), 9, '0'))), ''))))[0]
"""
