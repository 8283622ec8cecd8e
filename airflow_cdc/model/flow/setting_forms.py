"""Forms of settings in the flows file: each function returns the value of one form, or raises what it expects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

_PART = r"`(?:[^`]|``)+`|[^`.\s]+"
"""One part of a name in a catalog, as SQL spells it."""


def text(value: Any) -> str:
    """Return a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise TypeError("a text")
    return value


def text_or_none(value: Any) -> str | None:
    """As :func:`text`; None stays None."""
    return None if value is None else text(value)


def texts(value: Any) -> tuple[str, ...]:
    """Return different texts, given as a list or as a single one."""
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) and item for item in items):
        raise TypeError("a list of texts")
    if len(set(items)) < len(items):
        raise ValueError("each of them once")
    return tuple(items)


def newer_names(value: Any) -> dict[str, str]:
    """Return names by older ones."""
    if not isinstance(value, Mapping) or not all(isinstance(item, str) and item for pair in value.items() for item in pair):
        raise TypeError("newer names by column")
    return dict(value)


def positive(value: Any) -> int:
    """Return a whole number above zero."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError("a positive whole number")
    return value


def one_of(policies: type[Enum]) -> Callable[[Any], Any]:
    """Return the form of an enumeration's values."""

    def read(value: Any) -> Any:
        choices = [policy.value for policy in policies]
        if value not in choices:
            raise ValueError(f"one of {choices}")
        return policies(value)

    return read


def catalog_name(value: str) -> tuple[str, ...]:
    """Return the parts of a table's name in SQL: ``[catalog.]schema.table``, with special parts in backticks.

    :raises ValueError: for any other text; its message is the expected form.
    """
    if not re.fullmatch(rf"(?:{_PART})(?:\.(?:{_PART})){{1,2}}", value):
        raise ValueError("[catalog.]schema.table, a part with a dot or backtick between backticks")
    return tuple(part[1:-1].replace("``", "`") if part.startswith("`") else part for part in re.findall(_PART, value))
