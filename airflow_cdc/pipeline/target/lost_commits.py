"""Lost commits: Delta's errors for a commit that another writer won, and the flow's error for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta import exceptions

from airflow_cdc.model.errors import ConcurrentRunError

LOST_COMMITS: tuple[type[Exception], ...] = tuple(getattr(exceptions, name) for name in exceptions.__all__)
"""All of Delta's conflict errors: in Python they share no base class, although one is named as if it were."""


@contextmanager
def unless_lost(flow: str, table: str, doing: str, *, next_step: str) -> Iterator[None]:
    """Turn a lost commit inside the block into an error of the flow.

    :param doing: what is being done to the table, as a past participle: ``repaired``.
    :raises ConcurrentRunError: when another writer committed to the table first.
    """
    try:
        yield
    except LOST_COMMITS as error:
        raise ConcurrentRunError(
            f"Flow {flow}: somebody committed to {table} while it was {doing} ({type(error).__name__}).", next_step=next_step
        ) from error
