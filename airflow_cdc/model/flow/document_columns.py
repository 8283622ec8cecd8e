"""DocumentColumn: a typed column that a flow extracts from its documents, and its form in the flows file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.flow.declared_column import DECIMAL_TYPE

TYPES = ("STRING", "INT", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "DATE", "BINARY")
"""Supported types, besides DECIMAL(p,s)."""
_MAX_DIGITS = 38
_LAST_INDEX = 2**31 - 1


@dataclass(frozen=True)
class DocumentColumn:
    """Path of a column's value in a document, and its type. Validated here once."""

    path: str
    """Names of members and array indexes, joined by dots as in MongoDB: ``items.0.sku``."""
    sql_type: str
    """One of :data:`TYPES` or DECIMAL(p,s), in the table's spelling."""

    def __post_init__(self) -> None:
        if not all(self.steps) or is_index(self.steps[0]):
            raise ValueError(f"a path of names and indexes joined by dots, a name first, in place of {self.path!r}")
        if any(is_index(step) and int(step) > _LAST_INDEX for step in self.steps):
            raise ValueError(f"indexes up to {_LAST_INDEX} in place of {self.path!r}")
        object.__setattr__(self, "sql_type", _canonical(self.sql_type))

    @property
    def steps(self) -> tuple[str, ...]:
        """The path's parts."""
        return tuple(self.path.split("."))


def is_index(step: str) -> bool:
    """Return whether a part of a path is an array index; a member's name of digits looks the same."""
    return step.isascii() and step.isdigit()


def _canonical(sql_type: str) -> str:
    spelled = re.sub(r"\s+", "", sql_type).upper()
    if found := DECIMAL_TYPE.fullmatch(spelled):
        precision, scale = int(found[1]), int(found[2] or 0)
        if max(1, scale) <= precision <= _MAX_DIGITS:
            return f"DECIMAL({precision},{scale})"
    if spelled not in TYPES:
        raise ValueError(f"one of the types {', '.join(TYPES)} and DECIMAL(p,s) in place of {sql_type!r}")
    return spelled


def document_columns(setting: Any) -> dict[str, DocumentColumn]:
    """Return the columns of a setting: by name a type (the path is the name), or ``{path, type}``.

    :raises TypeError: when it has another shape.
    :raises ValueError: for an invalid path or type.
    """
    if not isinstance(setting, Mapping):
        raise TypeError("a map of columns")
    return {_text(name): _column(name, entry) for name, entry in setting.items()}


def _column(name: str, entry: Any) -> DocumentColumn:
    if isinstance(entry, str):
        return DocumentColumn(name, entry)
    if not isinstance(entry, Mapping) or set(entry) not in ({"path", "type"}, {"type"}):
        raise TypeError(f"of column {name!r} a type, or a path and a type")
    return DocumentColumn(_text(entry.get("path", name)), _text(entry["type"]))


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise TypeError(f"a text in place of {value!r}")
    return value


def definition_of(columns: Mapping[str, DocumentColumn]) -> str:
    """Return the columns as one text; equal texts mean equal values."""
    entries = {name: [column.path, column.sql_type] for name, column in columns.items()}
    return json.dumps(entries, ensure_ascii=False, sort_keys=True)


def names_defined(definition: str) -> set[str]:
    """Return the names of the columns of a definition."""
    return set(json.loads(definition))
