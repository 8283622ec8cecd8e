"""web_hdfs: HDFS over its HTTP interface (WebHDFS), which needs no Hadoop on the machine, or by Hadoop's native library."""

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
"""Seconds to wait for a connection, and for an answer: without, a NameNode that hangs would hold a task for ever."""
_STANDBY = "state standby"
"""What Hadoop's StandbyException says of a NameNode that is not the active one."""


def hdfs_file_system(uri: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the file system of an ``hdfs://`` or ``webhdfs://`` URI, and the URI's path as that names it.

    :param options: of the store, as a storage connection says them. With ``protocol`` ``webhdfs`` an ``hdfs://`` URI is reached by the
        ``hosts`` and ``port`` beside it, else by Hadoop's native library.
    :raises ImportError, OSError: when that library, or pyarrow, is not there.
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
    """fsspec's, with what state files rely on: a file is there whole or not at all, and one of several writers creates it.

    :param hosts: the NameNodes; the one that is active is asked.
    :param options: as fsspec's class takes them.
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
        # Under the name, and in the unit, that local disks have it.
        return {**WebHDFS._process_info(info), "mtime": info["modificationTime"] / 1000}

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:  # noqa: FBT001, FBT002 - fsspec's words.
        """Return what lies in a folder, or the file itself."""
        told = self._call("LISTSTATUS", path=path).json()["FileStatuses"]["FileStatus"]
        infos = [{**self._process_info(info), "name": _joined(path, info["pathSuffix"])} for info in told]
        return sorted(infos, key=lambda info: str(info["name"])) if detail else sorted(str(info["name"]) for info in infos)

    def modified(self, path: str) -> datetime:
        """Return when a file was written; fsspec's own has no time zone."""
        return datetime.fromtimestamp(self.info(path)["mtime"], timezone.utc)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        """Return a file's bytes. fsspec's own takes an error that a DataNode answers for the file's content."""
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
        """Write a file. fsspec's own creates it empty and appends, so that readers see parts, and a killed writer leaves one.

        :param mode: ``create`` refuses to replace, and of several writers one succeeds: HDFS renames to a free name once.
        :raises FileExistsError: when it does, and the file is there.
        """
        scratch = _joined(path.rpartition("/")[0], f".{uuid.uuid4().hex}.tmp")
        try:
            # In two steps, as the interface wants it: a body would be sent to the NameNode in vain.
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
        """Rename, over what is there. fsspec's own does nothing then, and does not say so.

        :raises FileExistsError: when a gateway does not know how.
        """
        answer = self._call("RENAME", "put", path=path1, destination=path2, renameoptions="OVERWRITE")
        if answer.content and not answer.json()["boolean"]:
            raise FileExistsError(f"{path2} is there, and {self.url} does not replace files by renaming.")


def _joined(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if name else folder
