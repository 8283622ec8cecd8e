"""processes_of: the local child processes of spark-submit."""

from __future__ import annotations

import contextlib
from typing import Any


def processes_of(hook: Any) -> list[Any]:
    """Return the child processes of a hook's spark-submit, as psutil objects; none where it is not running."""
    # Imported here, because parsing a Dag file never kills anything.
    import psutil

    submitted = getattr(hook, "_submit_sp", None)
    if submitted is None or submitted.poll() is not None:
        return []
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(submitted.pid).children(recursive=True))
    return []
