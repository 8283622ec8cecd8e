"""A file is fetched once in a run: against a file system that counts its reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_cdc.pipeline.native import kept_files
from airflow_cdc.pipeline.native.kept_files import fetch_contents, fetching_once

STORE = "s3://archive"


class Counting(MemoryFileSystem):  # type: ignore[misc]
    """Counts what is fetched."""

    cachable = False

    def __init__(self, **contents: bytes) -> None:
        super().__init__()
        self.store: dict[str, Any] = {}
        self.pseudo_dirs: list[str] = [""]
        self.fetched: list[str] = []
        for path, content in contents.items():
            self.pipe_file(f"/{path}", content)

    def cat_ranges(self, paths: Sequence[str], starts: Any, ends: Any, **kwargs: Any) -> list[bytes]:
        self.fetched += paths
        return list(super().cat_ranges(paths, starts, ends, **kwargs))


def test_a_file_is_fetched_once_in_a_run_and_anew_in_the_next() -> None:
    fs = Counting(a=b"one", b=b"two")
    for _ in range(2):
        with fetching_once():
            assert fetch_contents(fs, STORE, ["/a"]) == [b"one"]
            assert fetch_contents(fs, STORE, ["/b", "/a"]) == [b"two", b"one"]
            with fetching_once():
                assert fetch_contents(fs, STORE, ["/a", "/b"]) == [b"one", b"two"]
            assert fetch_contents(fs, "s3://another", ["/a"]) == [b"one"]
    assert fs.fetched == ["/a", "/b", "/a"] * 2
    fs.pipe_file("/a", b"another")
    assert [fetch_contents(fs, STORE, ["/a"]) for _ in range(2)] == [[b"another"]] * 2


def test_few_bytes_are_kept_and_the_file_that_was_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_files, "_MOST", 10)
    monkeypatch.setattr(kept_files, "_MOST_OF_FILE", 8)
    fs = Counting(a=b"aaaa", b=b"bbbb", c=b"cccc", large=b"123456789")
    with fetching_once():
        for paths in (["/a", "/b"], ["/a"], ["/c"], ["/a"], ["/b"], ["/large"], ["/large"]):
            fetch_contents(fs, STORE, paths)
    assert fs.fetched == ["/a", "/b", "/c", "/b", "/large", "/large"]


def test_a_file_that_is_not_there_is_an_error() -> None:
    with fetching_once(), pytest.raises(OSError, match="none"):
        fetch_contents(Counting(), STORE, ["/none"])
