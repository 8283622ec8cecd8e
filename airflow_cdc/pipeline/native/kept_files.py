"""Bytes of fetched files, kept while a run lasts: the survey, the types of columns and the fold each read a file, and fetch it once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

from fsspec import AbstractFileSystem

from airflow_cdc.pipeline.native.free_memory import free_memory

_MOST_OF_FILE = 32 * 1024**2
_MOST = 256 * 1024**2
_OF_FREE = 8
"""Of the memory that is free, one part in so many at most."""


class _Kept:
    """Files by store and path, the one that was used last behind the others."""

    def __init__(self) -> None:
        self.runs = 0
        self.lock = Lock()
        self.contents: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self.size = 0

    def clear(self) -> None:
        self.contents.clear()
        self.size = 0

    def find(self, store: str, path: str) -> bytes | None:
        found = self.contents.get((store, path))
        if found is not None:
            self.contents.move_to_end((store, path))
        return found

    def add(self, store: str, path: str, content: bytes, *, most: int) -> None:
        if len(content) > _MOST_OF_FILE or (store, path) in self.contents:
            return
        self.contents[store, path] = content
        self.size += len(content)
        while self.size > most:
            _, oldest = self.contents.popitem(last=False)
            self.size -= len(oldest)


_KEPT = _Kept()


@contextmanager
def fetching_once() -> Iterator[None]:
    """Keep the bytes of small files that are fetched inside, so that they are fetched once. Several runs of one process may overlap."""
    with _KEPT.lock:
        _KEPT.runs += 1
    try:
        yield
    finally:
        with _KEPT.lock:
            _KEPT.runs -= 1
            if not _KEPT.runs:
                _KEPT.clear()


def fetch_contents(fs: AbstractFileSystem, store: str, paths: Sequence[str]) -> list[bytes]:
    """Return the bytes of files.

    :param store: of the paths, to tell files of two stores apart.
    :raises OSError: when one cannot be read.
    """
    with _KEPT.lock:
        found = {path: content for path in paths if (content := _KEPT.find(store, path)) is not None}
    missing = [path for path in paths if path not in found]
    # Several at once on object stores; `cat` would take a name for a pattern as well.
    found |= dict(zip(missing, fs.cat_ranges(missing, None, None, on_error="raise"), strict=True)) if missing else {}
    with _KEPT.lock:
        if _KEPT.runs:
            most = min(_MOST, (free_memory() or _MOST) // _OF_FREE)
            for path in missing:
                _KEPT.add(store, path, found[path], most=most)
    return [found[path] for path in paths]
