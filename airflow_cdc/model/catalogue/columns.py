"""A column as a database's catalogue describes it, whatever the database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.catalogue.fields import Field, literal
from airflow_cdc.model.catalogue.modes import ConnectorSettings


@dataclass(frozen=True)
class CatalogueColumn:
    """One column of a table in a catalogue."""

    name: str
    type_name: str
    """The type's name without length and digits; for a domain its base type's, for an array its elements'. In PostgreSQL's spelling
    (``int4``), otherwise in capitals. Empty for composed types."""
    native: str = ""
    """The type for people: ``numeric(12,2)``."""
    length: int | None = None
    """Digits of a decimal, bits of a bit string."""
    scale: int | None = None
    """Fraction digits: of a decimal, or of a time's second."""
    is_array: bool = False
    labels: str = ""
    """Labels of an enumeration, in the form of Connect's parameter ``allowed``."""


Rule = Callable[[CatalogueColumn, ConnectorSettings], Field | None]
"""Maps a column to its field; None where the connector omits the column, or the encoding is not known."""


def always(kind: str, name: str | None = None) -> Rule:
    """Return the rule of a type with the same field for all columns and settings."""
    return lambda column, settings: literal(kind, name)


def text(value: Any) -> str:
    """Return a catalogue's text: some drivers return bytes."""
    return bytes(value).decode("utf-8") if isinstance(value, bytes | bytearray) else str(value)


def whole(value: Any) -> int | None:
    """Return a catalogue's number; None for NULL."""
    return None if value is None else int(value)
