"""Archived JSON lines as DuckDB reads them, in one form: whole Kafka records, or values with their keys from companions.

In files of values, the partition and the first offset come from the file's name, and the nth line of the companion is the key of the nth
line (docs/reference/archive-layouts.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.pipeline.native.decompress import decompressed
from airflow_cdc.pipeline.native.duckdb_sql import name, read_members, struct, text, texts
from airflow_cdc.pipeline.native.fetched_files import FetchedFiles, is_named_alike

START, IS_OF_LAYOUT = "__cdc_start", "__cdc_is_of_layout"
"""Columns of :meth:`RecordLines.read`."""
Members = str | Mapping[str, str]
"""The type JSON, or the types of an object's members, by name."""
_OF_RECORD = ("topic", "partition", "offset", "key", "headers", "value")
_KEY, _KEYS_FILE = "__cdc_key", "__cdc_keys_file"


class UnpairedError(ValueError):
    """Raised where a file of values and its companion cannot be paired here; its text is the reason."""


def is_paired_natively(file: ArchivedFile) -> bool:
    """Return whether a file has no companion, or one that is read here."""
    return file.keys_path is None or is_named_alike(file.keys_path)


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

    def read(self, value: Members, key: Members, foreign: Sequence[str] = ()) -> str:
        """Return the query of the lines: filename, topic, partition, offset, headers (JSON), key, value, and two more.

        ``__cdc_start``: the first offset that the file's name gives, NULL among whole records. ``__cdc_is_of_layout``: false for a record
        with a foreign member, a value without its companion's key, and, where members are read, a value that has a record's. A line that is
        not JSON, has a member twice, or a member of another kind fails the statement.

        :param value: type of the value: JSON, or types of its members, by name.
        :param key: type of the key, alike.
        :param foreign: members beside a record's own that show a value of another shape.
        :raises UnpairedError: when a line begins with something else than ``{``, so that its number is not certain.
        """
        if not self.are_values:
            members = {**dict.fromkeys(("topic", "partition", "offset"), "VARCHAR"), "headers": "JSON"}
            lines = read_members(self.uris, {**members, "key": _type(key), "value": _type(value), **dict.fromkeys(foreign, "JSON")})
            own = f"* EXCLUDE ({', '.join(map(name, foreign))})" if foreign else "*"
            return f"SELECT {own}, CAST(NULL AS BIGINT) AS {START}, {_none_of(foreign)} AS {IS_OF_LAYOUT} FROM {lines}"
        if any(file.keys_path for file in self.files):
            return self._paired(value, key)
        return f"SELECT *, CAST(NULL AS {_type(key)}) AS key FROM ({self._values(value)})"

    def _values(self, value: Members) -> str:
        others = [] if isinstance(value, str) else [member for member in _OF_RECORD if member not in value]
        return f"""
  SELECT filename, CAST(NULL AS VARCHAR) AS topic, CAST(NULL AS BIGINT) AS "offset", CAST(NULL AS JSON) AS headers,
    {self._by_name("partition", "INTEGER")} AS partition, {self._by_name("start_offset", "BIGINT")} AS {START},
    {_packed(value)} AS value, {_none_of(others)} AS {IS_OF_LAYOUT}
  FROM {_lines(self.uris, value, others)}"""

    def _by_name(self, attribute: str, kind: str) -> str:
        found = (getattr(file, attribute) for file in self.files)
        pairs = zip(self.uris, ("NULL" if value is None else str(int(value)) for value in found), strict=True)
        return f"CAST(MAP {{{', '.join(f'{text(uri)}: CAST({value} AS {kind})' for uri, value in pairs)}}}[filename] AS {kind})"

    def _paired(self, value: Members, key: Members) -> str:
        companions = self.fetched.uris[len(self.files) :]
        for number, file in enumerate((*self.files, *self.files)):
            _check_lines(self.fetched.content(number), file.path if number < len(self.files) else str(file.keys_path))
        keys = f"SELECT filename AS {_KEYS_FILE}, {_packed(key)} AS {_KEY} FROM {_lines(companions, key)}"
        its = ", ".join(f"{text(uri)}: {text(companion)}" for uri, companion in zip(self.uris, companions, strict=True))
        paired = f"coalesce({IS_OF_LAYOUT} AND {_KEYS_FILE} = MAP {{{its}}}[filename], false)"
        return f"""
SELECT * EXCLUDE ({_KEY}, {_KEYS_FILE}) REPLACE ({paired} AS {IS_OF_LAYOUT}), {_KEY} AS key
FROM ({self._values(value)}) POSITIONAL JOIN ({keys})"""


def _none_of(members: Sequence[str]) -> str:
    return " AND ".join(f"{name(member)} IS NULL" for member in members) or "true"


def _type(members: Members) -> str:
    return members if isinstance(members, str) else struct(members)


def _packed(members: Members) -> str:
    """Return the SQL of a line from :func:`_lines` as one value."""
    if isinstance(members, str):
        return "json"
    return f"struct_pack({', '.join(f'{name(member)} := {name(member)}' for member in members)})"


def _lines(paths: Sequence[str], members: Members, others: Sequence[str] = ()) -> str:
    """Return the table function that reads lines whole (JSON), or their members and others (JSON)."""
    if isinstance(members, str):
        return f"read_ndjson_objects([{texts(paths)}], filename = true, hive_partitioning = false)"
    return read_members(paths, {**members, **dict.fromkeys(others, "JSON")})


def _check_lines(content: bytes, path: str) -> None:
    """Check that each line begins with an object: DuckDB counts no blank lines, and Spark begins a line behind each carriage return.

    :raises UnpairedError: where one does not.
    """
    try:
        lines = decompressed(content, path)
    except (OSError, EOFError, zlib.error) as error:
        raise UnpairedError(f"{path}: {error}") from error
    ends = lines.count(b"\n") + (not lines.endswith(b"\n"))
    if not lines.startswith(b"{") or lines.count(b"\n{") + 1 != ends or lines.count(b"\r") != lines.count(b"\r\n"):
        raise UnpairedError(f"{path} has a line that does not begin with an object")
