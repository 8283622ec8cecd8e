"""A task that is killed while its job runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from airflow.providers.common.compat.sdk import AirflowException


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> bool:
    """Return whether the condition came true in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def kill_when(is_ready: Callable[[], bool], operator: Any, context: Any, *, before: Callable[[], object] = lambda: None) -> None:
    """Run an operator in a thread, kill it when its job is ready, and see that it fails.

    :param before: called right before the kill.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            operator.execute(context)
        except AirflowException as error:
            raised.append(error)

    task = threading.Thread(target=run, daemon=True)
    task.start()
    assert wait_for(is_ready)
    before()
    operator.on_kill()
    task.join(10)
    assert len(raised) == 1
