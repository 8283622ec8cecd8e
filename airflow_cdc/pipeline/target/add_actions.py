"""The ``add`` actions of a Delta table's live files, as its log has them: with deletion vectors, and statistics as they are written.

delta-rs shows neither. They are read from the last checkpoint and the commits behind it, and compared with the files that delta-rs knows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.deletion_vectors import has_vectors
from airflow_cdc.pipeline.target.open_natively import live_files

Action = dict[str, Any]


class UnreadableLogError(ValueError):
    """Raised for a log that is not read here; its text is the reason."""


def adds_of(uri: str, table: Any) -> dict[str, Action]:
    """Return what :func:`read_adds` does. Of a table without deletion vectors the log is not read: its actions have no statistics."""
    if has_vectors(table):
        return read_adds(uri, table)
    return {unquote(file["path"]): {"path": file["path"], "partitionValues": {}, "size": file["size_bytes"]} for file in live_files(table)}


def read_adds(uri: str, table: Any) -> dict[str, Action]:
    """Return the ``add`` action of each live file, by its path below the table, unquoted.

    :param table: delta-rs's table.
    :raises UnreadableLogError: for a checkpoint of another kind, and for a log that delta-rs reads otherwise.
    :raises OSError: when the store fails.
    """
    fs, root = file_system(uri)
    log = f"{root.rstrip('/')}/_delta_log"
    first, found = _checkpoint(fs, log, table.version())
    for version in range(first, table.version() + 1):
        removed, added = _commit(fs, log, version)
        # A file that gets another deletion vector is removed and added in one commit, whose actions have no order.
        for path in removed:
            found.pop(path, None)
        found |= added
    known = {unquote(str(file["path"])) for file in live_files(table)}
    if known != found.keys():
        raise UnreadableLogError(f"its log shows {len(found):,} files, and delta-rs {len(known):,}")
    return found


def _checkpoint(fs: Any, log: str, version: int) -> tuple[int, dict[str, Action]]:
    """Return the adds of the last checkpoint by path, and the version of the first commit behind it."""
    try:
        last = json.loads(fs.cat_file(f"{log}/_last_checkpoint"))
    except FileNotFoundError:
        return 0, {}
    if last.get("parts") or last.get("v2Checkpoint") or last["version"] > version:
        raise UnreadableLogError("its last checkpoint is in several files, or of a later version")
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    content = fs.cat_file(f"{log}/{last['version']:020d}.checkpoint.parquet")
    adds = pq.read_table(BytesIO(content), columns=["add"]).column("add")
    found = {unquote(action["path"]): _of_checkpoint(action) for action in adds.filter(pc.is_valid(adds)).to_pylist()}
    return int(last["version"]) + 1, found


def _of_checkpoint(action: Action) -> Action:
    if action.get("stats") is None:
        raise UnreadableLogError("its checkpoint has no statistics as JSON")
    maps = {name: dict(action[name] or ()) for name in ("partitionValues", "tags") if name in action}
    vector = {name: value for name, value in (action.get("deletionVector") or {}).items() if value is not None}
    whole = {**action, "deletionVector": vector or None}
    kept = {name: value for name, value in whole.items() if value is not None and not name.endswith("_parsed")}
    # As maps, which PyArrow gives as pairs.
    return {**kept, **{name: value for name, value in maps.items() if value or name == "partitionValues"}}


def _commit(fs: Any, log: str, version: int) -> tuple[set[str], dict[str, Action]]:
    """Return the paths of the files that a commit removes, and the actions of those that it adds."""
    try:
        text: bytes = fs.cat_file(f"{log}/{version:020d}.json")
    except FileNotFoundError as error:
        raise UnreadableLogError(f"its log lacks version {version}") from error
    removed, added = set(), dict[str, Action]()
    for line in text.splitlines():
        if line.startswith(b'{"remove"'):
            removed.add(unquote(json.loads(line)["remove"]["path"]))
        elif line.startswith(b'{"add"'):
            action = json.loads(line)["add"]
            added[unquote(action["path"])] = {name: value for name, value in action.items() if value is not None}
    return removed, added


def statistics_of(action: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statistics of an ``add`` action with its numbers as they are written; none where it has none."""
    found: dict[str, Any] = json.loads(action.get("stats") or "{}", parse_float=Decimal)
    return found
