"""Delta tables as files: copies that cost nothing, and what commits wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_COPIED = ("_delta_log", "_cdc")
"""Folders in which a file may be written again; data files never change."""


@dataclass(frozen=True)
class Written:
    """What commits wrote into a table."""

    size: int
    """Bytes of new data files and deletion vectors."""
    files: int
    """Files that were there before and were rewritten or got a deletion vector."""


def link_tree(source: Path, target: Path) -> None:
    """Copy a folder of Delta tables: data files as hard links, logs and state as copies."""
    for path in source.rglob("*"):
        if not path.is_file():
            continue
        below = path.relative_to(source)
        (target / below).parent.mkdir(parents=True, exist_ok=True)
        if set(below.parts) & {*_COPIED}:
            shutil.copy2(path, target / below)
        else:
            os.link(path, target / below)


def last_version(table: Path) -> int:
    """Return the number of a table's last commit."""
    return max(int(path.stem) for path in _commits(table))


def written_since(table: Path, version: int) -> Written:
    """Return what the commits behind a version wrote."""
    size, touched, new = 0, set(), set()
    for action in _actions(table, after=version):
        if added := action.get("add"):
            is_known = added["path"] in touched
            vector = added.get("deletionVector") or {}
            size += int(vector.get("sizeInBytes", 0)) + (0 if is_known else int(added["size"]))
            new |= set() if is_known else {added["path"]}
        if removed := action.get("remove"):
            touched |= {removed["path"]} - new
    return Written(size, len(touched))


def live_files(table: Path) -> list[str]:
    """Return the paths of a table's data files. For tables without deletion vectors."""
    live: dict[str, None] = {}
    for action in _actions(table, after=-1):
        if removed := action.get("remove"):
            live.pop(removed["path"], None)
        if added := action.get("add"):
            live[added["path"]] = None
    return [str(table / unquote(path)) for path in live]


def _commits(table: Path) -> list[Path]:
    return sorted(path for path in (table / "_delta_log").glob("*.json") if path.stem.isdigit())


def _actions(table: Path, *, after: int) -> Iterator[dict[str, Any]]:
    """Yield the actions of the commits behind a version; of one commit the removals first, as an added file may be one of them."""
    for path in _commits(table):
        if int(path.stem) > after:
            actions = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            yield from sorted(actions, key=lambda action: "remove" not in action)
