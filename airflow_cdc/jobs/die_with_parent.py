"""die_with_parent: end a submitted job with the spark-submit, or the task, that started it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

SUBMITTER_VARIABLE = "AIRFLOW_CDC_SUBMITTER_PID"
"""Process id of the task that submitted the job, on the same machine; the job ends with it too."""

_EXIT_CODE = 137


def die_with_parent(seconds: float = 1.0, *, farewell: Callable[[], None] = lambda: None) -> None:
    """End this process soon after the JVM, or the task, that started it has ended.

    spark-submit's JVM is the parent of a Python driver in client and cluster mode alike. Airflow's ``on_kill`` kills only the JVM, and the
    driver would go on without it. For a job started by hand (``python apply.py``) the parent is a shell that may leave first (``nohup``);
    then nothing is watched.

    :param farewell: called before the end.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ and SUBMITTER_VARIABLE not in os.environ:
        return
    parent = os.getppid()
    submitter = _submitter()

    def watch() -> None:
        while os.getppid() == parent and (submitter is None or _lives(submitter)):
            time.sleep(seconds)
        farewell()
        # Not sys.exit: it would end only this thread, while the main thread waits for the dead JVM.
        os._exit(_EXIT_CODE)

    threading.Thread(target=watch, name="die-with-parent", daemon=True).start()


def end_on_sigterm(farewell: Callable[[], None]) -> None:
    """End this process on SIGTERM, whatever its main thread waits for. Call it while the process has only one thread.

    :param farewell: called before the end.
    """
    # All threads inherit the mask, gRPC's too; so the thread below gets the signal, and no Java or gRPC call delays it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def watch() -> None:
        signal.sigwait({signal.SIGTERM})
        farewell()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=watch, name="end-on-sigterm", daemon=True).start()


def _submitter() -> int | None:
    text = os.environ.get(SUBMITTER_VARIABLE, "")
    # A cluster may pass the variable to a machine where the number means another process, or none.
    return int(text) if text.isdigit() and _lives(int(text)) else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
