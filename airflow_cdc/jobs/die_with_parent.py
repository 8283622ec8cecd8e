"""die_with_parent: a submitted job ends with the spark-submit that started it."""

from __future__ import annotations

import os
import threading
import time

SUBMITTER_VARIABLE = "AIRFLOW_CDC_SUBMITTER_PID"
"""Process id of the task that submitted the job, on the same machine; the job ends with it too."""

_EXIT_CODE = 137


def die_with_parent(seconds: float = 1.0) -> None:
    """End this process soon after the JVM that started it has ended.

    spark-submit's JVM is the parent of a Python driver in client and cluster mode alike. Airflow's ``on_kill`` kills the JVM
    alone, and the driver would go on without it. Started by hand (``python apply.py``) the parent is a shell that
    may leave first (``nohup``): then nothing is watched.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return
    parent = os.getppid()
    submitter = _submitter()

    def watch() -> None:
        while os.getppid() == parent and (submitter is None or _lives(submitter)):
            time.sleep(seconds)
        # Not sys.exit: it would end this thread only, while the main thread waits for an answer of the dead JVM.
        os._exit(_EXIT_CODE)

    threading.Thread(target=watch, name="die-with-parent", daemon=True).start()


def _submitter() -> int | None:
    text = os.environ.get(SUBMITTER_VARIABLE, "")
    # A cluster may carry the variable to a machine where the number means another process, or none.
    return int(text) if text.isdigit() and _lives(int(text)) else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
