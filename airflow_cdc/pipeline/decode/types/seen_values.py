"""Observations of columns' JSON values, as evidence for the connector's modes.

Runs a Spark job over the values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.pipeline.decode.types.image_members import image_members


@dataclass(frozen=True)
class SeenValues:
    """Observations of one column's values. A flag that begins with ``some`` holds for at least one of them."""

    kinds: frozenset[str]
    """Any of ``boolean``, ``whole`` (a number without a point), ``fraction``, ``text`` and ``other`` (objects, arrays)."""
    greatest: int = 0
    """The greatest absolute value of the whole numbers."""
    some_part_of_1000: bool = False
    """... whole number is not a multiple of 1000; likewise below."""
    some_part_of_1000000: bool = False
    some_part_of_1000000000: bool = False
    some_no_numeral: bool = False
    """... text is not a number."""
    some_no_point: bool = False
    """... text has neither point nor exponent."""
    some_no_base64: bool = False
    some_no_hex: bool = False
    some_no_instant: bool = False
    """... text is not a date and time with a zone."""
    some_padded: bool = False
    """... text ends with ``=``."""
    some_mixed: bool = False
    """... text mixes letters and digits as words do not, such as a capital or digit behind a small letter."""
    some_not_minimal: bool = False
    """... text, read as base64, is a number with more bytes than it needs. No connector writes one."""
    some_no_variable_scale: bool = False
    """... object lacks the ``scale`` or ``value`` that decimals without a precision have."""
    some_no_value_set: bool = False
    """... object has other members than ``value`` and a boolean ``set``."""
    count: int = 0
    """Number of values."""
    least: int = 0
    """The least of the whole numbers; ``most`` is the greatest."""
    most: int = 0
    longest: int = 0
    """Length of the longest text, in characters."""
    examples: tuple[str, ...] = ()
    """Up to three values, as JSON."""


_KIND = """CASE WHEN kind = 'BOOLEAN' THEN 'boolean' WHEN kind = 'STRING' THEN 'text'
    WHEN kind = 'BIGINT' OR (kind LIKE 'DECIMAL%,0)' AND try_variant_get(value, '$', 'BIGINT') IS NULL) THEN 'whole'
    WHEN kind LIKE 'DECIMAL%' OR kind = 'DOUBLE' THEN 'fraction' ELSE 'other' END"""
"""A number that fits 64 bits and is parsed as DECIMAL was written with a point."""
_SHORT = 24
"""Characters of sixteen bytes in base64."""
_SHOWN = "left(to_json(value), 60)"
_IS_WHOLE = "kind = 'BIGINT' OR kind LIKE 'DECIMAL%,0)'"
_STATEMENTS = {
    "some_part_of_1000": "whole % 1000 <> 0",
    "some_part_of_1000000": "whole % 1000000 <> 0",
    "some_part_of_1000000000": "whole % 1000000000 <> 0",
    "some_no_numeral": r"NOT text RLIKE r'^-?\d+(\.\d+)?([eE][+-]?\d+)?$'",
    "some_no_point": "NOT text RLIKE '[.eE]'",
    "some_no_base64": "NOT (length(text) % 4 = 0 AND text RLIKE '^[A-Za-z0-9+/]*={0,2}$')",
    "some_no_hex": "NOT text RLIKE '^[0-9a-fA-F]*$'",
    "some_padded": "text LIKE '%='",
    "some_mixed": r"text RLIKE '[a-z][A-Z0-9]|[A-Z0-9]{2}[a-z]|[0-9][A-Z]'",
    "some_not_minimal": "bytes RLIKE '^(00[0-7]|FF[89A-F])'",
    "some_no_variable_scale": "kind = 'other' AND (try_variant_get(value, '$.scale', 'INT') IS NULL"
    " OR try_variant_get(value, '$.value', 'STRING') IS NULL)",
    "some_no_value_set": "kind = 'other' AND (try_variant_get(value, '$.set', 'BOOLEAN') IS NULL"
    " OR sort_array(json_object_keys(to_json(value))) <> array('set', 'value'))",
    "some_no_instant": r"NOT text RLIKE r'^\d{4,}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$'",
}


def look_at_values(images: DataFrame, columns: Collection[str], renames: Mapping[str, str] | None = None) -> dict[str, SeenValues]:
    """Return the observations of each of the columns with a value.

    :param images: as :func:`image_members` takes them.
    :param renames: current column names by older ones.
    """
    read = (
        image_members(images, columns, renames)
        .selectExpr(
            "name",
            f"{_KIND} AS kind",
            # Beyond 64 bits: far outside the range of any time.
            f"if({_IS_WHOLE}, coalesce(try_variant_get(value, '$', 'BIGINT'), 9223372036854775807L), NULL) AS whole",
            "if(kind = 'STRING', try_variant_get(value, '$', 'STRING'), NULL) AS text",
            "value",
        )
        .withColumn("bytes", F.expr(f"if(length(text) <= {_SHORT}, hex(try_to_binary(text, 'base64')), NULL)"))
    )
    greatest = "max(abs(CAST(whole AS DECIMAL(38,0))))"
    found = read.groupBy("name").agg(
        F.expr("collect_set(kind)").alias("kinds"),
        F.expr(f"coalesce({greatest}, 0)").alias("greatest"),
        F.expr("count(*)").alias("count"),
        F.expr("coalesce(min(whole), 0)").alias("least"),
        F.expr("coalesce(max(whole), 0)").alias("most"),
        F.expr("coalesce(max(length(text)), 0)").alias("longest"),
        F.expr(f"array_distinct(array(min({_SHOWN}), any_value({_SHOWN}), max({_SHOWN})))").alias("examples"),
        *[F.expr(f"coalesce(bool_or({condition}), false)").alias(name) for name, condition in _STATEMENTS.items()],
    )
    return {row["name"]: _seen(row.asDict()) for row in found.collect()}


def _seen(row: dict[str, Any]) -> SeenValues:
    del row["name"]
    kinds, greatest, examples = frozenset(row.pop("kinds")), int(row.pop("greatest")), tuple(row.pop("examples"))
    return SeenValues(kinds, greatest, examples=examples, **row)
