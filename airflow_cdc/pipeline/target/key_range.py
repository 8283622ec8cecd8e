"""Key range: between which keys a microbatch's row changes lie, as a condition by which Delta passes over files of a large table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from airflow_cdc.pipeline.spark import sql

ASKED_FROM_BYTES = 16 * 1024**2
"""Of table: in a smaller one there are few files to pass over, and the range stands in code that is compiled for each microbatch."""
_LONGEST = 200
_ORDERED = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(\d+,\d+\)|STRING")
"""Types whose values a text tells exactly, and of which Delta's statistics and Python have the same order."""


@dataclass(frozen=True)
class KeyRange:
    """The range of one key column. NULL keys are in none, and match no row either."""

    column: str
    sql_type: str
    lowest: int | Decimal | str
    highest: int | Decimal | str

    def of_rows(self, alias: str) -> str:
        """Return the condition that a row's key is in the range; of a row that one of the changes matches it always holds."""
        lowest, highest = (f"CAST({sql.text(_text(value))} AS {self.sql_type})" for value in (self.lowest, self.highest))
        return f"{alias}.{sql.name(self.column)} BETWEEN {lowest} AND {highest}"


def ranged(types: Mapping[str, str], keys: Iterable[str], *, table_bytes: int) -> dict[str, str]:
    """Return the types of the key columns whose range is worth a question."""
    return {key: types[key] for key in keys if table_bytes >= ASKED_FROM_BYTES and _ORDERED.fullmatch(types.get(key, ""))}


def ends(asked: Iterable[str]) -> list[Column]:
    """Return aggregations to the two ends of columns, for :func:`key_ranges`."""
    return [end(sql.name(column)).alias(f"{told} {column}") for column in asked for told, end in (("min", F.min), ("max", F.max))]


def key_ranges(asked: Mapping[str, str], rows: Sequence[Row]) -> tuple[KeyRange, ...]:
    """Return the ranges of columns (SQL types by name) from the rows that :func:`ends` became, a group each.

    None of a column that has no values, or of which an end is too long for a statement.
    """
    ranges = []
    for column, kind in asked.items():
        lowest = min((row[f"min {column}"] for row in rows if row[f"min {column}"] is not None), default=None)
        highest = max((row[f"max {column}"] for row in rows if row[f"max {column}"] is not None), default=None)
        if lowest is not None and highest is not None and max(len(_text(lowest)), len(_text(highest))) <= _LONGEST:
            ranges.append(KeyRange(column, kind, lowest=lowest, highest=highest))
    return tuple(ranges)


def _text(value: int | Decimal | str) -> str:
    # A decimal's own text may have an exponent.
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
