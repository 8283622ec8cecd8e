"""A ResourceManager that answers as YARN's REST interface does."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB = "application_1700000000000_0001"


class ResourceManager:
    """Tells the state of applications, and remembers what it is asked to do.

    ``state`` is that of all which ``states`` does not name; None is that of one it has forgotten.
    """

    def __init__(self) -> None:
        self.state: tuple[str, str] | None = ("RUNNING", "UNDEFINED")
        self.states: dict[str, tuple[str, str] | None] = {}
        self.asked: list[tuple[str, Any]] = []
        self.logins: list[str | None] = []
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                manager.logins.append(self.headers["Authorization"])
                found = manager.states.get(self.path.rsplit("/", 1)[1], manager.state)
                if found is None:
                    self.send_error(404)
                    return
                self._answer({"app": {"state": found[0], "finalStatus": found[1], "diagnostics": ""}})

            def do_PUT(self) -> None:
                manager.logins.append(self.headers["Authorization"])
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                manager.asked.append((self.path, asked))
                self._answer({"state": "KILLED"})

            def _answer(self, document: Any) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
