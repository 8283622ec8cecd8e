"""Type inference from JSON values, for events that carry no schema.

The result is provisional. For exact types, archive the schemas with the events, or declare the types in the flow.

Runs a Spark job over the values.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame

from airflow_cdc.pipeline.spark import sql

_DIGITS_OF_DOUBLE = 17
"""Enough digits to distinguish any double from its neighbours, and the most that a JSON writer prints."""
_LONG_FRACTIONS = "DECIMAL(38,18)"


def infer_types(images: DataFrame, columns: Collection[str]) -> dict[str, str]:
    """Return a Spark SQL type for each of the columns with a value.

    :param images: one column ``image``: the JSON text of a row image.
    """
    # A plain JSON fraction is parsed as DECIMAL. The column is a floating-point number, unless a value has more digits than a double.
    # The parser drops the zero of 10.0. But an integer that fits 64 bits would be a BIGINT, so a DECIMAL that fits was written with a
    # point.
    fraction = "kind LIKE 'DECIMAL%' AND (kind NOT LIKE '%,0)' OR in_64_bits)"
    members = images.sparkSession.sql(
        "SELECT member.key AS name, schema_of_variant(member.value) AS kind,"
        # For a text, try_variant_get would raise and catch an exception.
        " if(schema_of_variant(member.value) LIKE 'DECIMAL%', try_variant_get(member.value, '$', 'BIGINT') IS NOT NULL, false)"
        " AS in_64_bits"
        " FROM {images} AS images, LATERAL variant_explode(try_parse_json(images.image)) AS member",
        images=images,
    )
    wanted = members.filter(f"name IN ({', '.join(sql.text(name) for name in columns)}) AND kind <> 'VOID'")
    digits, scale = (rf"try_cast(nullif(regexp_extract(kind, r'^DECIMAL\((\d+),(\d+)\)', {group}), '') AS INT)" for group in (1, 2))
    long = f"{fraction} AND {digits} > {_DIGITS_OF_DOUBLE} AND {scale} > 0"
    found = wanted.selectExpr(
        "name", f"CASE WHEN {long} THEN 'FRACTION' WHEN {fraction} THEN 'DOUBLE' ELSE regexp_extract(kind, '^[A-Z]+', 0) END AS kind"
    ).distinct()
    by_column: dict[str, set[str]] = {}
    for row in found.collect():
        by_column.setdefault(row["name"], set()).add(row["kind"])
    return {name: common_type(kinds) for name, kinds in by_column.items()}


def common_type(kinds: set[str]) -> str:
    """Return the type that holds values of all these kinds.

    :param kinds: not empty; ``BOOLEAN``, ``BIGINT``, ``DECIMAL`` (an integer beyond 64 bits), ``DOUBLE`` (a fraction), ``FRACTION`` (with
        more digits than a double holds), ``STRING``, or any other kind of JSON.
    """
    if kinds == {"BOOLEAN"}:
        return "BOOLEAN"
    if kinds == {"BIGINT"}:
        return "BIGINT"
    if kinds <= {"BIGINT", "DECIMAL"}:
        # Integers beyond 64 bits.
        return "DECIMAL(38,0)"
    if kinds <= {"BIGINT", "DECIMAL", "DOUBLE"}:
        return "DOUBLE"
    if kinds <= {"BIGINT", "DECIMAL", "DOUBLE", "FRACTION"}:
        return _LONG_FRACTIONS
    return "STRING"
