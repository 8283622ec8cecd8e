"""Clear staging: remove staging folders left behind by crashed microbatches."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow_cdc.model.files import FileSystem

_LEFT_OVER_AFTER = timedelta(days=1)


def clear_staging(fs: FileSystem, folder: str, *, dry_run: bool) -> int:
    """Remove the folders in a flow's staging folder that were not written to for a day; return how many there were.

    A running microbatch keeps staging into new folders; a resumed one stages anew.
    """
    if not fs.exists(folder):
        return 0
    old = datetime.now(timezone.utc) - _LEFT_OVER_AFTER
    left = [path for path in map(str, fs.ls(folder, detail=False)) if _written_at(fs, path) < old]
    if not dry_run:
        for path in left:
            fs.rm(path, recursive=True)
    return len(left)


def _written_at(fs: FileSystem, folder: str) -> datetime:
    """Return when the newest file of a folder was written; the folder's own time if it is empty."""
    return max((fs.modified(path) for path in fs.find(folder, detail=False)), default=None) or fs.modified(folder)
