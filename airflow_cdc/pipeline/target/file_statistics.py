"""The statistics of a new file, by which readers skip it (Delta's protocol, "Per-file Statistics").

As Delta writes them: of the first 32 columns, a struct's fields counted one by one. Texts are cut to 32 characters, instants to
milliseconds, both so that the range still holds every value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import MAXYEAR, date, datetime, timedelta, timezone
from decimal import Decimal
from math import isfinite
from typing import Any

from airflow_cdc.pipeline.native.duckdb_sql import name

_INDEXED, _ONLY = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_MOST_COLUMNS = 32
_LONGEST = 32
_LAST_CHARACTER = "\U0010ffff"
_ORDERED = ("byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "decimal")
"""Types that have a range; of others nulls are counted."""
Path = tuple[str, ...]


def are_by_default(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties leave it to Delta which columns have statistics."""
    return not {_INDEXED, _ONLY} & properties.keys()


def statistics_of_rows(connection: Any, rows: str, fields: Sequence[Mapping[str, Any]]) -> str:
    """Return the statistics of rows as JSON.

    :param connection: of DuckDB.
    :param rows: name of a relation with the columns.
    :param fields: the table's columns, in the JSON of its schema.
    """
    leaves = [leaf for field in fields for leaf in _leaves(field)][:_MOST_COLUMNS]
    asked = ["count(*) AS rows"]
    for number, (path, kind) in enumerate(leaves):
        value = ".".join(map(name, path))
        asked.append(f"count(*) - count({value}) AS nulls_{number}")
        asked += [f"min({value}) AS low_{number}", f"max({value}) AS high_{number}"] if kind.startswith(_ORDERED) else []
    (found,) = connection.sql(f"SELECT {', '.join(asked)} FROM {rows}").to_arrow_table().to_pylist()
    statistics: dict[str, Any] = {"numRecords": found["rows"], "minValues": {}, "maxValues": {}, "nullCount": {}, "tightBounds": True}
    for number, (path, _) in enumerate(leaves):
        _put(statistics["nullCount"], path, found[f"nulls_{number}"])
        if ends := _range(found.get(f"low_{number}"), found.get(f"high_{number}")):
            for end, value in zip(("minValues", "maxValues"), ends, strict=True):
                _put(statistics[end], path, value)
    return to_json(statistics)


def to_json(value: Any) -> str:
    """Return JSON in which decimals have all their digits, as numbers."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{to_json(held)}" for key, held in value.items()) + "}"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _leaves(field: Mapping[str, Any], within: Path = ()) -> Iterator[tuple[Path, str]]:
    path, kind = (*within, str(field["name"])), field["type"]
    if isinstance(kind, str):
        yield path, kind
    elif kind["type"] == "struct":
        for part in kind["fields"]:
            yield from _leaves(part, path)
    else:
        yield path, str(kind["type"])


def _put(into: dict[str, Any], path: Path, value: Any) -> None:
    *within, last = path
    for part in within:
        into = into.setdefault(part, {})
    into[last] = value


def _range(low: Any, high: Any) -> tuple[Any, Any] | None:
    """Return the ends of a range as they are written; None where they would not hold every value."""
    if low is None:
        return None
    if isinstance(low, float):
        return (low, high) if isfinite(low) and isfinite(high) else None
    if isinstance(low, str):
        cut = high if len(high) <= _LONGEST else high[:_LONGEST] + _LAST_CHARACTER
        return (low[:_LONGEST], cut) if high <= cut else None
    if isinstance(low, datetime):
        # The last instant of all has none behind it.
        return None if high.year == MAXYEAR else (_instant(low), _instant(high + timedelta(microseconds=-high.microsecond % 1000)))
    return (low.isoformat(), high.isoformat()) if isinstance(low, date) else (low, high)


def _instant(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    return value.astimezone(timezone.utc).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
