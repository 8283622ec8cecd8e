"""Values as JSON that a browser reads without loss."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any

MOST_TEXT = 10_000
"""Characters of one value that a browser is sent."""
_SAFE = 2**53
"""Integers from here on are texts: a browser would lose their last digits."""


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: decimals, times and large integers as text, binary values in base64; long texts cut off, visibly."""
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    return plain(vars(value)) if is_dataclass(value) else _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return _cut(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -_SAFE < value < _SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return _text(value)


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text):,} characters)"


def _text(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        # Three bytes are four characters.
        shown = base64.b64encode(value[: MOST_TEXT // 4 * 3]).decode()
        return shown if len(value) <= MOST_TEXT // 4 * 3 else f"{shown}… ({len(value):,} bytes)"
    return str(value) if isinstance(value, Decimal | timedelta) else repr(value)
