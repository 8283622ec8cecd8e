"""A Spark session that starts when it is first used: a run that the native engine does alone starts no JVM."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from pyspark.sql import SparkSession


class LateSession:
    """Stands for a session. Each attribute is the session's; the first one starts it.

    :param start: makes the session; called once, by whichever thread comes first. What it raises, that thread's caller sees, and the next
        one calls it again.
    :param master: of the Spark that it would start, where the caller chooses it.
    """

    def __init__(self, start: Callable[[], SparkSession], master: str | None = None) -> None:
        self._start, self._lock = start, threading.RLock()
        self.master = master
        self._session: SparkSession | None = None

    @property
    def is_started(self) -> bool:
        """Whether the session was started."""
        return self._session is not None

    def session(self) -> SparkSession:
        """Return the session, started if it was not."""
        with self._lock:
            if self._session is None:
                self._session = self._start()
            return self._session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session(), name)


def late_session(start: Callable[[], SparkSession], *, master: str | None = None) -> SparkSession:
    """Return a session that starts when it is first used; see :class:`LateSession`."""
    return cast("SparkSession", LateSession(start, master))


def started(spark: SparkSession) -> SparkSession:
    """Return the session itself, started if it was not: for what asks for its type."""
    return spark.session() if isinstance(spark, LateSession) else spark


def chosen_master(spark: SparkSession) -> str | None:
    """Return the master of a session that was never used, where its caller chose it."""
    return spark.master if isinstance(spark, LateSession) else None


def is_idle(spark: SparkSession) -> bool:
    """Return whether a session was never used."""
    return isinstance(spark, LateSession) and not spark.is_started
