"""How large a microbatch and its table may be for one process (docs/performance.md#two-engines)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.pipeline.native.free_memory import free_memory
from airflow_cdc.pipeline.target.open_natively import live_files

MOST_TEXT_BYTES = 1024**3
"""Text of a microbatch that one process decodes and folds."""
THREADED_FROM_BYTES = 32 * 1024**2
"""Text from which DuckDB may use several threads: below, the tables of a run are merged side by side."""
_TOUCHED_BYTES = 64 * 1024**2
_BASE, _OF_TEXT = 256 * 1024**2, 2
"""Memory of a merge: bytes, and a multiple of the text. Measured: 480 MiB more for 394 MiB of text, and 210 MiB for the merge."""


def why_too_large(text_bytes: int) -> str | None:
    """Return why a microbatch is too large for this process; None where it is not."""
    if text_bytes > MOST_TEXT_BYTES:
        return f"the microbatch has more than {_mebibytes(MOST_TEXT_BYTES)} of text"
    needed, free = _BASE + _OF_TEXT * text_bytes, free_memory()
    if free is not None and needed > free:
        return f"the microbatch may take {_mebibytes(needed)} of memory, and {_mebibytes(free)} are free"
    return None


def most_touched_bytes(text_bytes: int) -> int:
    """Return how large the files may be that a merge touches.

    delta-rs copies them whole, and Spark marks the changed rows by deletion vectors. But to copy a mebibyte costs about what the native
    engine spares where it decodes a mebibyte of text.
    """
    return _TOUCHED_BYTES + text_bytes


def touched_bytes(table: Any, rows: Any, keys: Sequence[str]) -> int:
    """Return the size of the table's files whose range of keys holds some of the rows' range.

    :param table: delta-rs's table.
    :param rows: Arrow table of row changes.
    """
    import pyarrow.compute as pc

    ranges = {key: pc.min_max(rows.column(key)).as_py() for key in keys}
    return sum(file["size_bytes"] for file in live_files(table) if all(_may_hold(file, key, ranges[key]) for key in keys))


def _may_hold(file: Mapping[str, Any], key: str, wanted: Mapping[str, Any]) -> bool:
    first, last = file.get(f"min.{key}"), file.get(f"max.{key}")
    try:
        return bool(first is None or last is None or (first <= wanted["max"] and wanted["min"] <= last))
    except TypeError:
        # Statistics of another type than the column's say nothing.
        return True


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"
