"""processes_of: what spark-submit started on this machine."""

from __future__ import annotations

import contextlib
from typing import Any


def processes_of(hook: Any) -> list[Any]:
    """Return the processes below the spark-submit that a hook runs, as psutil knows them; none where it runs none."""
    # Imported here: a Dag file that is parsed kills nothing.
    import psutil

    submitted = getattr(hook, "_submit_sp", None)
    if submitted is None or submitted.poll() is not None:
        return []
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(submitted.pid).children(recursive=True))
    return []
