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
    """The type's name without length and digits, of a domain its base type's, of an array its elements'; in PostgreSQL's spelling
    (``int4``), else in capitals. Empty where the type is made of others."""
    native: str = ""
    """The type as people write it: ``numeric(12,2)``."""
    length: int | None = None
    """Digits of a decimal, bits of a bit string."""
    scale: int | None = None
    """Digits behind the point: of a decimal, or of a time's second."""
    is_array: bool = False
    labels: str = ""
    """Of an enumeration: its labels as Connect's parameter ``allowed`` has them."""


Rule = Callable[[CatalogueColumn, ConnectorSettings], Field | None]
"""From a column to its field; None where the connector leaves the column out, or its spelling is not known."""


def always(kind: str, name: str | None = None) -> Rule:
    """Return the rule of a type that is spelled alike whatever the column and the settings."""
    return lambda column, settings: literal(kind, name)


def text(value: Any) -> str:
    """Return a catalogue's text: some drivers give bytes."""
    return bytes(value).decode("utf-8") if isinstance(value, bytes | bytearray) else str(value)


def whole(value: Any) -> int | None:
    """Return a catalogue's number; None of NULL."""
    return None if value is None else int(value)
