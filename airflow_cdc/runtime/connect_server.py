"""connect_server: a Spark Connect server with Delta on this machine, as a child process."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_cdc.model.errors import ConfigurationError, TerminalError
from airflow_cdc.runtime.layout import package_folder, pyspark_folder
from airflow_cdc.runtime.private_file import write_privately
from airflow_cdc.runtime.spark import DRIVER_OPTIONS, spark_environment, spark_options

DEFAULT_PORT = 15002
"""Default port of Spark Connect's clients."""

TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""Spark's own variable: with it set, the server accepts only clients that send this token."""

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SECONDS_TO_START, _SECONDS_TO_STOP = 180.0, 15.0
_PR_SET_PDEATHSIG = 1


class ServerNotStartedError(TerminalError):
    """Raised when the Spark Connect server ended before it answered, or did not answer in time."""


def is_loopback(host: str) -> bool:
    """Return whether an address is reachable from this machine only."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def free_port(host: str, port: int) -> int:
    """Return a free port.

    :param port: the wanted one; 0: any.
    :raises ConfigurationError: when it is taken, or the address is not one of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as place:
        # As the server does: a port with lingering connections of a stopped server counts as free.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            place.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ConfigurationError(
                f"The server cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}.",
                next_step="Give another --port, or end what listens there; --host must be an address of this machine.",
            ) from error
        return int(place.getsockname()[1])


def server_options(host: str, port: int, options: Mapping[str, str]) -> dict[str, str]:
    """Return the server's Spark settings.

    :param options: override the defaults here; list options are appended to them.
    """
    ours = {
        **spark_options(),
        **DRIVER_OPTIONS,
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        # Spark would take the next port if this one is taken meanwhile, and clients would not find it.
        "spark.port.maxRetries": "0",
        # A killed client does not return: its queries end after one minute instead of five.
        "spark.connect.execute.manager.detachedTimeout": "1m",
        # Several clients' tables are merged concurrently.
        "spark.scheduler.mode": "FAIR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "256",
        # Sessions may bring storage keys; Spark's own pattern does not cover Azure's.
        "spark.redaction.regex": "(?i:secret|password|token|access[.]?key|account[.]key)",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_log4j()}",
    }
    given = {**options}
    for name, comma in (("spark.sql.extensions", ","), ("spark.jars", ","), ("spark.driver.extraJavaOptions", " ")):
        if name in given:
            given[name] = f"{ours[name]}{comma}{given[name]}" if name in ours else given[name]
    if "spark.jars.packages" in given and "spark.jars.packages" in ours:
        given["spark.jars.packages"] = f"{ours['spark.jars.packages']},{given['spark.jars.packages']}"
    return {**ours, **given}


@contextlib.contextmanager
def running_server(
    master: str, host: str, port: int, options: Mapping[str, str], *, token: str | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that answers when the context begins, and is stopped when it ends.

    Its log goes to this process's stderr.

    :param port: a free one, see :func:`free_port`.
    :param options: from :func:`server_options`. They are passed in a file that only this user can read.
    :param token: what clients must send; None: whoever reaches the port is let in.
    :raises ServerNotStartedError: when it does not answer.
    :raises JavaNotFoundError: when there is no Java to start it with.
    """
    environment = {**_without_spark(os.environ), **spark_environment(master), **({TOKEN_VARIABLE: token} if token else {})}
    with tempfile.TemporaryDirectory(prefix="airflow-cdc-serve-") as folder:
        properties = Path(folder, "spark.conf")
        write_privately(properties, "".join(f"{name} {_escaped(value)}\n" for name, value in options.items()))
        command = [str(pyspark_folder() / "bin" / "spark-submit"), "--class", _CLASS, "--name", "airflow-cdc serve"]
        command += ["--master", master, "--properties-file", str(properties)]
        server = _start(command, environment)
        try:
            _wait_until_it_answers(server, host, port)
            yield server
        finally:
            stop(server)


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    import ctypes

    def end_with_parent() -> None:
        # A killed process cannot end its children; on Linux the kernel does. Elsewhere the server outlives it.
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    # Its own process group: Ctrl-C in a terminal reaches only this process, which then ends the server in order.
    return subprocess.Popen(
        command,
        env=environment,
        stdout=sys.stderr,
        start_new_session=True,
        preexec_fn=end_with_parent,  # noqa: PLW1509 - this process has no other thread.
    )


def stop(server: subprocess.Popen[bytes]) -> None:
    """End a server and all its processes with SIGTERM, and after a while with SIGKILL."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(_SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(host: str, port: int, seconds: float = 1.0) -> bool:
    """Return whether something listens at an address."""
    with contextlib.suppress(OSError), socket.create_connection((_reached_by(host), port), timeout=seconds):
        return True
    return False


def _wait_until_it_answers(server: subprocess.Popen[bytes], host: str, port: int) -> None:
    until = time.monotonic() + _SECONDS_TO_START
    while server.poll() is None and time.monotonic() < until:
        if answers(host, port):
            return
        time.sleep(0.1)
    seen = "did not answer in time" if server.returncode is None else f"ended with exit code {server.returncode}"
    raise ServerNotStartedError(f"The Spark Connect server {seen}.", next_step="See Spark's log above.")


def _reached_by(host: str) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _without_spark(environment: Mapping[str, str]) -> dict[str, str]:
    # SPARK_REMOTE would make spark-submit a client of the server that it is to start.
    foreign = ("PYSPARK_GATEWAY", "SPARK_REMOTE", "SPARK_CONNECT_MODE", TOKEN_VARIABLE)
    return {name: value for name, value in environment.items() if not name.startswith(foreign)}


def _log4j() -> Path:
    return (package_folder("airflow_cdc") or Path()) / "jobs" / "log4j2.properties"


def _escaped(value: str) -> str:
    # A Java properties file.
    return value.replace("\\", "\\\\").replace("\n", "\\n")
