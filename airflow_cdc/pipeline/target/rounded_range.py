"""Ranges as wide as another writer's statistics of DECIMAL may be rounded.

delta-rs writes the ends of a DECIMAL as 64-bit floats, those without a fraction cut to a 64-bit integer. So the value
9007199254740993 may lie in a file whose largest is said to be 9007199254740992, and 12345678901234567891 in one with 9223372036854775807.
Both roundings keep the order: a file that holds a value has statistics that hold the value as it is rounded.
"""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any

_SLACK = Decimal("1e-14")
"""Of the value. A float is off by 1.1e-16; delta-rs divides by a power of ten that it multiplies up, and rounds several times."""
_LEAST_INTEGER, _LARGEST_INTEGER = Decimal(-(2**63)), Decimal(2**63 - 1)
_DOWN, _UP = Context(prec=80, rounding=ROUND_FLOOR), Context(prec=80, rounding=ROUND_CEILING)


def rounded_range(lowest: Any, highest: Any) -> tuple[Any, Any]:
    """Return the ends of a range that meets the statistics of every file with a value between the given ends, whoever wrote the file.

    Ends of other types than :class:`~decimal.Decimal` are returned as they are: every writer's integers and dates are exact, and texts are
    cut so that they still hold every value.
    """
    if not isinstance(lowest, Decimal) or not isinstance(highest, Decimal):
        return lowest, highest
    low = _DOWN.subtract(lowest, _UP.multiply(abs(lowest), _SLACK))
    high = _UP.add(highest, _UP.multiply(abs(highest), _SLACK))
    return min(low, _LARGEST_INTEGER), max(high, _LEAST_INTEGER)
