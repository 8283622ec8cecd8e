"""Values of archived records for people: encoded ones as their schema defines them, and what an event changed."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNITS = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
"""Units of a second, by semantic type."""
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


_UNAVAILABLE = "__debezium_unavailable_value"
_PLACEHOLDERS = (_UNAVAILABLE, base64.b64encode(_UNAVAILABLE.encode()).decode())


@dataclass(frozen=True)
class ValueChange:
    """A column that an event changed."""

    column: str
    before: Any
    after: Any


def readable(values: Mapping[str, Any] | None, fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return a row with dates, times and decimals spelled out where the record's schema defines their encoding."""
    return None if values is None else {name: _readable(value, fields.get(name, {})) for name, value in values.items()}


def _readable(value: Any, field: Mapping[str, Any]) -> Any:
    semantic = field.get("name")
    try:
        if semantic == _DECIMAL and isinstance(value, str):
            unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
            value = Decimal(unscaled).scaleb(-int(field.get("parameters", {}).get("scale", 0)))
        elif semantic in _DAYS and isinstance(value, int):
            value = str(date(1970, 1, 1) + timedelta(days=value))
        elif semantic in _UNITS and isinstance(value, int):
            seconds, rest = divmod(value, _UNITS[semantic])
            digits = len(str(_UNITS[semantic])) - 1
            fraction = f".{rest:0{digits}d}".rstrip("0").rstrip(".")
            value = f"{(_EPOCH + timedelta(seconds=seconds)).strftime('%Y-%m-%dT%H:%M:%S')}{fraction}"
    except (ValueError, OverflowError, binascii.Error):
        return value
    return value


def carried(values: Mapping[str, Any] | None, last: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a row in which values that its event does not carry are those of the event before."""
    if values is None:
        return None
    return {name: (last or {}).get(name) if _is_unavailable(value) else value for name, value in values.items()}


def _is_unavailable(value: Any) -> bool:
    return isinstance(value, str) and value in _PLACEHOLDERS


def changes_between(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> tuple[ValueChange, ...]:
    """Return the columns in which two rows differ; a column that one lacks counts as null there."""
    names = dict.fromkeys([*(before or {}), *(after or {})])
    pairs = [(name, (before or {}).get(name), (after or {}).get(name)) for name in names]
    return tuple(ValueChange(name, old, new) for name, old, new in pairs if old != new)


def plain(value: Any) -> Any:
    """Return a value in lossless JSON form."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if isinstance(value, str | int | float | None) else str(value)
