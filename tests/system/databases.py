"""A PostgreSQL and a MariaDB on this machine, from the packages that it has, and the Airflow providers that reach them.

``scripts/source_databases.py`` brings the providers; no part of them is in the locked environment.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("SOURCE_DATABASES_TOOLS") or ROOT / ".tools" / "source-databases")
PACKAGES = TOOLS / "python"
USER, PASSWORD = "cdc", "not for logs: 7%/@"
_SECONDS_TO_START = 60


@dataclass(frozen=True)
class Database:
    """A running server with one user and one database."""

    conn_type: str
    port: int
    name: str
    run: Callable[[str], None]
    """Runs SQL as the administrator."""

    def connection(self, **changes: object) -> dict[str, object]:
        """Return the fields of an Airflow connection."""
        fields = {"conn_type": self.conn_type, "host": "127.0.0.1", "port": self.port, "login": USER, "password": PASSWORD}
        # Of MySQL's two drivers the one that comes as a wheel.
        extra = {"client": "mysql-connector-python"} if self.conn_type == "mysql" else {}
        return {**fields, "schema": self.name, "extra": extra, **changes}


@contextmanager
def running_postgresql(name: str) -> Iterator[Database]:
    """Run PostgreSQL on a free port of the loopback address with a database in which ``USER`` may read the catalogue only."""
    bin_folder = _program("postgres", *sorted(Path("/usr/lib/postgresql").glob("*/bin"))).parent
    with _folder_of("postgres") as (folder, owner):
        data, port = folder / "data", _free_port()
        _call([bin_folder / "initdb", "-D", data, "-U", "admin", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"], folder, owner)
        (data / "pg_hba.conf").write_text("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n", encoding="utf-8")
        settings = ["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]

        def run(sql: str, database: str = name) -> None:
            psql = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", folder, "-p", str(port), "-U", "admin", "-d", database]
            _call(psql, folder, owner, sql)

        with _running([bin_folder / "postgres", "-D", data, "-p", str(port), "-k", folder, *settings], port, folder, owner):
            run(f"CREATE DATABASE {name}; CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'", "postgres")
            yield Database("postgres", port, name, run)


@contextmanager
def running_mariadb(name: str) -> Iterator[Database]:
    """Run MariaDB on a free port of the loopback address with a database of which ``USER`` may read all tables."""
    server, install = _program("mariadbd", Path("/usr/sbin")), _program("mariadb-install-db")
    with _folder_of("mysql") as (folder, owner):
        data, socket_path, port = folder / "data", folder / "s.sock", _free_port()
        _call([install, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"], folder, owner)
        files = [f"--datadir={data}", f"--socket={socket_path}", f"--pid-file={folder / 'pid'}", f"--tmpdir={folder}"]

        def run(sql: str) -> None:
            _call(["mariadb", "--no-defaults", f"--socket={socket_path}", "-u", "root"], folder, owner, sql)

        with _running([server, "--no-defaults", *files, f"--port={port}", "--bind-address=127.0.0.1"], port, folder, owner):
            user = f"{USER}@'127.0.0.1'"
            run(f"CREATE DATABASE {name}; CREATE USER {user} IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON {name}.* TO {user}")
            yield Database("mysql", port, name, run)


def environment(**connections: dict[str, object]) -> dict[str, str]:
    """Return the environment of a process that has connections and the providers.

    :raises FileNotFoundError: when the providers are not there.
    """
    if not PACKAGES.is_dir():
        raise FileNotFoundError(f"{PACKAGES} is not there. Next step: python3 scripts/source_databases.py (make test-system does it).")
    named = {f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in connections.items()}
    path = os.pathsep.join([str(ROOT), str(PACKAGES)])
    return {**os.environ, "PYTHONPATH": path, "AIRFLOW_HOME": str(TOOLS / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", **named}


def _call(command: list[object], folder: Path, owner: dict[str, str], text: str = "") -> None:
    until = time.monotonic() + _SECONDS_TO_START
    while True:
        ran = subprocess.run([str(part) for part in command], input=text.encode(), capture_output=True, cwd=folder, check=False, **owner)
        # PostgreSQL listens before it takes anybody.
        if b"is starting up" not in ran.stderr or time.monotonic() > until:
            break
        time.sleep(0.2)
    assert ran.returncode == 0, (ran.stdout[-2000:] + ran.stderr[-4000:]).decode()


def _program(name: str, *folders: Path) -> Path:
    found = next((folder / name for folder in reversed(folders) if (folder / name).exists()), None) or shutil.which(name)
    if not found:
        pytest.skip(f"this machine has no {name}; apt-get install postgresql mariadb-server brings it")
    return Path(found)


@contextmanager
def _folder_of(user: str) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder, and how a process is started whose folder it is: as another user where we are root, as whom no database starts."""
    # None of pytest's: it closes these to other users.
    with tempfile.TemporaryDirectory(prefix="source-database-", ignore_cleanup_errors=True) as name:
        if os.getuid():
            yield Path(name), {}
        else:
            shutil.chown(name, user, user)
            yield Path(name), {"user": user, "group": user}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def _running(command: list[object], port: int, folder: Path, owner: dict[str, str]) -> Iterator[None]:
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, cwd=folder, **owner)
    try:
        until = time.monotonic() + _SECONDS_TO_START
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{command[0]} did not start: exit code {server.poll()}.\n{Path(log.name).read_text()[-2000:]}")
            time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait(30)
