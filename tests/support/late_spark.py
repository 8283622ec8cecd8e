"""Spark that must not be touched before a run has asked for its session: what the native engine does, it does where there is none.

In the tests a session is open all the time, so a function of columns would work there that fails in a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from types import FunctionType
from typing import Any, cast

from pyspark.sql import SparkSession, functions

from airflow_cdc.pipeline.spark.late_session import LateSession


class SparkTouchedError(AssertionError):
    """Raised where something touches Spark in a run that has asked for no session."""


_waiting: list[LateSession] = []
"""Sessions of the runs at work that nobody has asked for yet."""


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if any(not session.is_started for session in _waiting):
            raise SparkTouchedError(f"functions.{name} is called in a run that has started no Spark session")
        return function(*arguments, **named)

    return call


@cache
def _guard_functions() -> None:
    for name, function in vars(functions).copy().items():
        if isinstance(function, FunctionType) and function.__module__.startswith("pyspark.sql.functions"):
            setattr(functions, name, _guarded(name, function))


@contextmanager
def late_spark(spark: SparkSession | None = None) -> Iterator[SparkSession]:
    """Stand for a session that starts when it is first asked for, as in a run of its own; until then functions of columns fail.

    :param spark: None: it cannot be started either.
    """

    def start() -> SparkSession:
        if spark is None:
            raise SparkTouchedError("a session is asked for")
        return spark

    _guard_functions()
    session = LateSession(start)
    _waiting.append(session)
    try:
        yield cast("SparkSession", session)
    finally:
        _waiting.remove(session)
