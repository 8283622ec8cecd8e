"""How large the scenarios of this process are: whole, or so small that all of them fit into a quarter of an hour."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

_T = TypeVar("_T")


class Size(str, Enum):
    """A size of all scenarios."""

    TINY = "tiny"
    """To see that they run."""
    QUICK = "quick"
    """``make bench``."""
    FULL = "full"
    """``make bench-full``: the sizes that the aims are about."""


_FACTORS = {Size.TINY: 0.01, Size.QUICK: 0.02, Size.FULL: 1.0}
_chosen = [Size.QUICK]


def choose(size: Size) -> None:
    """Set the size of all scenarios to come."""
    _chosen[:] = [size]


def chosen() -> Size:
    """Return the size."""
    return _chosen[0]


def scaled(full: int) -> int:
    """Return a number of events, rows or tables at the chosen size; at least 1."""
    return max(1, round(full * _FACTORS[chosen()]))


def of(*, tiny: _T, quick: _T, full: _T) -> _T:
    """Return a scenario's value for the chosen size."""
    return {Size.TINY: tiny, Size.QUICK: quick, Size.FULL: full}[chosen()]
