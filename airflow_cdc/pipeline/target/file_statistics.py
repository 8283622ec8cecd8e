"""The statistics of a file, by which readers skip it (Delta's protocol, "Per-file Statistics"), as Spark writes them.

Of the first 32 columns, a struct's fields counted one by one. Numbers have all their digits, texts are cut to 32 characters, and instants
to milliseconds, both so that the range still holds every value. They come from the file's own footer, which is exact by every writer:
delta-rs rounds them only on the way from there into the log (:mod:`airflow_cdc.pipeline.target.rounded_range`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import MAXYEAR, date, datetime, timedelta, timezone
from decimal import Decimal
from math import isfinite
from typing import Any

from airflow_cdc.pipeline.target.delta_types import physical_name

_INDEXED, _ONLY = "delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns"
_MOST_COLUMNS = 32
_LONGEST = 32
_LAST_CHARACTER = "\U0010ffff"
_ORDERED = ("byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz", "decimal")
"""Types that have a range; of others nulls are counted, those within lists not."""
_FLOATING, _KNOWS_NAN = ("float", "double"), "DuckDB"
_WRITERS = (_KNOWS_NAN, "parquet-mr")
"""As footers name them: ours, and Spark."""
Path = tuple[str, ...]


def are_by_default(properties: Mapping[str, str]) -> bool:
    """Return whether a table's properties leave it to Delta which columns have statistics."""
    return not {_INDEXED, _ONLY} & properties.keys()


def read_footer(file: Any) -> Any:
    """Return the metadata of a Parquet file.

    :param file: path, or open file.
    :raises ArrowInvalid: where it is no Parquet file.
    :raises OSError: where it cannot be read.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        return opened.metadata


def is_logged_rightly(metadata: Any) -> bool:
    """Return whether the writer of a file, by its footer, is known to log right statistics of it."""
    return str(metadata.created_by).startswith(_WRITERS)


def statistics_of_file(metadata: Any, fields: Sequence[Mapping[str, Any]], *, has_vector: bool = False) -> str:
    """Return the statistics of a Parquet file as JSON.

    DuckDB gives a column with NaN no range, others one without NaN: so numbers of floating point have ranges by DuckDB alone.

    :param metadata: from :func:`read_footer`.
    :param fields: the table's columns, in the JSON of its schema.
    :param has_vector: whether rows of the file are marked as deleted, so that its ranges may be wider than those of the others.
    """
    leaves = {".".join(path): (path, kind) for field in fields for path, kind in _leaves(field)}
    asked = dict(list(leaves.items())[:_MOST_COLUMNS])
    statistics: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for number in range(metadata.num_columns if metadata.num_row_groups else 0):
        chunks = [metadata.row_group(group).column(number) for group in range(metadata.num_row_groups)]
        path, kind = asked.get(chunks[0].path_in_schema, ((), ""))
        if path:
            _add(statistics, path, kind, chunks=chunks, knows_nan=str(metadata.created_by).startswith(_KNOWS_NAN))
    return to_json({**statistics, "tightBounds": not has_vector})


def _add(statistics: dict[str, Any], path: Path, kind: str, *, chunks: Sequence[Any], knows_nan: bool) -> None:
    """Add a column's statistics."""
    found = [chunk.statistics for chunk in chunks]
    if not all(each is not None and each.has_null_count for each in found):
        return
    _put(statistics["nullCount"], path, sum(each.null_count for each in found))
    filled = [each for each, chunk in zip(found, chunks, strict=True) if each.null_count < chunk.num_values]
    is_known = all(each.has_min_max for each in filled) and (knows_nan or not kind.startswith(_FLOATING))
    if not filled or not is_known or not kind.startswith(_ORDERED):
        return
    try:
        ends = _range(min(each.min for each in filled), max(each.max for each in filled))
    except (OverflowError, ValueError):
        # A year that Python does not have.
        return
    for end, value in zip(("minValues", "maxValues"), ends or (), strict=False):
        _put(statistics[end], path, value)


def to_json(value: Any) -> str:
    """Return JSON in which decimals have all their digits, as numbers."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{to_json(held)}" for key, held in value.items()) + "}"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _leaves(field: Mapping[str, Any], within: Path = ()) -> Iterator[tuple[Path, str]]:
    path, kind = (*within, physical_name(field)), field["type"]
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
    if isinstance(low, float):
        # A footer may name either zero for both, and some readers tell them apart.
        return (low or -0.0, high or 0.0) if isfinite(low) and isfinite(high) else None
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
