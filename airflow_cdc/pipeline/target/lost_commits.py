"""Lost commits: the errors by which Delta says that another writer committed first, and what a flow makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta import exceptions

from airflow_cdc.model.errors import ConcurrentRunError

LOST_COMMITS: tuple[type[Exception], ...] = tuple(getattr(exceptions, name) for name in exceptions.__all__)
"""All of them: in Python they have no base of their own in common, though one is named as if it were."""


@contextmanager
def unless_lost(flow: str, table: str, doing: str, *, next_step: str) -> Iterator[None]:
    """Let the commits inside be the only ones.

    :param doing: what is done to the table meanwhile: ``repaired``.
    :raises ConcurrentRunError: when somebody else committed to the table first.
    """
    try:
        yield
    except LOST_COMMITS as error:
        raise ConcurrentRunError(
            f"Flow {flow}: somebody committed to {table} while it was {doing} ({type(error).__name__}).", next_step=next_step
        ) from error
