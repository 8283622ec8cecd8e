"""What a connector makes of the column types that its schema-change topic tells: the Connect field that it would write, were the schemas
archived, in the modes that are its defaults (:mod:`airflow_cdc.model.catalogue`).

The capture ``maria_types_precise`` holds both spellings of the same values. Which modes a connector was given the schema-change topic
does not tell: :mod:`airflow_cdc.pipeline.decode.types.schema_topic_types` asks the values.
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
    """How a connector spells the values of one column type."""

    type: str
    """The Connect field's literal type; of a time that is told as a number ``int64``, whichever integer holds it."""
    name: str | None = None
    """The Connect field's semantic type."""
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    digits: int = 0
    """Of a time: digits of its second behind the point."""
    is_unsigned: bool = False
    """Whether it is a decimal only because no integer of Connect holds it."""
    seconds: int = _SECONDS_TO_YEAR_10000
    """Of a time: how far from zero it goes."""
    formerly: tuple[str, ...] = field(default=(), compare=False)
    """Older names under which events may have the column."""

    @property
    def units(self) -> int | None:
        """Units per second of a time that is told as a number; None of anything else."""
        return _UNITS.get(self.name or "")

    @property
    def is_time_of_day(self) -> bool:
        """Whether it is a time without a date."""
        return self.units is not None and not (self.name or "").endswith("stamp")

    @property
    def is_encoded(self) -> bool:
        """Whether the JSON text alone does not say what the value is."""
        return self.name in (DECIMAL, DATE) or self.units is not None

    @property
    def scale(self) -> int:
        """Digits of a decimal behind the point."""
        return int(self.parameters.get("scale", 0))

    def connect_field(self, column: str) -> dict[str, Any]:
        """Return the field as a Connect schema has it."""
        return {"field": column, "type": self.type, "name": self.name, "parameters": dict(self.parameters), FORMERLY: self.formerly}


def native_type(connector: str, type_name: str, length: int | None, scale: int | None) -> NativeType | None:
    """Return how a connector spells the values of a column; None where its type is not known, or could be spelled otherwise.

    :param type_name: ``typeName`` of the schema-change topic, such as ``INT UNSIGNED`` or ``int identity``.
    """
    entry = CONNECTORS.get(connector)
    if not (entry and entry.schema_changes and entry.catalogue):
        return None
    known = entry.schema_changes
    # "decimal() identity", "INT(10) UNSIGNED ZEROFILL": what it does not change is left out.
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
        # Texts, bits and years: their names do not change how they are read.
        return NativeType(found["type"])
    return NativeType(found["type"], name, found.get("parameters", {}), is_unsigned=plain == "BIGINT UNSIGNED")
