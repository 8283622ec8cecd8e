"""What the JSON values of a column look like, for events that carry no schema.

Provisional by nature: whoever needs exact types archives the schemas with the events, or declares them in the flow.
"""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame


def infer_types(images: DataFrame, columns: Collection[str]) -> dict[str, str]:
    """Return a Spark SQL type for each of the columns of which a value was seen.

    :param images: one column ``image``: the JSON text of a row image.
    """
    names = ", ".join("'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'" for name in columns)
    members = images.selectExpr("try_parse_json(image) AS image").selectExpr("variant_explode_outer(image) AS (pos, name, value)")
    kinds = members.filter(f"name IN ({names})").selectExpr("name", "regexp_extract(schema_of_variant(value), '^[A-Z]+', 0) AS kind", "value")
    scaled = "kind = 'DECIMAL' AND NOT (schema_of_variant(value) LIKE '%,0)')"
    found = kinds.selectExpr("name", f"CASE WHEN {scaled} THEN 'DOUBLE' ELSE kind END AS kind").filter("kind <> 'VOID'").distinct()
    by_column: dict[str, set[str]] = {}
    for row in found.collect():
        by_column.setdefault(row["name"], set()).add(row["kind"])
    return {name: _common(kinds) for name, kinds in by_column.items()}


def _common(kinds: set[str]) -> str:
    if kinds == {"BOOLEAN"}:
        return "BOOLEAN"
    if kinds == {"BIGINT"}:
        return "BIGINT"
    if kinds <= {"BIGINT", "DECIMAL"}:
        # Integers beyond 64 bits.
        return "DECIMAL(38,0)"
    if kinds <= {"BIGINT", "DECIMAL", "DOUBLE"}:
        return "DOUBLE"
    return "STRING"
