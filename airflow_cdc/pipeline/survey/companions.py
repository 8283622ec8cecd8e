"""Companions: whether a file that has the name of another one's keys or headers holds these, or the records of a topic of that name.

A topic may be called ``orders.keys``. A name proves a companion only where it is a sink's (``<topic>+<partition>+<offset>.keys.json``), so
the beginnings of the others are looked at, once, when they are new (docs/reference/archive-layouts.md#companions).
"""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from typing import IO, Any, cast

from fsspec import AbstractFileSystem

from airflow_cdc.model.archive.archived_files import ArchivedFile, is_proven_companion
from airflow_cdc.pipeline.spark.storage import file_system

_BEGINNING = 1024**2
"""Bytes of text that are looked at."""
_READERS = 16
_OF_ENVELOPE = ("before", "after", "source")
_OF_HEADER = {"key", "value"}
_BROKEN = object()


class Content(str, Enum):
    """What a file with a companion's name holds."""

    COMPANION = "companion"
    RECORDS = "records"
    UNCERTAIN = "uncertain"
    BROKEN = "broken"
    """No JSON, or unreadable: who reads the file says why."""


@dataclass(frozen=True)
class SettledFiles:
    """Files, each with the companion that it has."""

    files: tuple[ArchivedFile, ...]
    """Those that hold records."""
    companions: tuple[ArchivedFile, ...]
    """Those that hold other files' keys or headers."""
    uncertain: dict[str, str]
    """By path, why a file is in neither."""


def settle_companions(archive: str, files: Sequence[ArchivedFile]) -> SettledFiles:
    """Return the files with the companions that their contents show. Reads the beginnings of files that may be companions."""
    fs, root = file_system(archive)
    paths = {file.path for file in files if file.may_be_companion}
    paths |= {file.keys_path for file in files if file.keys_path and not is_proven_companion(file.keys_path)}
    with ThreadPoolExecutor(_READERS) as pool:
        found = dict(zip(sorted(paths), pool.map(lambda path: _content(fs, root, path), sorted(paths)), strict=True))
    records, others, uncertain = [], [], {}
    for file in files:
        own = found[file.path] if file.may_be_companion else Content.RECORDS
        of_keys = found.get(file.keys_path or "", Content.COMPANION)
        if own is Content.COMPANION:
            others.append(file)
        elif Content.UNCERTAIN in (own, of_keys):
            uncertain[file.path] = _why_uncertain(file.path if own is Content.UNCERTAIN else str(file.keys_path))
        else:
            keys_path = None if of_keys is Content.RECORDS else file.keys_path
            records.append(replace(file, keys_path=keys_path, may_be_companion=False))
    return SettledFiles(tuple(records), tuple(others), uncertain)


def _why_uncertain(path: str) -> str:
    name = path.rpartition("/")[2]
    return f"{name} may hold the keys or headers of the file beside it, or records of its own: put the two into folders of their own"


def _content(fs: AbstractFileSystem, root: str, path: str) -> Content:
    whole = f"{root.rstrip('/')}/{path}"
    try:
        if path.lower().endswith(".parquet"):
            import pyarrow.parquet as pq

            with fs.open(whole, "rb") as file:
                return _content_of_members(pq.read_schema(file).names)
        with fs.open(whole, "rb") as file:
            beginning = _text(cast("IO[bytes]", file), path).read(_BEGINNING)
    except (OSError, EOFError, ValueError, zlib.error):
        return Content.BROKEN
    if beginning.startswith(b"Obj\x01"):
        return _content_of_members(_members_of_avro(beginning))
    return content_of(beginning, is_whole=len(beginning) < _BEGINNING)


def _text(file: IO[bytes], path: str) -> IO[bytes]:
    name = path.lower()
    if name.endswith(".gz"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=file))
    if name.endswith(".bz2"):
        return cast("IO[bytes]", bz2.BZ2File(file))
    if name.endswith((".zst", ".zstd")):
        import pyarrow as pa

        return cast("IO[bytes]", pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd"))
    return file


def _members_of_avro(beginning: bytes) -> list[str]:
    text = beginning[beginning.find(b"avro.schema") :].decode(errors="replace")
    try:
        schema, _ = json.JSONDecoder().raw_decode(text, max(text.find("{"), 0))
    except ValueError:
        return []
    return [str(field.get("name")) for field in schema.get("fields", ()) if isinstance(field, dict)] if isinstance(schema, dict) else []


def _content_of_members(names: Sequence[str]) -> Content:
    """Return what a file of typed records holds, by the names of their members."""
    if not names:
        return Content.UNCERTAIN
    members = {**dict.fromkeys(names, 0), **{name: {} for name in names if name in ("value", *_OF_ENVELOPE)}}
    return Content.RECORDS if _is_record(members) else Content.COMPANION


def content_of(beginning: bytes, *, is_whole: bool) -> Content:
    """Return what JSON lines, or an array of documents, hold.

    :param is_whole: whether that is all of them.
    """
    found = {kind for document in _documents(beginning, is_whole=is_whole) if (kind := _kind(document)) is not None}
    # One broken line goes to the quarantine, beside whatever the others are.
    known = found - {Content.BROKEN} or found
    if len(known) == 1:
        return Content.UNCERTAIN if Content.BROKEN in known else known.pop()
    return Content.UNCERTAIN if known or not is_whole else Content.COMPANION


def _documents(beginning: bytes, *, is_whole: bool) -> Iterator[Any]:
    """Yield the documents of a text, those of arrays each alone; :data:`_BROKEN` for a line that is no JSON, and not cut off."""
    text, at, decoder = beginning.decode(errors="replace").lstrip("\ufeff"), 0, json.JSONDecoder()
    while at < len(text):
        if text[at] in "[], \t\r\n":
            at += 1
            continue
        try:
            document, at = decoder.raw_decode(text, at)
            yield document
        except (ValueError, RecursionError):
            end = text.find("\n", at)
            if end >= 0 or is_whole:
                yield _BROKEN
            at = end if end >= 0 else len(text)


def _kind(document: Any) -> Content | None:
    """Return what a line with this document is of; None where both may have it: a null is a tombstone, and no key."""
    if document is None:
        return None
    if document is _BROKEN:
        return Content.BROKEN
    if _is_record(document):
        return Content.RECORDS
    return Content.COMPANION if _is_key(document) or _is_header(document) else Content.UNCERTAIN


def _is_record(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    payload = document.get("payload")
    is_whole = "topic" in document and (isinstance(document.get("value"), dict) or {"value", "partition", "offset"} <= document.keys())
    return is_whole or _is_value(document) or (isinstance(payload, dict) and _is_value(payload))


def _is_value(document: Mapping[str, Any]) -> bool:
    is_envelope = "op" in document and any(isinstance(document.get(member), dict) for member in _OF_ENVELOPE)
    return is_envelope or "__op" in document or "__deleted" in document or {"specversion", "data"} <= document.keys()


def _is_key(document: Any) -> bool:
    if isinstance(document, dict) and document.keys() == {"schema", "payload"}:
        document = document["payload"]
    members = document.values() if isinstance(document, dict) else [document]
    return not any(isinstance(member, (dict, list)) and not _is_variable_scale(member) for member in members)


def _is_variable_scale(member: Any) -> bool:
    return isinstance(member, dict) and member.keys() == {"scale", "value"}


def _is_header(document: Any) -> bool:
    return isinstance(document, dict) and document.keys() == _OF_HEADER
