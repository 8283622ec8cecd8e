"""The job as a client of a Spark Connect server: a Python process of the task's own, without spark-submit or Java."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.sdk.log import mask_secret

from airflow_cdc.hooks.storage import existing_connection
from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.spark_target import python_path

_LINES_SHOWN = 20
_SECONDS_TO_END = 3.0
"""Seconds that a killed job has to end; Airflow kills the task itself by force after five."""
_OF_A_SUBMISSION = (
    "jars",
    "packages",
    "py_files",
    "files",
    "archives",
    "driver_memory",
    "executor_memory",
    "num_executors",
    "executor_cores",
)
"""Arguments of ``SparkSubmitOperator`` that a Spark Connect server fixes at its start."""
_FOREIGN = ("PYSPARK_GATEWAY", "SPARK_REMOTE", "SPARK_CONNECT_MODE", "SPARK_LOCAL_REMOTE", "SPARK_API_MODE")
"""Variables that would make the job use a Spark of the worker's environment."""


def connect_url(conn_id: str) -> str:
    """Return the URL of a connection of type ``spark_connect``; it may hold a token, so do not log it.

    :raises ConfigurationError: when the connection is missing, or its URL cannot be built.
    """
    connection = existing_connection(conn_id, "a connection of type spark_connect")
    try:
        url = str(SparkConnectHook(conn_id).get_connection_url())
    except (ValueError, AttributeError) as error:
        seen = f"its host {connection.host!r} cannot be read" if connection.host else "it has no host"
        raise ConfigurationError(
            f"Spark Connect connection {conn_id} cannot be used: {seen}.",
            next_step="Set its host to that of the server, and its port, 15002 by default.",
        ) from error
    if not connection.password:
        return url
    # The provider does not escape a slash, and PySpark would take what precedes it for a path.
    token = quote(connection.password, safe="")
    # Airflow masks the password; the URL may hold it in another spelling.
    mask_secret(token)
    return url.replace(f"token={quote(connection.password)}", f"token={token}")


def without_effect(operator: Any) -> list[str]:
    """Return the names of an operator's arguments that a running server ignores."""
    given = {name: getattr(operator, name, None) or getattr(operator, f"_{name}", None) for name in _OF_A_SUBMISSION}
    return [name for name, value in given.items() if value]


class ConnectClient:
    """A job that runs as a child of this process.

    :param log_line: called with every line that the job writes.
    """

    def __init__(self, log_line: Callable[[str], None]) -> None:
        self._log_line = log_line
        self._process: subprocess.Popen[str] | None = None
        self.last_lines: deque[str] = deque(maxlen=_LINES_SHOWN)

    def run(self, application: str, arguments: Iterable[str], variables: Mapping[str, str]) -> int:
        """Run the job to its end and return its exit code.

        :param variables: override those of this process.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
        environment |= {**python_path(), SUBMITTER_VARIABLE: str(os.getpid()), **variables}
        with subprocess.Popen(
            [sys.executable, application, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            self._process = process
            assert process.stdout
            for line in process.stdout:
                self.last_lines.append(line.rstrip())
                self._log_line(line.rstrip())
            return process.wait()

    def kill(self) -> None:
        """End the job, after a moment in which it can end its queries at the server, which would go on without it."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
