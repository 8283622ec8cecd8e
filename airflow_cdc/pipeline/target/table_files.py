"""The files of a Delta table for DuckDB: local ones where they lie, those of an object store by the file system that reads the state.

So one set of credentials serves, and neither a query nor an error of DuckDB holds any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote

from airflow_cdc.pipeline.native.fetched_files import NamedFiles
from airflow_cdc.pipeline.spark.storage import file_system, is_local
from airflow_cdc.pipeline.target.open_natively import live_files, native_path

_SCHEME = "cdc-table"
_PATTERN = re.compile(r"[*?\[]")
_WHOLE_UP_TO_BYTES = 4 * 1024**2
"""A file of this size is fetched at once; of a larger one DuckDB's ranges are."""
_BLOCK_BYTES = 1024**2


class UnreadableError(ValueError):
    """Raised where DuckDB would read other rows than the table has."""


class TableFiles:
    """The names by which DuckDB opens a table's files.

    :param uri: of the table.
    :param delta: delta-rs's table, with at least one file.
    :raises UnreadableError: for a file that DuckDB would not find under its name.
    """

    def __init__(self, uri: str, delta: Any) -> None:
        self._stored: _StoredFiles | None = None
        uris = delta.file_uris()
        if is_local(uri):
            self._names = {native_path(each): unquote(native_path(each)) for each in uris}
            if wild := [name for name in self._names.values() if _PATTERN.search(name)]:
                raise UnreadableError(f"the path {wild[0]} would be taken for a pattern")
            own = f"{unquote(native_path(delta.table_uri)).rstrip('/')}/"
            self._by_path = {name.removeprefix(own): name for name in self._names.values() if name.startswith(own)}
            return
        base = f"{delta.table_uri.rstrip('/')}/"
        if outside := [each for each in uris if not each.startswith(base)]:
            raise UnreadableError(f"its file {outside[0]} lies outside of it")
        self._names = {each: f"{_SCHEME}://{number}.parquet" for number, each in enumerate(uris)}
        paths = {name: unquote(each.removeprefix(base)) for each, name in self._names.items()}
        self._by_path = {path: name for name, path in paths.items()}
        self._stored = _StoredFiles(uri, paths, {unquote(each["path"]): int(each["size_bytes"]) for each in live_files(delta)})

    @property
    def names(self) -> list[str]:
        """All files' names."""
        return list(self._names.values())

    def name_of(self, uri: str) -> str:
        """Return the name of a file by its URI.

        :raises UnreadableError: for a file that is none of the table's.
        """
        if (name := self._names.get(native_path(uri))) is None:
            raise UnreadableError(f"a deletion vector names the file {uri}, which is none of the table's")
        return name

    def name_at(self, path: str) -> str:
        """Return the name of a file by its path below the table, unquoted.

        :raises UnreadableError: for a file that is none below the table.
        """
        if (name := self._by_path.get(path)) is None:
            raise UnreadableError(f"the file {path} does not lie below the table")
        return name

    def register(self, connection: Any) -> None:
        """Let a connection of DuckDB open the files, and no longer those of another table."""
        if self._stored:
            if _SCHEME in connection.list_filesystems():
                connection.unregister_filesystem(_SCHEME)
            connection.register_filesystem(self._stored)


class _StoredFiles(NamedFiles):
    """Files of one table on an object store, under numbers.

    :param paths: below the table, by name.
    :param sizes: in bytes, by path.
    """

    protocol = _SCHEME

    def __init__(self, uri: str, paths: Mapping[str, str], sizes: Mapping[str, int]) -> None:
        super().__init__()
        self._fs, root = file_system(uri)
        self._paths = {name: f"{root.rstrip('/')}/{path}" for name, path in paths.items()}
        self._sizes = {name: sizes[path] for name, path in paths.items() if path in sizes}

    def open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Return a reader of its own for each caller: DuckDB's threads share none."""
        if self.size_of(path) <= _WHOLE_UP_TO_BYTES:
            return BytesIO(self._fs.cat_file(self._paths[path]))
        return self._fs.open(self._paths[path], "rb", block_size=_BLOCK_BYTES)

    def size_of(self, name: str) -> int:
        """Return a file's bytes."""
        if name not in self._sizes:
            self._sizes[name] = int(self._fs.size(self._paths[name]))
        return self._sizes[name]
