"""Type inference from JSON values, for events that carry no schema.

The result is provisional. For exact types, archive the schemas with the events, or declare the types in the flow.

Runs a Spark job over the values.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame

from airflow_cdc.pipeline.decode.types.image_members import image_members

_DIGITS_OF_DOUBLE = 17
"""Enough digits to distinguish any double from its neighbours, and the most that a JSON writer prints."""
MOST_WHOLE = 2**53
"""Up to here each whole number is a double. Larger ones are printed as doubles with a point or an exponent."""
LONG_FRACTIONS = "DECIMAL(38,18)"


def infer_types(images: DataFrame, columns: Collection[str], renames: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a Spark SQL type for each of the columns with a value.

    :param images: as :func:`image_members` takes them.
    :param renames: current column names by older ones.
    """
    # A plain JSON fraction is parsed as DECIMAL. The column is a floating-point number, unless a value has more digits than a double.
    # The parser drops the zero of 10.0. But an integer that fits 64 bits would be a BIGINT, so a DECIMAL that fits was written with a
    # point.
    fraction = "kind LIKE 'DECIMAL%' AND (kind NOT LIKE '%,0)' OR whole IS NOT NULL)"
    digits = r"try_cast(nullif(regexp_extract(kind, r'^DECIMAL\((\d+),', 1), '') AS INT)"
    # For a text, try_variant_get would raise and catch an exception.
    whole = "if(kind = 'BIGINT' OR kind LIKE 'DECIMAL%', try_variant_get(value, '$', 'BIGINT'), NULL) AS whole"
    found = (
        image_members(images, columns, renames)
        .selectExpr("name", "kind", whole)
        .selectExpr(
            "name",
            f"CASE WHEN {fraction} AND {digits} > {_DIGITS_OF_DOUBLE} THEN 'FRACTION' WHEN {fraction} THEN 'DOUBLE'"
            f" WHEN kind = 'BIGINT' AND NOT whole BETWEEN -{MOST_WHOLE}L AND {MOST_WHOLE}L THEN 'LONG'"
            " ELSE regexp_extract(kind, '^[A-Z]+', 0) END AS kind",
        )
        .distinct()
    )
    by_column: dict[str, set[str]] = {}
    for row in found.collect():
        by_column.setdefault(row["name"], set()).add(row["kind"])
    return {name: common_type(kinds) for name, kinds in by_column.items()}


def common_type(kinds: set[str]) -> str:
    """Return the type that holds values of all these kinds.

    :param kinds: not empty; ``BOOLEAN``, ``BIGINT``, ``LONG`` (an integer beyond :data:`MOST_WHOLE`), ``DECIMAL`` (beyond 64 bits),
        ``DOUBLE`` (a fraction), ``FRACTION`` (with more digits than a double holds), ``STRING``, or any other kind of JSON.
    """
    if kinds == {"BOOLEAN"}:
        return "BOOLEAN"
    if kinds <= {"BIGINT", "LONG"}:
        return "BIGINT"
    if kinds <= {"BIGINT", "LONG", "DECIMAL"}:
        # Integers beyond 64 bits.
        return "DECIMAL(38,0)"
    if kinds <= {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if kinds <= {"BIGINT", "LONG", "DECIMAL", "DOUBLE", "FRACTION"}:
        return LONG_FRACTIONS
    return "STRING"
