"""Lost commits: Delta's errors for a commit that another writer won, and the flow's error for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from airflow_cdc.model.errors import ConcurrentRunError

_CONFLICT = re.compile(
    r"\bio\.delta\.exceptions\.((?:Concurrent\w+|DeltaConcurrentModification|MetadataChanged|ProtocolChanged)Exception)\b"
    r"|\[?\b(DELTA_(?:CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED))\b"
)
"""Delta's names of its conflicts: a Java class, or a condition. The `delta` package for Python turns them into classes of its own; jobs do
without it, because services bring Delta's jars and not that package, and a server's client sees the names alone."""


def lost_commit(error: Exception) -> str | None:
    """Return Delta's name of the conflict by which a commit was lost; None for any other error."""
    if not isinstance(error, PySparkException):
        return None
    found = _CONFLICT.search(f"{error.getCondition() or ''} {error}")
    return next(filter(None, found.groups())) if found else None


@contextmanager
def unless_lost(flow: str, table: str, doing: str, *, next_step: str) -> Iterator[None]:
    """Turn a lost commit inside the block into an error of the flow.

    :param doing: what is being done to the table, as a past participle: ``repaired``.
    :raises ConcurrentRunError: when another writer committed to the table first.
    """
    try:
        yield
    except PySparkException as error:
        if (conflict := lost_commit(error)) is None:
            raise
        raise ConcurrentRunError(
            f"Flow {flow}: somebody committed to {table} while it was {doing} ({conflict}).", next_step=next_step
        ) from error
