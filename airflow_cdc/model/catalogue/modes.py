"""The properties of a connector's configuration by which the values of a column are spelled."""

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
"""The values of each; the first is the default of Debezium's reference."""


@dataclass(frozen=True)
class ConnectorSettings:
    """How a connector was told to spell values; an attribute for each of :data:`PROPERTIES`, in their order."""

    decimal: str
    time: str
    binary: str
    interval: str
    hstore: str
    bigint_unsigned: str


def having(*names: str) -> dict[str, tuple[str, ...]]:
    """Return the values of the properties of these names."""
    return {name: PROPERTIES[name] for name in names}
