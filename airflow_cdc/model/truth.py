"""truth: read a boolean that a template may have rendered as text."""

from __future__ import annotations

from typing import Any


def truth(value: Any) -> bool:
    """Return the boolean of true, false or their texts.

    :raises KeyError: for anything else: ``bool("False")`` is true.
    """
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}[str(value).strip().lower()]
