"""Archived files: which names are data, and what a name reveals about the records.

Layouts: JSON lines of whole Kafka records under any name; the Kafka Connect sinks'
``…/<topic>/partition=<n>/<topic>+<n>+<offset>.json[.gz]`` with or without folders by time, and companions
``.keys.json`` / ``.headers.json`` whose lines run beside the values'. Formats: docs/reference/archive-layouts.md.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any

from airflow_cdc.model.archive.time_in_path import time_in_path
from airflow_cdc.model.errors import ArchiveNotFoundError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.plain_json import JsonObject

_SINK_NAME = re.compile(r"^(?P<topic>.+)\+(?P<partition>\d+)\+(?P<offset>\d+)(?P<companion>\.keys|\.headers)?\.[A-Za-z][A-Za-z0-9.]*$")
_COMPANION_NAME = re.compile(
    r"^(?P<stem>.+)\.(?P<companion>keys|headers)(?P<ending>\.json(?:\.[a-z0-9]+)?|\.avro|(?:\.[a-z0-9]+)?\.parquet)$"
)
_ENDING = re.compile(
    r"((\.(json|jsonl|ndjson|txt|log))?(\.(gz|zst|zstd|bz2|snappy|lz4|deflate|xz|br|zip))?|\.avro|(\.(snappy|gz|gzip|zstd|lz4|lz4raw|brotli))?\.parquet)$",
    re.IGNORECASE,
)
_TYPED = re.compile(r"\.(avro|parquet)$", re.IGNORECASE)
_OTHER_ENDINGS = re.compile(
    r"\.((crc|tmp|part|inprogress|pending|md|sql|csv|orc|xml|yaml|yml|zip|tar)(\.(gz|zst|zstd|bz2))?|(avro|parquet)\.(gz|zst|zstd|bz2))$",
    re.IGNORECASE,
)
_ZIPPED_RECORDS = re.compile(r"\.(json|jsonl|ndjson|txt|log|avro|parquet)\.zip$", re.IGNORECASE)
"""Set aside, and not left aside: such a file holds records that nobody reads."""
_OF_PARTITION = re.compile(r"partition=(\d+)")
_FOLDER_VALUE = re.compile(r"^[^=/]+=[^/]*$")
_COMPRESSED = re.compile(r"\.(gz|zst|zstd|bz2|avro|parquet)$", re.IGNORECASE)
_MODIFIED = ("mtime", "LastModified", "last_modified", "updated")
"""Names that file systems give a file's modification time: local, S3, Azure, Google."""
_GAIN = 12
"""Approximate compression ratio of change events."""


class FileFormat(str, Enum):
    """How a file stores its records. Text may be compressed; the name shows how."""

    LINES = "lines"
    """One JSON document a line."""
    JOINED = "joined"
    """JSON documents, several of them on some lines."""
    ARRAY = "array"
    """One JSON array of documents."""
    AVRO = "avro"
    PARQUET = "parquet"


@dataclass(frozen=True, order=True)
class ArchivedFile(JsonObject, omits_defaults=True):
    """One archived data file."""

    path: str
    """Path below the archive's root."""
    size: int
    """Bytes in the archive, compressed or not."""
    topic: str
    """Topic from the file's name or folder. The records' own topic, where they carry one, takes precedence."""
    partition: int | None = None
    """Kafka partition from the name; None where the name has none."""
    start_offset: int | None = None
    """Kafka offset of the first record, from the name; None where the name has none."""
    keys_path: str | None = None
    """Companion whose lines are the keys of this file's lines: until the file is surveyed, by the name alone."""
    format: FileFormat = FileFormat.LINES
    """Format by the name, or by the survey where that found another."""
    respelled: bool = False
    """Whether a survey found records in other shapes than Debezium's envelope. They are respelled when they are read."""
    may_be_companion: bool = False
    """Whether the file has the name of another one's keys or headers, of a form that proves nothing; after a survey: whether it is that."""
    modified: int | None = None
    """When the file was written, in seconds since 1970; None where its folders name an earlier time."""

    @property
    def archived_at(self) -> int | None:
        """When the file was archived, in seconds since 1970; None where it is not known.

        The time in the folders' names counts, because a copy keeps it, unless the file was written earlier. Folders in a time zone ahead of
        UTC name times that are still to come.
        """
        return time_in_path(self.path) if self.modified is None else self.modified

    @property
    def is_topic_named(self) -> bool:
        """Whether the path names the topic: the file's name is a sink's, or its folder has folders by partition or time. Other files may
        have any name.
        """
        return self.start_offset is not None or _topic_folder(self.path) is not None

    @property
    def text_size(self) -> int:
        """Estimated bytes of the uncompressed lines."""
        return self.size * (_GAIN if _COMPRESSED.search(self.path) else 1)


@dataclass(frozen=True)
class ArchiveListing:
    """The files under an archive's root."""

    files: tuple[ArchivedFile, ...]
    """Data files, ordered by path."""
    ignored: tuple[str, ...]
    """Paths that are neither data nor a companion. They are reported, so that no archived event is missed silently."""


def side_by_side(files: Iterable[ArchivedFile]) -> tuple[ArchivedFile, ...]:
    """Return files in the order in which microbatches take them: as they are, but a sink's files of all partitions side by side.

    With one partition behind the other, each microbatch of a backfill would begin a partition that the ones before never saw, and count as
    late. The order is by folder, leaving out folders by partition, then by the offset in the name.
    """
    known = list(files)
    in_order = iter(sorted((file for file in known if file.start_offset is not None), key=_place_beside))
    return tuple(file if file.start_offset is None else next(in_order) for file in known)


def _place_beside(file: ArchivedFile) -> tuple[str, str, int, int]:
    folders = [part for part in file.path.split("/")[:-1] if not _OF_PARTITION.fullmatch(part)]
    return "/".join(folders), file.topic, file.start_offset or 0, file.partition or 0


def list_archive(fs: FileSystem, root: str) -> ArchiveListing:
    """List the data files of an archive.

    :param root: the archive's root as the file system names it (no protocol).
    :raises ArchiveNotFoundError: when there is no such folder.
    """
    if not fs.exists(root):
        raise missing_archive(root)
    prefix = root.rstrip("/") + "/"
    found: dict[str, Any] = fs.find(root, detail=True)
    if root in found:
        raise ArchiveNotFoundError(f"The archive's root {root} is a file.", next_step="Give the folder that holds the archived files.")
    return classify_infos((path.removeprefix(prefix), info) for path, info in found.items())


def classify_infos(found: Iterable[tuple[str, Mapping[str, Any]]]) -> ArchiveListing:
    """Classify files by their paths below the root and the file system's metadata, as :func:`classify` does."""
    infos = dict(found)
    return classify(
        ((path, int(info["size"] or 0)) for path, info in infos.items()), {path: modified_at(info) for path, info in infos.items()}
    )


def modified_at(info: Mapping[str, Any]) -> float | None:
    """Return when a file was written, in seconds since 1970; None where its file system does not report it."""
    value = next((info[name] for name in _MODIFIED if info.get(name)), None)
    if isinstance(value, str):
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value.timestamp() if isinstance(value, datetime) else None if value is None else float(value)


def missing_archive(root: str) -> ArchiveNotFoundError:
    """Return the error for an archive folder that does not exist."""
    return ArchiveNotFoundError(f"There is no archive at {root}.", next_step="Check the archive's root URI.")


def classify(paths: Iterable[tuple[str, int]], modified: Mapping[str, float | None] | None = None) -> ArchiveListing:
    """Sort (path below the root, size) pairs into data files with their companions, and the rest. Whether a file is a companion may be
    left to the survey (:attr:`ArchivedFile.may_be_companion`).

    :param modified: by path: when a file was written, in seconds since 1970.
    """
    sizes = dict(paths)
    keys_of: dict[str, str] = {}
    for path in sizes:
        companion = _COMPANION_NAME.match(path)
        if companion and companion["companion"] == "keys":
            keys_of[companion["stem"] + companion["ending"]] = path
    files, ignored = [], []
    for path in sorted(sizes):
        if _is_hidden(path) or is_proven_companion(path):
            continue
        if (_OTHER_ENDINGS.search(path) and not _ZIPPED_RECORDS.search(path)) or _is_skipped_by_spark(path):
            ignored.append(path)
        else:
            file = _describe(path, sizes[path], keys_of.get(path), _written(path, (modified or {}).get(path)))
            files.append(replace(file, may_be_companion=_may_be_companion(path, sizes)))
    return ArchiveListing(tuple(files), tuple(ignored))


def _is_hidden(path: str) -> bool:
    """Return whether a path is internal to a writer (a marker, or an unfinished file that gets another name later), or a heartbeat."""
    *folders, name = path.split("/")
    unfinished = any(folder.startswith(".") or folder in ("_temporary", "+tmp") for folder in folders)
    return unfinished or name.startswith((".", "_SUCCESS", "_committed_", "_started_", "__debezium-heartbeat"))


def is_proven_companion(path: str) -> bool:
    """Return whether a name proves that a file holds another one's keys or headers. A topic may be called ``orders.keys``: only a sink's
    name, in which they stand behind the offset, proves it.
    """
    sink = _SINK_NAME.match(path.rsplit("/", 1)[-1])
    return sink is not None and sink["companion"] is not None and _COMPANION_NAME.match(path) is not None


def _may_be_companion(path: str, paths: Container[str]) -> bool:
    companion = _COMPANION_NAME.match(path)
    return companion is not None and companion["stem"] + companion["ending"] in paths


def companions(name: str) -> Iterator[str]:
    """Yield the possible names of a file's keys companion, or, for a companion, the name of its values' file."""
    if companion := _COMPANION_NAME.match(name):
        yield companion["stem"] + companion["ending"]
    for dot in (place for place, letter in enumerate(name) if letter == "."):
        yield f"{name[:dot]}.keys{name[dot:]}"


def _is_skipped_by_spark(path: str) -> bool:
    # Spark's readers treat such a file as internal and silently return none of its lines.
    name = path.rsplit("/", 1)[-1]
    return (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _written(path: str, modified: float | None) -> int | None:
    """Return when a file was written; None where its folders name an earlier time, because a copy is written later."""
    named = time_in_path(path)
    return None if modified is None or (named is not None and named <= modified) else int(modified)


def _topic_folder(path: str) -> str | None:
    folders = path.split("/")[:-1]
    named = [part for part in folders if not _FOLDER_VALUE.match(part)]
    return named[-1] if named and len(named) < len(folders) else None


def _describe(path: str, size: int, keys_path: str | None, modified: int | None) -> ArchivedFile:
    *folders, name = path.split("/")
    sink = _SINK_NAME.match(name)
    typed = _TYPED.search(name)
    form = FileFormat(typed[1].lower()) if typed else FileFormat.LINES
    if sink:
        return ArchivedFile(path, size, sink["topic"], int(sink["partition"]), int(sink["offset"]), keys_path, form, modified=modified)
    partition = next((int(found[1]) for part in folders if (found := _OF_PARTITION.fullmatch(part))), None)
    topic = _topic_folder(path) or _ENDING.sub("", name, count=1)
    return ArchivedFile(path, size, topic or name, partition, None, keys_path, form, modified=modified)
