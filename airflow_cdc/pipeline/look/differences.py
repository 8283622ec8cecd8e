"""Differences between same-named tables of two lakes, found in memory: for tables that fit there, without Spark."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.state.lake import FlowState, flows_in
from airflow_cdc.pipeline.look.flow_rows import live_table
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from airflow_cdc.pipeline.look.spark_types import is_nested
from airflow_cdc.pipeline.spark.storage import file_system

_COMPARED_UP_TO_ROWS = 200_000
"""Rows of the larger table above which a comparison is left to Spark: here both tables are held in memory."""
_COMPARED_UP_TO_BYTES = 32 * 1024**2
"""As above, the size of its files."""
_NAN = object()
"""Stands for NaN in compared values: as in Spark it equals itself."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class TableDifference:
    """Differences between two tables of one name."""

    flow: str
    schema: tuple[str, ...]
    """Columns that are missing or have another type in one table, as text; rows are compared without them."""
    only_left: int = 0
    """Number of rows only in the first lake."""
    only_right: int = 0
    """Number of rows only in the second lake."""
    sample: tuple[dict[str, Any], ...] = ()
    """Keys of differing rows, each with ``side`` ``left`` or ``right``."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Number of differing rows by column, among the rows whose key both tables hold."""

    @property
    def equal(self) -> bool:
        """True when schema and rows are the same."""
        return not (self.schema or self.only_left or self.only_right)


@dataclass(frozen=True)
class LakeComparison:
    """Differences between two lakes."""

    tables: tuple[TableDifference, ...]
    """Tables in both lakes."""
    only_left: tuple[str, ...]
    """Tables only in the first lake; not compared."""
    only_right: tuple[str, ...]
    """Tables only in the second lake; not compared."""

    @property
    def equal(self) -> bool:
        """True when there is something to compare and all of it is the same."""
        return bool(self.tables) and all(table.equal for table in self.tables)


def compare_natively(left: str, right: str, globs: Iterable[str] = (), sample: int = 20) -> LakeComparison:
    """Compare the same-named tables of two lakes, as :func:`airflow_cdc.pipeline.upkeep.compare_tables.compare_lakes` does.

    :param sample: maximum number of differing keys to return per table.
    :raises NeedsSparkError: where a table is too large, or only Spark reads it.
    """
    patterns = tuple(globs)
    in_left, in_right = (_tables_in(lake, patterns) for lake in (left, right))
    both = [flow for flow in in_left if flow in in_right]
    return LakeComparison(
        tables=tuple(_compare(flow, live_table(left, flow), live_table(right, flow), sample) for flow in both),
        only_left=tuple(flow for flow in in_left if flow not in both),
        only_right=tuple(flow for flow in in_right if flow not in both),
    )


def _tables_in(lake: str, globs: tuple[str, ...]) -> list[str]:
    fs, root = file_system(lake)
    flows = [flow for flow in flows_in(fs, root) if matches_any(flow, globs)]
    tables = {flow: FlowState(fs, root, flow).checkpoint().table_in(lake) for flow in flows}
    return [flow for flow, table in tables.items() if table and open_table(table) is not None]


def _compare(flow: str, left: NativeTable, right: NativeTable, sample: int) -> TableDifference:
    left_types, right_types = ({name: table.types[name] for name in table.source_columns} for table in (left, right))
    schema = schema_differences(left_types, right_types)
    names = [name for name, kind in left_types.items() if right_types.get(name) == kind]
    if not set(left.keys) <= set(names):
        return TableDifference(flow, schema)
    _check_comparable(left, right, names)
    lefts, rights = (Counter(_rows(table, names)) for table in (left, right))
    only_left, only_right = lefts - rights, rights - lefts
    if not left.keys and (only_left or only_right):
        raise NeedsSparkError(f"differing rows of {left.uri}, which has no key, are shown as Spark writes them")
    places = [names.index(key) for key in left.keys]
    return TableDifference(
        flow,
        schema,
        only_left.total(),
        only_right.total(),
        tuple(islice(_sample(left.keys, places, {"left": only_left, "right": only_right}), sample)),
        _value_differences(names, places, only_left, only_right),
    )


def schema_differences(left: Mapping[str, str], right: Mapping[str, str]) -> tuple[str, ...]:
    """Return, as text, the columns that are missing or have another type in one table.

    :param left: types by column.
    :param right: as above, of the other table.
    """
    return tuple(
        f"{name}: {left.get(name, 'absent')} / {right.get(name, 'absent')}"
        for name in {**left, **right}
        if left.get(name) != right.get(name)
    )


def _check_comparable(left: NativeTable, right: NativeTable, names: Sequence[str]) -> None:
    for table in (left, right):
        if table.size > _COMPARED_UP_TO_BYTES or table.count() > _COMPARED_UP_TO_ROWS:
            raise NeedsSparkError(f"{table.uri} is too large to be compared in memory")
    nested = [key for key in left.keys if is_nested(left.types[key])]
    maps = [name for name in names if "map<" in left.types[name]]
    if nested or maps:
        raise NeedsSparkError(f"{left.uri} has columns that Spark alone compares: {', '.join((*nested, *maps))}")


def _rows(table: NativeTable, names: Sequence[str]) -> list[Row]:
    return [tuple(map(_comparable, row.values())) for row in table.rows(names)]


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value
    return tuple(map(_comparable, value)) if isinstance(value, list | tuple) else value


def _sample(keys: Sequence[str], places: Sequence[int], only: Mapping[str, Counter[Row]]) -> Iterable[dict[str, Any]]:
    found = ((side, tuple(row[place] for place in places)) for side, rows in only.items() for row in rows.elements())
    for side, key in sorted(found, key=lambda pair: ([_sorting(part) for part in pair[1]], pair[0])):
        yield {"side": side, **{name: math.nan if part is _NAN else part for name, part in zip(keys, key, strict=True)}}


def _sorting(value: Any) -> tuple[int, Any]:
    # NULL first and NaN last, as Spark sorts.
    return (0, 0) if value is None else (2, 0) if value is _NAN else (1, value)


def _value_differences(names: Sequence[str], places: Sequence[int], left: Counter[Row], right: Counter[Row]) -> dict[str, int]:
    """Return by column how many keys have different values on the two sides."""
    if not places:
        return {}
    of_key: dict[Row, list[Row]] = {}
    for row in right.elements():
        of_key.setdefault(tuple(row[place] for place in places), []).append(row)
    found: Counter[str] = Counter()
    for row in left.elements():
        for other in of_key.get(tuple(row[place] for place in places), ()):
            found.update(name for name, one, two in zip(names, row, other, strict=True) if one != two)
    return {name: found[name] for name in names if found[name]}
