"""List an object store after known names, where its file system can: S3, by ``StartAfter`` (ADR 0016)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, classify
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.state.ledger import Ledger

_TIME = re.compile(r"(year|month|day|hour|minute|date|dt|ds|time)=[^/]*|[0-9][-0-9T:_.]*")
"""A folder that a sink names after a time: the next one sorts after it."""

Sizes = dict[str, int]


def list_after(fs: FileSystem, root: str, ledger: Ledger) -> tuple[tuple[ArchivedFile, ...], tuple[ArchivedFile, ...]] | None:
    """Return the files that sort after the surveyed ones, and those of folders that were listed as a whole.

    A sink's files for one table are in one folder, or in folders by time, and continue after the greatest name there. The cost is one
    request per table, and one per folder above them.

    :return: None where the file system cannot list from a name on, or where nested folders make the order inconclusive.
    """
    call: Callable[..., dict[str, Any]] | None = getattr(fs, "call_s3", None)
    newest = _newest(ledger)
    above = {folder for series in newest for folder in _above(series)}
    if call is None or not newest or above & set(newest):
        return None
    bucket, _, key = root.strip("/").partition("/")
    store = _Store(call, bucket, f"{key}/" if key else "")
    behind: Sizes = {}
    others: Sizes = {}
    for series, folder in newest.items():
        if folder.rpartition("/")[2].startswith("partition="):
            behind |= store.behind(f"{series}/", f"{folder}/{ledger.folders[folder].through}")
        else:
            others |= store.behind(f"{series}/", f"{folder}/")
    for folder in sorted(above):
        files, folders = store.in_folder(f"{folder}/" if folder else "")
        others |= files
        for name in folders - set(newest) - above:
            others |= store.behind(f"{name}/", "")
    return classify(behind.items()).files, classify(others.items()).files


def _newest(ledger: Ledger) -> dict[str, str]:
    """Return by folder the last surveyed subfolder by time, or the folder itself where it has none."""
    newest: dict[str, str] = {}
    for folder in ledger.folders:
        parts = folder.split("/")
        while parts and _TIME.fullmatch(parts[-1]):
            parts.pop()
        series = "/".join(parts)
        newest[series] = max(folder, newest.get(series, folder))
    return newest


def _above(folder: str) -> Iterator[str]:
    parts = folder.split("/") if folder else []
    for depth in range(len(parts)):
        yield "/".join(parts[:depth])


class _Store:
    """One bucket, by paths below the archive's root."""

    def __init__(self, call: Callable[..., dict[str, Any]], bucket: str, prefix: str) -> None:
        self._call, self._bucket, self._prefix = call, bucket, prefix

    def behind(self, prefix: str, name: str) -> Sizes:
        """Return the files under a prefix that sort after a name, folder by folder."""
        start = {"StartAfter": self._prefix + name} if name else {}
        return dict(item for page in self._pages(prefix, **start) for item in self._sizes(page))

    def in_folder(self, prefix: str) -> tuple[Sizes, set[str]]:
        """Return the files directly in a folder, and the paths of its subfolders."""
        pages = list(self._pages(prefix, Delimiter="/"))
        folders = {found["Prefix"].removeprefix(self._prefix).rstrip("/") for page in pages for found in page.get("CommonPrefixes", ())}
        return dict(item for page in pages for item in self._sizes(page)), folders

    def _pages(self, prefix: str, **arguments: str) -> Iterator[dict[str, Any]]:
        while True:
            page = self._call("list_objects_v2", Bucket=self._bucket, Prefix=self._prefix + prefix, **arguments)
            yield page
            if not page.get("IsTruncated"):
                return
            arguments = {**arguments, "ContinuationToken": page["NextContinuationToken"]}

    def _sizes(self, page: dict[str, Any]) -> Iterator[tuple[str, int]]:
        for found in page.get("Contents", ()):
            path = found["Key"].removeprefix(self._prefix)
            # A folder's marker.
            if path and not path.endswith("/"):
                yield path, int(found["Size"])
