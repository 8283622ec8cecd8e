"""The reports of a task's tries, where the job is another provider's: the job and the task that reads its report share no memory.

    <lake>/_cdc/reports/<task>-<try>.json

The name of the task is a hash. Each try has a report of its own, so that the report of a job whose task was given up is not taken for that
of the next one.
"""

from __future__ import annotations

from airflow_cdc.model.files import FileSystem, short_hash
from airflow_cdc.model.places import REPORTS_FOLDER

EVERY_TRY = "*"
"""Stands for the number of the try in the name of a report that is looked for."""


def report_name(task: str, number: int | str = EVERY_TRY) -> str:
    """Return the path of a report below the lake's root.

    :param task: what identifies the task instance among all that share the lake.
    :param number: of the try; :data:`EVERY_TRY`: of whichever is there.
    """
    text = number if isinstance(number, str) else f"{number:06d}"
    return f"{REPORTS_FOLDER}/{short_hash(task)}-{text}.json"


def number_of(name: str) -> int:
    """Return the number of the try in a report's name."""
    return int(name.removesuffix(".json").rpartition("-")[2])


def newest_report(fs: FileSystem, root: str, name: str) -> str | None:
    """Return the name of the report that a name means: of every try's, the last one that is there; None where there is none.

    :param root: the lake's root in its file system.
    :param name: a path below it, as :func:`report_name` returns it; any other path means itself, whether it is there or not.
    :raises OSError: when the store does not answer.
    """
    if EVERY_TRY not in name:
        # Not looked for here: fsspec's exists() takes every error of the store for absence.
        return name
    return max(reports_there(fs, root, name), default=None)


def reports_there(fs: FileSystem, root: str, name: str) -> list[str]:
    """Return the names of every try's reports that are there.

    :param name: as :func:`report_name` returns it for :data:`EVERY_TRY`.
    :raises OSError: when the store does not answer.
    """
    before, _, after = name.partition(EVERY_TRY)
    # Airflow's file systems keep listings; the job wrote the report since.
    fs.invalidate_cache()
    try:
        paths = [str(path) for path in fs.ls(f"{root}/{REPORTS_FOLDER}", detail=False)]
    except FileNotFoundError:
        return []
    names = (f"{REPORTS_FOLDER}/{path.rstrip('/').rpartition('/')[2]}" for path in paths)
    return [found for found in names if found.startswith(before) and found.endswith(after)]
