"""An S3 store on this machine that checks no signature and heeds no condition; it shows what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Request(NamedTuple):
    """One request."""

    method: str
    target: str
    headers: Message


class CarelessStore(NamedTuple):
    """A running store."""

    endpoint: str
    requests: list[Request]
    objects: dict[str, bytes]
    """By path: bucket and key."""


@contextmanager
def careless_store() -> Iterator[CarelessStore]:
    """Run a store on a free port of the loopback address."""
    requests: list[Request] = []
    objects: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            requests.append(Request(self.command, self.path, self.headers))
            given = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            path, query = unquote(parts.path).lstrip("/"), parse_qs(parts.query)
            if "list-type" in query:
                self.reply(200, listing(objects, path.rstrip("/"), query))
            elif self.command == "PUT":
                objects[path] = given
                self.reply(200)
            elif self.command == "DELETE":
                objects.pop(path, None)
                self.reply(204)
            elif path in objects:
                self.reply(200, objects[path])
            else:
                self.reply(404)

        do_GET = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815 - http.server's names.

        def reply(self, status: int, body: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name.
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield CarelessStore(f"http://127.0.0.1:{server.server_port}", requests, objects)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def listing(objects: dict[str, bytes], bucket: str, query: dict[str, list[str]]) -> bytes:
    """Return the keys of a bucket below a prefix, in one page and without folders."""
    prefix, behind = (query.get(name, [""])[0] for name in ("prefix", "start-after"))
    keys = {path.partition("/")[2]: data for path, data in objects.items() if path.startswith(f"{bucket}/")}
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag><Size>{len(data)}</Size></Contents>"
        for key, data in sorted(keys.items())
        if key.startswith(prefix) and key > behind
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()
