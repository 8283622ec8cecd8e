"""Archived JSON lines as DuckDB reads them, in one form: whole Kafka records, or values with their keys from companions.

In files of values, the partition and the first offset come from the file's name, and the nth line of the companion is the key of the nth
line (docs/reference/archive-layouts.md).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.pipeline.native.duckdb_sql import name, read_members, struct, text, texts
from airflow_cdc.pipeline.native.fetched_files import FetchedFiles, is_named_alike

START, IS_PAIRED = "__cdc_start", "__cdc_is_paired"
"""Columns of :meth:`RecordLines.read`."""
_OF_RECORD = ("topic", "partition", "offset", "key", "headers", "value")
_KEY, _KEYS_FILE = "__cdc_key", "__cdc_keys_file"


class UnpairedError(ValueError):
    """Raised where a file of values and its companion cannot be paired here; its text is the reason."""


def is_paired_natively(file: ArchivedFile) -> bool:
    """Return whether a file has no companion, or one that is read here."""
    return file.keys_path is None or (is_named_alike(file.keys_path) and not f"{file.path} {file.keys_path}".endswith((".zst", ".ZST")))


def fetch(archive: str, files: Sequence[ArchivedFile]) -> FetchedFiles:
    """Return files, and behind them their companions, for DuckDB.

    :raises OSError: when one cannot be read.
    """
    return FetchedFiles(archive, [*(file.path for file in files), *(file.keys_path for file in files if file.keys_path)])


@dataclass(frozen=True)
class RecordLines:
    """The lines of files of one layout, all of them with companions or none."""

    fetched: FetchedFiles
    """From :func:`fetch` of the files."""
    files: Sequence[ArchivedFile]
    are_values: bool

    @property
    def uris(self) -> list[str]:
        """The files' names in DuckDB."""
        return self.fetched.uris[: len(self.files)]

    def read(self, value: Mapping[str, str], key: str | Mapping[str, str]) -> str:
        """Return the query of the lines: filename, topic, partition, offset, headers (JSON), key, value (a struct), and two more.

        ``__cdc_start``: the first offset that the file's name gives, NULL among whole records. ``__cdc_is_paired``: false for a value that
        has a member of a whole record, and for a line without its companion's. A line that is not JSON, has a member twice, or a member of
        another kind fails the statement.

        :param value: types of the value's members, by name.
        :param key: type of the key; or types of its members, by name.
        :raises UnpairedError: when a line begins with something else than ``{``, so that its number is not certain.
        """
        if not self.are_values:
            members = {**dict.fromkeys(("topic", "partition", "offset"), "VARCHAR"), "headers": "JSON"}
            kind = key if isinstance(key, str) else struct(key)
            lines = read_members(self.uris, {**members, "key": kind, "value": struct(value)})
            return f"SELECT *, CAST(NULL AS BIGINT) AS {START}, true AS {IS_PAIRED} FROM {lines}"
        if any(file.keys_path for file in self.files):
            return self._paired(value, key)
        keyless = f"CAST(NULL AS {key if isinstance(key, str) else struct(key)})"
        return f"SELECT *, {keyless} AS key FROM ({self._values(value)})"

    def _values(self, value: Mapping[str, str]) -> str:
        others = [member for member in _OF_RECORD if member not in value]
        packed = ", ".join(f"{name(member)} := {name(member)}" for member in value)
        none = " AND ".join(f"{name(member)} IS NULL" for member in others)
        return f"""
  SELECT filename, CAST(NULL AS VARCHAR) AS topic, CAST(NULL AS BIGINT) AS "offset", CAST(NULL AS JSON) AS headers,
    {self._by_name("partition", "INTEGER")} AS partition, {self._by_name("start_offset", "BIGINT")} AS {START},
    struct_pack({packed}) AS value, {none} AS {IS_PAIRED}
  FROM {read_members(self.uris, {**value, **dict.fromkeys(others, "JSON")})}"""

    def _by_name(self, attribute: str, kind: str) -> str:
        found = (getattr(file, attribute) for file in self.files)
        pairs = zip(self.uris, ("NULL" if value is None else str(int(value)) for value in found), strict=True)
        return f"CAST(MAP {{{', '.join(f'{text(uri)}: CAST({value} AS {kind})' for uri, value in pairs)}}}[filename] AS {kind})"

    def _paired(self, value: Mapping[str, str], key: str | Mapping[str, str]) -> str:
        companions = self.fetched.uris[len(self.files) :]
        for number, file in enumerate((*self.files, *self.files)):
            _check_lines(self.fetched.content(number), file.path if number < len(self.files) else str(file.keys_path))
        if isinstance(key, str):
            whole = f"read_ndjson_objects([{texts(companions)}], filename = true, hive_partitioning = false)"
            keys = f"SELECT filename AS {_KEYS_FILE}, json AS {_KEY} FROM {whole}"
        else:
            packed = ", ".join(f"{name(member)} := {name(member)}" for member in key)
            keys = f"SELECT filename AS {_KEYS_FILE}, struct_pack({packed}) AS {_KEY} FROM {read_members(companions, key)}"
        its = ", ".join(f"{text(uri)}: {text(companion)}" for uri, companion in zip(self.uris, companions, strict=True))
        paired = f"coalesce({IS_PAIRED} AND {_KEYS_FILE} = MAP {{{its}}}[filename], false)"
        return f"""
SELECT * EXCLUDE ({_KEY}, {_KEYS_FILE}) REPLACE ({paired} AS {IS_PAIRED}), {_KEY} AS key
FROM ({self._values(value)}) POSITIONAL JOIN ({keys})"""


def _check_lines(content: bytes, path: str) -> None:
    """Check that each line begins with an object: DuckDB counts no blank lines, and Spark begins a line behind each carriage return.

    :raises UnpairedError: where one does not.
    """
    try:
        lines: Any = gzip.decompress(content) if path.endswith(".gz") else content
    except (OSError, EOFError, zlib.error) as error:
        raise UnpairedError(f"{path}: {error}") from error
    ends = lines.count(b"\n") + (not lines.endswith(b"\n"))
    if not lines.startswith(b"{") or lines.count(b"\n{") + 1 != ends or lines.count(b"\r") != lines.count(b"\r\n"):
        raise UnpairedError(f"{path} has a line that does not begin with an object")
