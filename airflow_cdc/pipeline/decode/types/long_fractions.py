"""Long fractions: keep all digits of decimals that are JSON numbers (``decimal.format=NUMERIC``).

Spark's JSON reader converts a number with a point to a double, then to text: 17 digits remain. A VARIANT keeps 38, so members that may
hold such numbers are read as VARIANT.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.pipeline.decode.renamed_columns import with_old_names
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.spark import sql


def fractions_of(columns: SourceColumns) -> frozenset[str]:
    """Return the columns whose values may be such numbers, and their older names."""
    return frozenset(with_old_names((name for name, rule in columns.types.items() if rule.is_fraction), columns.formerly))


def members_of(names: Iterable[str], fractions: Iterable[str]) -> str:
    """Return the DDL of an image's members: STRING, except VARIANT for those of ``fractions``."""
    return ", ".join(f"{sql.name(name)} {'VARIANT' if name in fractions else 'STRING'}" for name in names)


def texts_of(image: str, names: Iterable[str]) -> str:
    """Return the SQL of an image with all its members as text."""
    return sql.struct_unless_null(image, {name: f"CAST({image}.{sql.name(name)} AS STRING)" for name in names})
