"""truth: read a switch that a template may have made a text of."""

from __future__ import annotations

from typing import Any


def truth(value: Any) -> bool:
    """Return what true, false and their texts say.

    :raises KeyError: for anything else: ``bool("False")`` is true.
    """
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[str(value).strip().lower()]
