"""Archived files for DuckDB: their bytes, fetched by the job's own file system, so that one set of credentials serves.

Local files whose names are no patterns are read where they lie.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from io import BytesIO
from typing import IO, Any, cast
from urllib.parse import urlsplit

from fsspec import AbstractFileSystem

from airflow_cdc.model.storage import store_of
from airflow_cdc.pipeline.native.kept_files import fetch_contents
from airflow_cdc.pipeline.spark.storage import OBJECT_STORES, file_system, is_local

_SCHEME = "cdc-files"
_URI = re.compile(rf"{_SCHEME}://(\d+)[.a-z]*")
_CODECS = {".gz": "gzip", ".zst": "zstd"}
"""PyArrow's, by what a name ends with."""
_OTHERWISE_COMPRESSED = re.compile(r"\.(gz|zst|zstd|bz2)$", re.IGNORECASE)
_PATTERN = re.compile(r"[*?\[\]{}\\]")


def is_fetched(archive: str) -> bool:
    """Return whether files of an archive's store are fetched."""
    return is_local(archive) or urlsplit(store_of(archive)).scheme in OBJECT_STORES


def is_named_alike(path: str) -> bool:
    """Return whether DuckDB and Spark decompress a file alike, by its name: ``.gz`` and ``.zst`` in small letters, or not at all."""
    return path.endswith(tuple(_CODECS)) or not _OTHERWISE_COMPRESSED.search(path)


class NamedFiles(AbstractFileSystem):  # type: ignore[misc]
    """Files for DuckDB under names of ours, which never change. A subclass knows their bytes."""

    cachable = False

    def size_of(self, name: str) -> int:
        """Return a file's bytes."""
        raise NotImplementedError

    def glob(self, path: str, **kwargs: Any) -> list[str]:
        """Return a file by its name."""
        return [path]

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return a file's name, size and kind."""
        return {"name": path, "size": self.size_of(path), "type": "file"}

    def modified(self, path: str) -> datetime:
        """Return one time for all: nothing changes here."""
        return datetime.fromtimestamp(0, timezone.utc)


class FetchedFiles(NamedFiles):
    """Files in memory, under numbers: DuckDB would take ``*``, ``?`` and ``[`` in a name for a pattern, and read other files too.

    :param archive: URI of the root.
    :param paths: below the root.
    :raises OSError: when a file cannot be read.
    """

    protocol = _SCHEME

    def __init__(self, archive: str, paths: Sequence[str]) -> None:
        super().__init__()
        self._paths = paths
        fs, root = file_system(archive)
        whole = [f"{root.rstrip('/')}/{path}" for path in paths]
        fetched = [not is_local(archive) or _PATTERN.search(path) is not None for path in whole]
        numbers = [f"{_SCHEME}://{number}{_ending(path)}" for number, path in enumerate(paths)]
        self.uris = [number if is_so else path for number, path, is_so in zip(numbers, whole, fetched, strict=True)]
        contents = fetch_contents(fs, store_of(archive), [path for path, is_so in zip(whole, fetched, strict=True) if is_so])
        self._contents = dict(zip((number for number, is_so in zip(numbers, fetched, strict=True) if is_so), contents, strict=True))
        self._whole = (fs, whole)

    def content(self, number: int) -> bytes:
        """Return the bytes of a file, as it is archived, by its place among the paths.

        :raises OSError: when it cannot be read.
        """
        uri = self.uris[number]
        fs, whole = self._whole
        return self._contents[uri] if uri in self._contents else bytes(fs.cat_file(whole[number]))

    def open_text(self, number: int) -> IO[bytes]:
        """Open a file's text, decompressed by its name, by its place among the paths.

        :raises OSError: when it cannot be read.
        """
        import pyarrow as pa

        uri = self.uris[number]
        source = pa.BufferReader(self._contents[uri]) if uri in self._contents else uri
        ending = _ending(uri)
        return cast(IO[bytes], pa.input_stream(source, compression=_CODECS[ending] if ending else None))

    def named(self, text: str) -> str:
        """Return a text of DuckDB with the files' paths."""
        return _URI.sub(lambda found: self._paths[int(found[1])], text)

    def size_of(self, name: str) -> int:
        """Return a file's bytes."""
        return len(self._contents[name])

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> BytesIO:
        """Return a reader of its own for each caller: DuckDB's threads share none."""
        return BytesIO(self._contents[path])


def _ending(path: str) -> str:
    """Return the part of a name by which DuckDB and Spark know how a file is compressed."""
    return next((ending for ending in _CODECS if path.endswith(ending)), "")
