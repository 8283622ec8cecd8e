"""Key range: the range of a microbatch's keys, as a condition that lets Delta skip files of a large table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.rounded_range import rounded_range

ASKED_FROM_BYTES = 16 * 1024**2
"""Table size: a smaller table has few files to skip, and the range is part of code that is compiled for each microbatch."""
_LONGEST = 200
_ORDERED = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|DECIMAL\(\d+,\d+\)|STRING")
"""Types that text represents exactly and that Delta's statistics and Python order alike."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


@dataclass(frozen=True)
class KeyRange:
    """The range of one key column. NULL keys are in no range, and match no row either."""

    column: str
    sql_type: str
    lowest: int | Decimal | str
    highest: int | Decimal | str

    def of_rows(self, alias: str) -> str:
        """Return the condition that a row's key is in the range; it holds for every row that a change matches.

        By the statistics that another writer rounded, no file with such a row is passed over.
        """
        ends = rounded_range(self.lowest, self.highest)
        if number := _DECIMAL.fullmatch(self.sql_type):
            ends = _within(ends, precision=int(number[1]), scale=int(number[2]))
        lowest, highest = (f"CAST({sql.text(_text(value))} AS {self.sql_type})" for value in ends)
        return f"{alias}.{sql.name(self.column)} BETWEEN {lowest} AND {highest}"


def ranged(types: Mapping[str, str], keys: Iterable[str], *, table_bytes: int) -> dict[str, str]:
    """Return the types of the key columns whose range is worth computing."""
    return {key: types[key] for key in keys if table_bytes >= ASKED_FROM_BYTES and _ORDERED.fullmatch(types.get(key, ""))}


def ends(asked: Iterable[str]) -> list[Column]:
    """Return the min and max aggregations of columns, for :func:`key_ranges`."""
    return [end(sql.name(column)).alias(f"{label} {column}") for column in asked for label, end in (("min", F.min), ("max", F.max))]


def key_ranges(asked: Mapping[str, str], rows: Sequence[Row | Mapping[str, Any]]) -> tuple[KeyRange, ...]:
    """Return the ranges of columns (SQL types by name) from the aggregated rows of :func:`ends`, one row a group.

    A column without values, or with an end too long for a statement, has no range.
    """
    ranges = []
    for column, kind in asked.items():
        lowest = min((row[f"min {column}"] for row in rows if row[f"min {column}"] is not None), default=None)
        highest = max((row[f"max {column}"] for row in rows if row[f"max {column}"] is not None), default=None)
        if lowest is not None and highest is not None and max(len(_text(lowest)), len(_text(highest))) <= _LONGEST:
            ranges.append(KeyRange(column, kind, lowest=lowest, highest=highest))
    return tuple(ranges)


def _within(ends: tuple[Decimal, Decimal], *, precision: int, scale: int) -> tuple[Decimal, Decimal]:
    """Return the ends of a range of numbers as values of a DECIMAL type; one that does not fit would be NULL, and no row in the range."""
    with localcontext() as context:
        context.prec = 2 * precision
        unit = Decimal(1).scaleb(-scale)
        most = unit * (10**precision - 1)
        low, high = (end.quantize(unit, rounding) for end, rounding in zip(ends, (ROUND_FLOOR, ROUND_CEILING), strict=True))
        return max(low, -most), min(high, most)


def _text(value: int | Decimal | str) -> str:
    # str(Decimal) may contain an exponent.
    return f"{value:f}" if isinstance(value, Decimal) else str(value)
