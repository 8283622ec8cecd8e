"""LOST_COMMITS: the errors by which Delta says that another writer committed first."""

from __future__ import annotations

from delta import exceptions

LOST_COMMITS: tuple[type[Exception], ...] = tuple(getattr(exceptions, name) for name in exceptions.__all__)
"""All of them: in Python they have no base of their own in common, though one is named as if it were."""
