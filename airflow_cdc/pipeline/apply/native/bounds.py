"""How large a microbatch and its table may be for one process (docs/performance.md#two-engines)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.native.free_memory import free_memory
from airflow_cdc.pipeline.spark.storage import is_local
from airflow_cdc.pipeline.target.open_natively import live_files
from airflow_cdc.pipeline.target.rounded_range import rounded_range

_GIB = 1024**3
MOST_TEXT_BYTES = 16 * _GIB
"""Text of a microbatch that one process decodes and folds."""
TASKS_FROM_BYTES = _GIB
"""Text from which a cluster's tasks decode and fold instead of the driver."""
MOST_OF_TASK_BYTES, _FETCHED_OF_TASK_BYTES = 4 * _GIB, _GIB
"""Text of the files that one task decodes and folds, and what it fetches of them: these are in memory."""
MOST_TOUCHED_BYTES = 16 * _GIB
"""Size of the files that a merge touches: of them the keys are read."""
_BASE, _OF_TEXT = 256 * 1024**2, 2
"""Memory of a merge: bytes, and a multiple of the text. Measured: 480 MiB more for 394 MiB of text, and 210 MiB for the merge."""
_IF_UNKNOWN = _BASE + 2 * _GIB
"""The most where the machine does not show what is free."""
_SPILLING, _OF_MUCH_TEXT = 4 * _GIB, 0.5
"""The same of much text, of which DuckDB spills what exceeds its share. Measured: 4.6 GiB for 4.7 GiB of text."""


def why_too_large(microbatch: Microbatch) -> str | None:
    """Return why a microbatch is too large for this process; None where it is not."""
    text = microbatch.text_size
    if text > MOST_TEXT_BYTES:
        return f"the microbatch has more than {_mebibytes(MOST_TEXT_BYTES)} of text"
    needed = _BASE + _fetched(microbatch.archive, microbatch.size) + min(_OF_TEXT * text, _SPILLING + int(_OF_MUCH_TEXT * text))
    free = free_memory()
    if free is None and needed > _IF_UNKNOWN:
        return f"the microbatch may take {_mebibytes(needed)} of memory, and the machine does not show how much is free"
    if free is not None and needed > free:
        return f"the microbatch may take {_mebibytes(needed)} of memory, and {_mebibytes(free)} are free"
    return None


def why_for_tasks(microbatch: Microbatch) -> str | None:
    """Return why a cluster's tasks decode and fold a microbatch that the driver has room for; None where they do not."""
    return f"the microbatch has more than {_mebibytes(TASKS_FROM_BYTES)} of text" if microbatch.text_size > TASKS_FROM_BYTES else None


def is_for_task(archive: str, files: Sequence[ArchivedFile]) -> bool:
    """Return whether one task decodes and folds files."""
    fetched = _fetched(archive, sum(file.size for file in files))
    return sum(file.text_size for file in files) <= MOST_OF_TASK_BYTES and fetched <= _FETCHED_OF_TASK_BYTES


def _fetched(archive: str, size: int) -> int:
    """Return the bytes of files of that size that are fetched, and so in memory: those of a store."""
    return 0 if is_local(archive) else size


def touched_bytes(table: Any, rows: Any, keys: Sequence[str]) -> int:
    """Return the size of the table's files whose range of keys holds some of the rows' range.

    :param table: delta-rs's table.
    :param rows: Arrow table of row changes.
    """
    return sum(file["size_bytes"] for file in touched_files(table, rows, keys))


def touched_files(table: Any, rows: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
    """Return the files of :func:`touched_bytes`, as :func:`airflow_cdc.pipeline.target.open_natively.live_files`."""
    import pyarrow.compute as pc

    ends = {key: pc.min_max(rows.column(key)).as_py() for key in keys}
    ranges = {key: rounded_range(each["min"], each["max"]) for key, each in ends.items()}
    return [file for file in live_files(table) if all(_may_hold(file, key, ranges[key]) for key in keys)]


def _may_hold(file: Mapping[str, Any], key: str, wanted: tuple[Any, Any]) -> bool:
    first, last = file.get(f"min.{key}"), file.get(f"max.{key}")
    try:
        return bool(first <= wanted[1] and wanted[0] <= last)
    except TypeError:
        # Statistics that are missing, or of another type than the column's, say nothing.
        return True


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"
