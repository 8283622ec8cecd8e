"""A gateway before WebHDFS that asks for a password, as Knox does."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def running_gateway(web_hdfs: str, login: str, password: str) -> Iterator[int]:
    """Run a gateway on a free port of the loopback address.

    :param web_hdfs: ``host:port`` of the NameNode, which believes every name.
    """
    expected = "Basic " + base64.b64encode(f"{login}:{password}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def _forward(self) -> None:
            if self.headers["Authorization"] != expected:
                self.send_error(401)
                return
            with closing(HTTPConnection(web_hdfs, timeout=60)) as name_node:
                name_node.request(self.command, f"{self.path}&user.name={login}")
                answer = name_node.getresponse()
                body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Location"):
                if value := answer.getheader(name):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - the names that http.server calls.

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
