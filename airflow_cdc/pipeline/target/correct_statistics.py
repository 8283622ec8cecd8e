"""Correct in a table's log the statistics of files whose writer does not log right ones, once, without rewriting data.

Earlier versions let delta-rs write the files of small tables, of change logs and of delete markers
(:mod:`airflow_cdc.pipeline.target.rounded_range`). Readers pass over rows by what it logged. The footers of the files are exact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote

from airflow_cdc.model.delta_rs_options import NotReached
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.pipeline.spark.exclusive_writes import excludes_writers
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.add_actions import Action, UnreadableLogError, read_adds, statistics_of
from airflow_cdc.pipeline.target.commit_natively import commit_statistics
from airflow_cdc.pipeline.target.file_statistics import is_logged_rightly, read_footer, statistics_of_file
from airflow_cdc.pipeline.target.open_natively import open_table

_ATTEMPTS, _AT_ONCE = 3, 16
_ASKS_OF_EACH_COMMIT = frozenset({"inCommitTimestamp", "inCommitTimestamp-preview", "catalogManaged", "catalogOwned-preview"})
"""Features by which every commit has to say more."""


def correct_statistics(uri: str, *, dry_run: bool = False, attempts: int = _ATTEMPTS) -> int | None:
    """Correct a table's statistics in one commit, and return the number of files that it is about; None where they are not read here.

    Costs a look into the footer of each file with statistics.

    :raises ConcurrentRunError: when other runs kept committing first.
    :raises OSError: when the store fails.
    """
    if any(find_spec(package) is None for package in ("deltalake", "pyarrow")):
        return None
    from deltalake.exceptions import DeltaError

    try:
        # Where two writers may replace each other's commits, nothing was written without Spark.
        table = open_table(uri) if excludes_writers(uri) else None
        adds = read_adds(uri, table) if table is not None and _may_commit(table) else None
    except (NotReached, DeltaError, UnreadableLogError):
        return None
    if adds is None:
        return None
    corrected = _corrected(uri, table, [action for action in adds.values() if statistics_of(action)])
    try:
        if corrected and not dry_run:
            commit_statistics(uri, table, corrected)
    except ConcurrentRunError:
        if attempts == 1:
            raise
        return correct_statistics(uri, attempts=attempts - 1)
    return len(corrected)


def _may_commit(table: Any) -> bool:
    return not _ASKS_OF_EACH_COMMIT & set(table.protocol().writer_features or ())


def _corrected(uri: str, table: Any, adds: Sequence[Action]) -> list[Action]:
    """Return the actions that have other statistics than their files."""
    fields = json.loads(table.schema().to_json())["fields"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        exact = list(pool.map(lambda action: _exact_statistics(uri, action, fields), adds))
    return [{**action, "stats": text} for action, text in zip(adds, exact, strict=True) if text and text != action["stats"]]


def _exact_statistics(uri: str, action: Action, fields: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a file's statistics; None where its writer logs right ones."""
    fs, root = file_system(uri)
    with fs.open(f"{root.rstrip('/')}/{unquote(action['path'])}") as file:
        metadata = read_footer(file)
    return None if is_logged_rightly(metadata) else statistics_of_file(metadata, fields, has_vector="deletionVector" in action)
