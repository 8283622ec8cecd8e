"""Clear reports: remove the job reports that no task has taken."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.places import REPORTS_FOLDER

KEPT_FOR = timedelta(days=7)
"""How long a report stays: a task waits no longer for one, and reads it within minutes once it is there."""


def clear_reports(fs: FileSystem, lake_root: str, *, dry_run: bool) -> int:
    """Remove the files in a lake's folder of job reports that are older than :data:`KEPT_FOR`; return how many those were.

    A task removes the report that it has read. Those of tasks that never came back to read stay, and so do files of writes that were cut
    off.

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
        # A task, or another run, may take the file away meanwhile.
        with suppress(FileNotFoundError):
            if fs.modified(path) < old:
                if not dry_run:
                    fs.rm(path)
                removed += 1
    return removed
