"""HDFS by WebHDFS: a file is there whole or not at all, one writer creates it, and the NameNode that is active is asked.

What stands for HDFS here answers as Hadoop's does; ``tests/system/test_yarn.py`` asks a real one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from airflow_cdc.model.files import create_json, read_json, replace_json
from airflow_cdc.runtime.web_hdfs import hdfs_file_system

STANDBY = ("StandbyException", "Operation category READ is not supported in state standby.")
BROKEN = ("IOException", "the DataNode has no block of that name")


class Hdfs:
    """NameNode and DataNode in one: the redirect leads to where it came from, with ``data`` set."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.is_standby = self.has_broken_disks = False
        hdfs = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hdfs.answer(self)

            do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that http.server calls.

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        url = urlsplit(request.path)
        path, given = unquote(url.path).removeprefix("/webhdfs/v1"), {name: value[0] for name, value in parse_qs(url.query).items()}
        op, body = given["op"], request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.asked.append(op)
        if self.is_standby:
            return _answer(request, 403, _exception(*STANDBY))
        if op in ("CREATE", "OPEN") and "data" not in given:
            return _answer(request, 307, None, f"http://{request.headers['Host']}{request.path}&data=true")
        if "data" in given and self.has_broken_disks:
            return _answer(request, 500, _exception(*BROKEN))
        if op in ("OPEN", "GETFILESTATUS") and path not in self.files:
            return _answer(request, 404, _exception("FileNotFoundException", f"no {path}"))
        return _answer(request, 200, self._do(op, path, given, body))

    def _do(self, op: str, path: str, given: dict[str, str], body: bytes) -> Any:
        if op == "OPEN":
            first = int(given.get("offset", 0))
            return self.files[path][first:][: int(given["length"]) if "length" in given else None]
        if op == "GETFILESTATUS":
            return {"FileStatus": {"type": "FILE", "length": len(self.files[path]), "modificationTime": 1500, "pathSuffix": ""}}
        if op == "RENAME":
            is_free = given["destination"] not in self.files or given.get("renameoptions") == "OVERWRITE"
            if is_free:
                self.files[given["destination"]] = self.files.pop(path)
            return b"" if "renameoptions" in given else {"boolean": is_free}
        if op == "CREATE":
            self.files[path] = body
        return {"boolean": op != "DELETE" or self.files.pop(path, None) is not None}

    @property
    def options(self) -> dict[str, Any]:
        return {"protocol": "webhdfs", "hosts": ["127.0.0.1"], "port": self.server.server_port, "user": "etl", "skip_instance_cache": True}


def _exception(kind: str, message: str) -> dict[str, Any]:
    return {"RemoteException": {"exception": kind, "message": message}}


def _answer(request: BaseHTTPRequestHandler, status: int, body: Any, location: str = "") -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request.send_response(status)
    if location:
        request.send_header("Location", location)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


@pytest.fixture
def hdfs() -> Iterator[Hdfs]:
    started = Hdfs()
    yield started
    started.server.shutdown()
    started.server.server_close()


def test_a_state_file_is_created_once_and_replaced_whole(hdfs: Hdfs) -> None:
    fs, root = hdfs_file_system("hdfs://nameservice/lake", hdfs.options)
    assert root == "/lake"
    assert [create_json(fs, f"{root}/1.json", {"writer": writer}) for writer in (1, 2)] == [True, False]
    assert read_json(fs, f"{root}/1.json") == {"writer": 1}
    replace_json(fs, f"{root}/1.json", {"writer": 3})
    assert read_json(fs, f"{root}/1.json") == {"writer": 3}
    assert [*hdfs.files] == ["/lake/1.json"], "nothing is left of what was being written"
    assert "APPEND" not in hdfs.asked, "an empty file that grows would be seen"


def test_a_write_that_fails_changes_nothing(hdfs: Hdfs) -> None:
    fs, root = hdfs_file_system("hdfs://nameservice/lake", hdfs.options)
    replace_json(fs, f"{root}/1.json", {"is": "old"})
    hdfs.has_broken_disks = True
    with pytest.raises(Exception, match="500 Server Error"):
        replace_json(fs, f"{root}/1.json", {"is": "new"})
    hdfs.has_broken_disks = False
    assert hdfs.files.keys() == {"/lake/1.json"}
    assert read_json(fs, f"{root}/1.json") == {"is": "old"}


def test_a_data_node_s_error_is_no_content(hdfs: Hdfs) -> None:
    fs, root = hdfs_file_system("hdfs://nameservice/lake", hdfs.options)
    hdfs.files["/lake/1.json"] = b"{}"
    hdfs.has_broken_disks = True
    with pytest.raises(RuntimeError, match=BROKEN[1]):
        fs.cat_file(f"{root}/1.json")


@pytest.mark.parametrize(("start", "end"), [(None, None), (2, None), (0, 4), (2, 4), (-3, None), (-3, -1), (-99, 2), (4, 2), (0, 0)])
def test_a_part_of_a_file_is_what_python_takes_of_it(hdfs: Hdfs, start: int | None, end: int | None) -> None:
    fs, _ = hdfs_file_system("hdfs://nameservice/", hdfs.options)
    hdfs.files["/f"] = b"0123456789"
    assert fs.cat_file("/f", start=start, end=end) == b"0123456789"[start:end]


def test_the_name_node_that_is_active_is_asked(hdfs: Hdfs) -> None:
    standby = Hdfs()
    standby.is_standby = True
    # Hosts differ and the port does not: this machine's loopback addresses.
    hosts = ["127.0.0.1", "localhost"]
    fs, root = hdfs_file_system("hdfs://nameservice/lake", {**standby.options, "hosts": hosts})
    fs._others[0] = f"http://localhost:{hdfs.server.server_port}/webhdfs/v1"
    hdfs.files["/lake/1.json"] = b"{}"
    assert read_json(fs, f"{root}/1.json") == {}
    known = len(standby.asked)
    assert read_json(fs, f"{root}/1.json") == {}
    assert len(standby.asked) == known, "it is remembered"
    standby.server.shutdown()
    standby.server.server_close()


def test_a_web_root_needs_no_connection(hdfs: Hdfs) -> None:
    fs, root = hdfs_file_system(f"webhdfs://127.0.0.1:{hdfs.server.server_port}/lake/", {"skip_instance_cache": True})
    replace_json(fs, f"{root}/1.json", {})
    assert (root, fs.modified(f"{root}/1.json").isoformat()) == ("/lake", "1970-01-01T00:00:01.500000+00:00")


def test_a_job_that_reads_no_hdfs_needs_no_requests() -> None:
    import subprocess
    import sys

    program = "import sys; sys.modules['requests'] = None; from airflow_cdc.pipeline.spark.storage import file_system; file_system('/tmp')"
    root = Path(__file__).parents[2]
    ran = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
