"""An Airflow as users run it: API server, scheduler, Dag processor and triggerer, each a process, on SQLite, reached through its API."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import psutil

_T = TypeVar("_T")
_PARTS = ("api-server", "scheduler", "dag-processor", "triggerer")
REPOSITORY = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class LiveAirflow:
    """One Airflow in a folder of its own."""

    def __init__(self, home: Path, dags: Path, **settings: str) -> None:
        self.home, self._port = home, free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._token = ""
        home.mkdir(parents=True)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHONDONTWRITE"))}
        self.environment = {
            **plain,
            "AIRFLOW_HOME": str(home),
            # SQLite has one writer at a time; a command that meets the scheduler must wait for it.
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db?timeout=60",
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__TEST_CONNECTION": "Enabled",
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API_AUTH__JWT_SECRET": "of these tests and of no use elsewhere, but long enough for the signature",
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(free_port()),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
            **settings,
        }

    def cli(self, *arguments: str, timeout: float = 120) -> str:
        """Run an ``airflow`` command to its end and return what it printed."""
        command = [sys.executable, "-m", "airflow", *arguments]
        done = subprocess.run(command, env=self.environment, cwd=self.home, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"airflow {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self) -> None:
        """Make the database, start all parts and wait until they are well."""
        self.cli("db", "migrate")
        for part in _PARTS:
            self.start_part(part)
        self.until(lambda: self._healthy() or None, "all parts to be well", seconds=180)

    def start_part(self, part: str) -> None:
        """Start one part; its output goes to a file in the home."""
        with (self.home / f"{part}.log").open("ab") as log:
            command = [sys.executable, "-m", "airflow", part]
            self._parts[part] = subprocess.Popen(command, env=self.environment, cwd=self.home, stdout=log, stderr=subprocess.STDOUT)

    def kill_part(self, part: str) -> None:
        """Kill one part and all that it started, as a lost machine would."""
        process = self._parts.pop(part)
        # Tasks are groups of their own.
        for started in (*psutil.Process(process.pid).children(recursive=True), process):
            with suppress(psutil.Error):
                started.kill()
        process.wait()

    def stop(self) -> None:
        """End all parts."""
        for part in list(self._parts):
            self.kill_part(part)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API (``/api/v2``) and return its answer."""
        if not self._token:
            self._token = str(self._http("GET", "/auth/token", None)["access_token"])
        return self._http(method, f"/api/v2{path}", body)

    def connect(self, conn_id: str, conn_type: str, host: str, **more: Any) -> None:
        """Make a connection through the API."""
        extra = {"extra": json.dumps(more.pop("extra"))} if "extra" in more else {}
        self.ask("POST", "/connections", {"connection_id": conn_id, "conn_type": conn_type, "host": host, **more, **extra})

    def disconnect(self, conn_id: str) -> None:
        """Remove a connection, if there is one."""
        try:
            self.ask("DELETE", f"/connections/{conn_id}")
        except HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise

    def dag_ids(self) -> list[str]:
        """Return the names of the Dags that are known."""
        return [dag["dag_id"] for dag in self.ask("GET", "/dags?exclude_stale=true")["dags"]]

    def pause(self, dag_id: str, *, is_paused: bool = True) -> None:
        """Start no more runs of a Dag."""
        self.ask("PATCH", f"/dags/{dag_id}", {"is_paused": is_paused})

    def unpause(self, dag_id: str) -> None:
        """Start runs of a Dag."""
        self.pause(dag_id, is_paused=False)

    def active_runs(self, dag_id: str) -> list[str]:
        """Return the ids of a Dag's runs that have not ended."""
        runs = self.ask("GET", f"/dags/{dag_id}/dagRuns?limit=100&state=running&state=queued")["dag_runs"]
        return [run["dag_run_id"] for run in runs]

    def runs(self, dag_id: str) -> set[str]:
        """Return the ids of all of a Dag's runs."""
        return {run["dag_run_id"] for run in self.ask("GET", f"/dags/{dag_id}/dagRuns?limit=100")["dag_runs"]}

    def run_at_work(self, dag_id: str, task_id: str) -> str:
        """Return the run of a Dag whose task is running."""
        return next(run for run in self.active_runs(dag_id) if self.task(dag_id, run, task_id)["state"] == "running")

    def xcom(self, dag_id: str, run_id: str, task_id: str) -> Any:
        """Return what a task returned."""
        return self.ask("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/xcomEntries/return_value")["value"]

    def trigger(self, dag_id: str, *, conf: dict[str, Any] | None = None, logical_date: str | None = None) -> str:
        """Start a run and return its id."""
        return str(self.ask("POST", f"/dags/{dag_id}/dagRuns", {"logical_date": logical_date, "conf": conf or {}})["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return a run's state."""
        return str(self.ask("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def task(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return a task instance."""
        return dict(self.ask("GET", f"/dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}"))

    def wait_for_run(self, dag_id: str, run_id: str, *, seconds: float = 300) -> str:
        """Return a run's final state."""

        def ended() -> str | None:
            state = self.run_state(dag_id, run_id)
            return state if state in ("success", "failed") else None

        return self.until(ended, f"run {run_id} of {dag_id} to end", seconds=seconds)

    def wait_for_task(self, dag_id: str, run_id: str, task_id: str, *states: str, seconds: float = 180) -> dict[str, Any]:
        """Return a task instance once it is in one of the states."""

        def there() -> dict[str, Any] | None:
            found = self.task(dag_id, run_id, task_id)
            return found if found["state"] in states else None

        return self.until(there, f"{task_id} of {run_id} to be {' or '.join(states)}", seconds=seconds)

    def until(self, look: Callable[[], _T | None], what: str, *, seconds: float) -> _T:
        """Return what ``look`` finds, asked every second until it is not None."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._refuse_ended_parts()
            try:
                found = look()
            except (OSError, HTTPError):
                found = None
            if found is not None:
                return found
            time.sleep(1)
        raise AssertionError(f"Waited {seconds:.0f} s for {what}.\n{self.logs()}")

    def logs(self) -> str:
        """Return the ends of all logs."""
        files = sorted([*self.home.glob("scheduler.log"), *self.home.glob("logs/**/attempt=*.log")])
        return "\n".join(f"== {file.relative_to(self.home)}\n{_end_of(file)}" for file in files)

    def task_log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Return all that a task's attempts logged."""
        folder = self.home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task_id}"
        return "\n".join(file.read_text(encoding="utf-8", errors="replace") for file in sorted(folder.rglob("attempt=*.log")))

    def _refuse_ended_parts(self) -> None:
        ended = [part for part, process in self._parts.items() if process.poll() is not None]
        assert not ended, f"{ended} ended.\n{self.logs()}"

    def _healthy(self) -> bool:
        found = self._http("GET", "/api/v2/monitor/health", None)
        return all(found[part]["status"] == "healthy" for part in ("scheduler", "triggerer", "dag_processor"))

    def _http(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {self._token}"} if self._token else {})}
        data = None if body is None else json.dumps(body).encode()
        try:
            with urlopen(Request(f"{self.url}{path}", data, headers, method=method), timeout=30) as answer:
                return json.loads(answer.read() or b"null")
        except HTTPError as error:
            error.add_note(f"{method} {path}: {error.read().decode(errors='replace')[:2000]}")
            raise


def _end_of(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")[-1500:]


@contextmanager
def running(airflow: LiveAirflow) -> Iterator[LiveAirflow]:
    """Start an Airflow and end it."""
    try:
        airflow.start()
        yield airflow
    finally:
        airflow.stop()
