"""Native types: from a column type in the schema-change topic to the Connect field that the connector would write in its default modes.

See :mod:`airflow_cdc.model.catalogue`. The capture ``maria_types_precise`` holds the same values with and without schemas. The
schema-change topic does not carry the connector's modes: :mod:`airflow_cdc.pipeline.decode.types.schema_topic_types` derives them from
the values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.catalogue.columns import CatalogueColumn
from airflow_cdc.model.catalogue.fields import DATE, DECIMAL, TIMES_OF_DAY, ZONED, Field
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.pull.settings import settings_of
from airflow_cdc.pipeline.decode.types.connect_types import FORMERLY

_UNITS = {
    **TIMES_OF_DAY,
    "io.debezium.time.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
_SECONDS_TO_YEAR_10000 = 253_402_300_800


@dataclass(frozen=True)
class NativeType:
    """How a connector encodes the values of one column type."""

    type: str
    """The Connect field's literal type; ``int64`` for every time that is a number, whatever its integer type."""
    name: str | None = None
    """The Connect field's semantic type."""
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    digits: int = 0
    """For a time: digits of its fractional second."""
    is_unsigned: bool = False
    """Whether the type is a decimal only because no Connect integer holds it."""
    seconds: int = _SECONDS_TO_YEAR_10000
    """For a time: its greatest distance from zero, in seconds."""
    formerly: tuple[str, ...] = field(default=(), compare=False)
    """Older names under which events may carry the column."""

    @property
    def units(self) -> int | None:
        """Units per second of a time that is a number; None for anything else."""
        return _UNITS.get(self.name or "")

    @property
    def is_time_of_day(self) -> bool:
        """Whether the type is a time without a date."""
        return self.units is not None and not (self.name or "").endswith("stamp")

    @property
    def is_encoded(self) -> bool:
        """Whether a value cannot be read from its JSON text alone."""
        return self.name in (DECIMAL, DATE) or self.units is not None

    @property
    def scale(self) -> int:
        """A decimal's digits behind the point."""
        return int(self.parameters.get("scale", 0))

    def connect_field(self, column: str) -> dict[str, Any]:
        """Return the field of a Connect schema."""
        return {"field": column, "type": self.type, "name": self.name, "parameters": dict(self.parameters), FORMERLY: self.formerly}


def native_type(connector: str, type_name: str, length: int | None, scale: int | None) -> NativeType | None:
    """Return how a connector encodes the values of a column; None if its type is unknown or its encoding is ambiguous.

    :param type_name: ``typeName`` of the schema-change topic, such as ``INT UNSIGNED`` or ``int identity``.
    """
    entry = CONNECTORS.get(connector)
    if not (entry and entry.schema_changes and entry.catalogue):
        return None
    known = entry.schema_changes
    # "decimal() identity", "INT(10) UNSIGNED ZEROFILL": drop the words that do not affect the encoding.
    plain = " ".join(re.sub(r"\([^)]*\)|\b(IDENTITY|ZEROFILL|SIGNED)\b", " ", type_name.upper()).split())
    if plain in known.texts:
        return NativeType("string")
    if length is not None and plain.startswith(known.unclear_with_length):
        return None
    digits = (length or 0) if plain in known.length_is_digits else known.fixed_digits.get(plain, scale)
    settings = settings_of(connector, known.settings)
    found = entry.catalogue.field_of(CatalogueColumn("", plain, length=length, scale=digits), settings)
    if not found or found["type"] in ("array", "struct"):
        return None
    return _native(plain, found, digits, known.seconds.get(plain, _SECONDS_TO_YEAR_10000))


def _native(plain: str, found: Field, digits: int | None, seconds: int) -> NativeType:
    name = found.get("name")
    if name in _UNITS:
        return NativeType("int64", name, digits=digits or 0, seconds=seconds)
    if name not in (DECIMAL, DATE, ZONED):
        # Texts, bits and years: the semantic type does not affect how they are read.
        return NativeType(found["type"])
    return NativeType(found["type"], name, found.get("parameters", {}), is_unsigned=plain == "BIGINT UNSIGNED")
