"""A socket that takes StatsD's messages, and a client of StatsD for an environment that has none: Airflow's own code does all between."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class StatsClient:
    """What Airflow calls of the package ``statsd``: one message a call, as StatsD spells it."""

    def __init__(self, host: str, port: int, prefix: str, ipv6: bool = False) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._there, self._prefix = (host, port), prefix

    def __del__(self) -> None:
        self._socket.close()

    def _send(self, name: str, value: Any, kind: str) -> None:
        self._socket.sendto(f"{self._prefix}.{name}:{value}|{kind}".encode(), self._there)

    def incr(self, name: str, count: int = 1, rate: float = 1) -> None:
        self._send(name, count, "c")

    def gauge(self, name: str, value: float, rate: float = 1, delta: bool = False) -> None:
        self._send(name, value, "g")

    def timing(self, name: str, value: Any) -> None:
        self._send(name, value, "ms")

    def timer(self, name: str, rate: float = 1) -> Any:
        """Airflow's own durations, which no test asks for."""
        return SimpleNamespace(start=lambda: None, stop=lambda **_: None)


class StatsdServer:
    """The messages that came."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]

    def came(self, prefix: str = "airflow.cdc.") -> dict[str, str]:
        """Return what has come since the last call, by name and tags in their order: the value with its kind."""
        found = {}
        while True:
            try:
                name, _, value = self._socket.recv(65536).decode().partition(":")
            except TimeoutError:
                return found
            if name.startswith(prefix):
                assert name not in found, f"{name} twice"
                found[name.removeprefix(prefix)] = value

    def close(self) -> None:
        self._socket.close()


def unconfigured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Airflow's metrics what they are in a process that has not configured them, by the version."""
    from airflow.providers.common.compat.sdk import Stats

    module: Any = sys.modules[Stats.__module__]
    if hasattr(module, "_factory"):
        monkeypatch.setattr(module, "_factory", None)
        monkeypatch.setattr(module, "_backend", None)
    else:
        # Airflow 3.1 reads its configuration when the module is imported.
        from airflow.metrics import statsd_logger

        monkeypatch.setattr(type(Stats), "factory", statsd_logger.get_statsd_logger)
        monkeypatch.setattr(Stats, "instance", None, raising=False)


@contextmanager
def statsd_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    """Turn Airflow's metrics on, into a socket of this process, and yield it."""
    server, client = StatsdServer(), ModuleType("statsd")
    client.StatsClient = StatsClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "statsd", client)
    settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(server.port), "STATSD_INFLUXDB_ENABLED": "True"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", value)
    unconfigured(monkeypatch)
    yield server
    server.close()
