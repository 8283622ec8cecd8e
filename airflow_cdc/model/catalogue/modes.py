"""The configuration properties of a connector that determine how column values are encoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PROPERTIES: Mapping[str, tuple[str, ...]] = {
    "decimal.handling.mode": ("precise", "double", "string"),
    "time.precision.mode": ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    "binary.handling.mode": ("bytes", "base64", "base64-url-safe", "hex"),
    "interval.handling.mode": ("numeric", "string"),
    "hstore.handling.mode": ("json", "map"),
    "bigint.unsigned.handling.mode": ("long", "precise"),
}
"""Values of each property; the first is the default of Debezium's reference."""


@dataclass(frozen=True)
class ConnectorSettings:
    """A connector's encoding settings; one attribute for each of :data:`PROPERTIES`, in their order."""

    decimal: str
    time: str
    binary: str
    interval: str
    hstore: str
    bigint_unsigned: str


def having(*names: str) -> dict[str, tuple[str, ...]]:
    """Return the named properties with their values."""
    return {name: PROPERTIES[name] for name in names}
