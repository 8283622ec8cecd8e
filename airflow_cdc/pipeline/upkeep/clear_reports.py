"""Clear reports: remove job reports that no task has read."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.places import REPORTS_FOLDER

KEPT_FOR = timedelta(days=7)
"""How long a report stays: no task waits longer, and a task reads its report within minutes."""


def clear_reports(fs: FileSystem, lake_root: str, *, dry_run: bool) -> int:
    """Remove files older than :data:`KEPT_FOR` from a lake's folder of job reports; return how many there were.

    A task removes the report that it has read. Reports of tasks that never came back stay, and so do files of interrupted writes.

    :raises OSError: when the store refuses.
    """
    folder = f"{lake_root.rstrip('/')}/{REPORTS_FOLDER}"
    old = datetime.now(timezone.utc) - KEPT_FOR
    removed = 0
    try:
        paths = [str(path) for path in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return 0
    for path in paths:
        # A task or another run may remove the file meanwhile.
        with suppress(FileNotFoundError):
            if fs.modified(path) < old:
                if not dry_run:
                    fs.rm(path)
                removed += 1
    return removed
