"""``airflow-cdc page``: who has its address reads the lake, nobody else on the machine does, and nothing can be changed."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.support.page_lakes import ORDERS, write_shop

ROUTES = ["/", "/page.js", "/page.css", "/api/lakes", "/api/runs?lake=lake&flow=x", f"/api/quarantine?lake=lake&flow={ORDERS}", "/nothing"]


@dataclass
class Served:
    """The command, as it runs."""

    process: subprocess.Popen[str]
    port: int
    token: str

    def ask(self, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
        """Return the status, the body and the headers of an answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        found = (answer.status, answer.read().decode(), dict(answer.getheaders()))
        connection.close()
        return found

    def log_in(self) -> str:
        """Return the cookie that the printed address gives."""
        status, _, headers = self.ask(f"/?token={self.token}")
        assert (status, headers["location"]) == (303, "/")
        assert {"HttpOnly", "SameSite=Strict"} <= set(headers["set-cookie"].split("; "))
        return headers["set-cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = write_shop(tmp_path_factory.mktemp("shop")).lake
    command = [sys.executable, "-m", "airflow_cdc", "page", "--lake", str(lake), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        # All of it within the try: Popen waits at its end for a process that nobody has ended.
        try:
            assert process.stdout
            found = re.fullmatch(r"The page is ready, Ctrl-C ends it: http://127\.0\.0\.1:(\d+)/\?token=(\S+)\n", process.stdout.readline())
            assert found
            yield Served(process, int(found[1]), found[2])
        finally:
            process.kill()


@pytest.mark.parametrize("path", ROUTES)
def test_without_the_token_nothing_is_answered(served: Served, path: str) -> None:
    assert served.ask(path)[0] in (401, 404)
    assert served.ask(path, Cookie=f"airflow_cdc_{served.port}=guessed")[0] in (401, 404)
    assert ORDERS not in served.ask(path)[1]


def test_a_guessed_token_logs_nobody_in(served: Served) -> None:
    status, _, headers = served.ask("/?token=guessed")
    assert status == 401
    assert "set-cookie" not in headers
    assert served.ask("/?token=")[0] == 401
    assert served.ask("/?token=%C3%A4")[0] == 401


def test_who_has_the_address_reads_the_lake(served: Served) -> None:
    cookie = served.log_in()
    assert '"id":"lake"' in served.ask("/api/lakes", Cookie=cookie)[1]
    assert ORDERS in served.ask("/api/flow?lake=lake&flow=" + ORDERS, Cookie=cookie)[1]
    assert served.ask("/", Cookie=cookie)[0] == 200
    assert served.ask("/api/flow?lake=other&flow=x", Cookie=cookie)[0] == 422


def test_a_site_whose_name_leads_to_this_machine_is_refused(served: Served) -> None:
    cookie = served.log_in()
    assert served.ask("/api/lakes", Cookie=cookie, Host="attacker.example")[0] == 400
    assert served.ask("/api/lakes", Cookie=cookie, Host=f"localhost:{served.port}")[0] == 200


@pytest.mark.parametrize("path", ["/", "/api/lakes", "/api/runs", "/api/v2/connections", "/auth/token"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_nothing_can_be_changed(served: Served, path: str, method: str) -> None:
    assert served.ask(path, method=method, Cookie=served.log_in())[0] in (404, 405)


def test_no_airflow_stands_behind_it(served: Served) -> None:
    cookie = served.log_in()
    assert {served.ask(path, Cookie=cookie)[0] for path in ("/api/v2/version", "/api/v2/connections", "/auth/login", "/docs")} == {404}


def test_it_ends_when_it_is_ended_and_logs_no_token(served: Served) -> None:
    served.log_in()
    served.process.send_signal(signal.SIGTERM)
    output, errors = served.process.communicate(timeout=30)
    assert (served.process.returncode, output) == (0, "")
    assert "The page was ended." in errors
    assert served.token not in errors


def test_a_taken_port_is_refused_with_a_next_step(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "airflow_cdc", "page", "--lake", str(tmp_path), "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Give another --port" in " ".join(done.stderr.split())
