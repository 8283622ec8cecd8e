"""The file system calls that state and planning need, by fsspec's names.

The Airflow side passes ``ObjectStoragePath(...).fs``, the pipeline ``fsspec.core.url_to_fs(...)``: the same code serves both.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from airflow_cdc.model.errors import StateUnreadableError


class FileSystem(Protocol):
    """The part of ``fsspec.AbstractFileSystem`` in use here."""

    protocol: Any

    def exists(self, path: str) -> bool: ...
    def find(self, path: str, *, detail: bool) -> Any: ...
    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes: ...
    def pipe_file(self, path: str, value: bytes, **kwargs: Any) -> None: ...
    def makedirs(self, path: str, exist_ok: bool = False) -> None: ...
    def rm(self, path: str, recursive: bool = False) -> None: ...
    def ls(self, path: str, detail: bool) -> list[Any]: ...
    def modified(self, path: str) -> datetime: ...
    def info(self, path: str) -> dict[str, Any]: ...
    def invalidate_cache(self) -> None: ...


_PAUSES = (0.1, 0.5)
"""Seconds before each further read of an object whose content the client refuses."""
_NAMENODES = {"hdfs", "webhdfs", "viewfs"}
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"}


def is_object_store(fs: FileSystem) -> bool:
    """Return whether a file system is an object store, with folders in name only."""
    return bool(_OBJECT_STORES & _protocols(fs))


def is_local(fs: FileSystem) -> bool:
    """Return whether a file system is the local one."""
    return "file" in _protocols(fs)


def folds_case(fs: FileSystem, folder: str) -> bool:
    """Return whether a store is case-insensitive, like those of macOS and Windows, tested on an existing folder."""
    if (_OBJECT_STORES | _NAMENODES) & _protocols(fs):
        return False
    parent, _, name = folder.rpartition("/")
    return fs.exists(folder) and fs.exists(f"{parent}/{name.swapcase()}")


def _protocols(fs: FileSystem) -> set[str]:
    return set(fs.protocol) if isinstance(fs.protocol, tuple | list) else {fs.protocol}


def _make_parent(fs: FileSystem, path: str) -> None:
    # An object needs no folder; s3fs would create a misspelled bucket instead of raising an error.
    if not is_object_store(fs):
        fs.makedirs(_parent(path), exist_ok=True)


def read_json(fs: FileSystem, path: str) -> dict[str, Any] | None:
    """Return the JSON object in a file; None where the file does not exist.

    :raises StateUnreadableError: when the file holds anything else.
    """
    try:
        text = _read(fs, path)
    except FileNotFoundError:
        return None
    try:
        document = json.loads(text)
    except ValueError as error:
        raise StateUnreadableError(
            f"State file {path} is not JSON: {error}.", next_step="Restore it, or remove it if it is a checkpoint."
        ) from error
    if not isinstance(document, dict):
        raise StateUnreadableError(f"State file {path} holds no JSON object.", next_step="Restore it from a backup.")
    return document


def _read(fs: FileSystem, path: str, pauses: Sequence[float] = _PAUSES) -> bytes:
    try:
        return fs.cat_file(path)
    except OSError:
        raise
    except Exception:
        # The client of an object store raises an error of its own, a checksum's, where another run replaces the object meanwhile.
        if not pauses:
            raise
        time.sleep(pauses[0])
        return _read(fs, path, pauses[1:])


def replace_json(fs: FileSystem, path: str, document: dict[str, Any]) -> None:
    """Write a JSON object; readers see the old or the new one, never a part."""
    data = _encode(document)
    _make_parent(fs, path)
    if not is_local(fs):
        fs.pipe_file(path, data)
        return
    scratch = _scratch(path)
    _write_durably(scratch, data)
    Path(scratch).replace(path)


def create_json(fs: FileSystem, path: str, document: dict[str, Any]) -> bool:
    """Write a JSON object unless the file exists, as :func:`create_file`."""
    return create_file(fs, path, _encode(document))


def create_file(fs: FileSystem, path: str, data: bytes) -> bool:
    """Write a file unless it exists; exactly one of several writers gets True.

    This holds on local disks, on object stores that honour ``If-None-Match`` or its like (S3, GCS, ABFS), and on HDFS through WebHDFS.
    Elsewhere, including HDFS through Hadoop's native library, fsspec checks first and writes then, and two concurrent writers may both get
    True.
    """
    _make_parent(fs, path)
    if is_local(fs):
        # A link appears whole or not at all, and refuses to replace; mode "x" could leave half a file after a crash.
        scratch = _scratch(path)
        _write_durably(scratch, data)
        try:
            os.link(scratch, path)
        except FileExistsError:
            return False
        finally:
            Path(scratch).unlink()
        return True
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    return True


def _write_durably(path: str, data: bytes) -> None:
    with Path(path).open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def absolute_uri(uri: str) -> str:
    """Return a URI unchanged, or an absolute local path, so that Spark, fsspec and a run in another folder mean the same place."""
    return uri if "://" in uri or uri.startswith("file:") else str(Path(uri).absolute())


def short_hash(text: str) -> str:
    """Return a stable name of 12 hexadecimal digits for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def name_digest(name: str) -> int:
    """Return a 64-bit digest of a name; sums of digests compare sets of names without storing them."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, indent=1, ensure_ascii=False).encode()


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]


def _scratch(path: str) -> str:
    return f"{_parent(path)}/.{uuid.uuid4().hex}.tmp"
