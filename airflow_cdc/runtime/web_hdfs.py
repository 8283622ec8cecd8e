"""web_hdfs: HDFS over its HTTP interface (WebHDFS), which needs no Hadoop on the machine, or through Hadoop's native library."""

from __future__ import annotations

import functools
import uuid
from collections import deque
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

import fsspec
import requests
from fsspec.implementations.webhdfs import WebHDFS

_SECONDS = (10, 120)
"""Seconds to wait for a connection, and for an answer: without a limit, a NameNode that hangs would block a task for ever."""
_STANDBY = "state standby"
"""Text of Hadoop's StandbyException from a NameNode that is not active."""


def hdfs_file_system(uri: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of an ``hdfs://`` or ``webhdfs://`` URI, and the URI's path in that file system.

    :param options: the store's options from a storage connection. With ``protocol`` ``webhdfs`` an ``hdfs://`` URI is reached through its
        ``hosts`` and ``port``, else through Hadoop's native library.
    :raises ImportError, OSError: when that library or pyarrow is missing.
    """
    parts = urlsplit(uri)
    given = dict(options)
    if given.pop("protocol", None) != "webhdfs":
        if parts.scheme != "webhdfs":
            fs, path = fsspec.core.url_to_fs(uri, **given)
            return fs, path
        given |= {"hosts": [parts.hostname or ""], "port": parts.port or 9870}
    return WebHdfs(tuple(given.pop("hosts")), **given), parts.path.rstrip("/") or "/"


class WebHdfs(WebHDFS):  # type: ignore[misc]
    """fsspec's class, with the guarantees that state files need: a file is visible whole or not at all, and only one of several writers
    creates it.

    :param hosts: the NameNodes; the active one is used.
    :param options: as for fsspec's class.
    """

    url: str

    def __init__(self, hosts: tuple[str, ...], **options: Any) -> None:
        if self._cached:
            return
        super().__init__(hosts[0], **options)
        self._others = deque(self.url.replace(f"//{hosts[0]}:", f"//{host}:", 1) for host in hosts[1:])

    def _connect(self) -> None:
        super()._connect()
        self.session.request = functools.partial(self.session.request, timeout=_SECONDS)

    def _call(self, *arguments: Any, **options: Any) -> Any:
        for _ in tuple(self._others):
            try:
                return super()._call(*arguments, **options)
            except (requests.ConnectionError, RuntimeError) as error:  # noqa: PERF203 - one NameNode after the other is asked.
                if isinstance(error, RuntimeError) and _STANDBY not in str(error):
                    raise
                self._others.append(self.url)
                self.url = self._others.popleft()
        return super()._call(*arguments, **options)

    @staticmethod
    def _process_info(info: dict[str, Any]) -> dict[str, Any]:
        # Under the name and in the unit that local disks use.
        return {**WebHDFS._process_info(info), "mtime": info["modificationTime"] / 1000}

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's words.
        """Return a folder's content, or the file itself."""
        statuses = self._call("LISTSTATUS", path=path).json()["FileStatuses"]["FileStatus"]
        infos = [{**self._process_info(info), "name": _joined(path, info["pathSuffix"])} for info in statuses]
        return sorted(infos, key=lambda info: str(info["name"])) if detail else sorted(str(info["name"]) for info in infos)

    def modified(self, path: str) -> datetime:
        """Return when a file was written; fsspec's own value has no time zone."""
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a file's bytes. fsspec's own method returns a DataNode's error as the file's content."""
        first, last = start or 0, end
        if first < 0 or (last is not None and last < 0):
            size = self.info(path)["size"]
            first = max(first + size, 0) if first < 0 else first
            last = last + size if last is not None and last < 0 else last
        if last is not None and last <= first:
            return b""
        length = {} if last is None else {"length": last - first}
        content: bytes = self._call("OPEN", path=path, offset=first, **length).content
        return content

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        """Write a file. fsspec's own method creates it empty and appends, so readers see parts, and a killed writer leaves one.

        :param mode: ``create`` refuses to replace, and only one of several writers succeeds: HDFS renames to a free name once.
        :raises FileExistsError: with ``create``, when the file exists.
        """
        scratch = _joined(path.rpartition("/")[0], f".{uuid.uuid4().hex}.tmp")
        try:
            # In two steps, as the interface requires: a body sent to the NameNode would be wasted.
            where = self._call("CREATE", "put", path=scratch, redirect=False).headers["Location"]
            self.session.put(where, data=value, headers={"content-type": "application/octet-stream"}).raise_for_status()
            if mode != "create":
                self.mv(scratch, path)
            elif not self._call("RENAME", "put", path=scratch, destination=path).json()["boolean"]:
                raise FileExistsError(path)
        except BaseException:
            self.rm(scratch)
            raise

    def mv(self, path1: str, path2: str, **options: Any) -> None:
        """Rename, replacing an existing file. fsspec's own method silently does nothing then.

        :raises FileExistsError: when a gateway does not support that.
        """
        answer = self._call("RENAME", "put", path=path1, destination=path2, renameoptions="OVERWRITE")
        if answer.content and not answer.json()["boolean"]:
            raise FileExistsError(f"{path2} is there, and {self.url} does not replace files by renaming.")


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if name else folder
