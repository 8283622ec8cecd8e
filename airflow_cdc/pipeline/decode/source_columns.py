"""The columns of a topic's rows, what surveyed shapes show of them, and which of them identify a row."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.connectors.registry import own_images
from airflow_cdc.model.errors import KeysUnknownError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.column_origin import TypeReport
from airflow_cdc.pipeline.decode.envelope import SINGLE
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType
from airflow_cdc.pipeline.decode.types.text_forms import TextForm


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a topic's rows in one microbatch."""

    types: Mapping[str, ColumnType]
    """By column, in the source's order. A column with only nulls so far is missing until a value shows its type."""
    keys: tuple[str, ...]
    untyped: tuple[str, ...] = ()
    """Columns without a value so far."""
    comments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By column: the origin of its type, as the table records it (:mod:`airflow_cdc.model.flow.column_origin`)."""
    reports: Mapping[str, TypeReport] = dataclasses.field(default_factory=dict)
    """By column whose type the events do not carry: the type and its origin."""
    formerly: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By column: the older names under which events may carry it."""
    clears_absent: bool = False
    """Whether a column that is missing from an event's schema is NULL, rather than unknown."""
    dropped: tuple[str, ...] = ()
    """Columns of the table that no event of the microbatch has, and each leaves out."""
    as_text: tuple[str, ...] = ()
    """Columns that are STRING in the table and of another type in the events."""
    key_is_single: bool = False
    """Whether a record's key may be the only key column's value alone."""
    forms: Mapping[str, TextForm] = dataclasses.field(default_factory=dict)
    """By column that identifies a row and is kept as text: the form of all its texts, where they are no plain ones."""

    @property
    def by_schema(self) -> list[str]:
        """Columns whose texts have different encodings within the microbatch: each event is read by its own schema."""
        return [name for name, rule in self.types.items() if rule.by_schema]

    @property
    def sql_types(self) -> dict[str, str]:
        """Spark SQL types by column."""
        return {name: rule.sql_type for name, rule in self.types.items()}

    @property
    def renames(self) -> dict[str, str]:
        """Current names by older name."""
        return {old: name for name, olds in self.formerly.items() for old in olds}


IMAGES = ("after", "before", *own_images())
"""Members of an envelope that hold a row."""


def is_schema(shape: str) -> bool:
    """Return whether a shape is a Connect schema rather than a list of member names."""
    return shape.startswith("{")


def image_fields(shape: str) -> list[dict[str, Any]]:
    """Return the fields of a row image from the value's Connect schema, in the source's order."""
    envelope = json.loads(shape)
    for field in envelope.get("fields", ()):
        if field.get("field") in IMAGES:
            fields: list[dict[str, Any]] = field.get("fields", [])
            return fields
    return []


def image_names(shape: str) -> list[str]:
    """Return the names of a row image's columns, in the source's order."""
    return [field["field"] for field in image_fields(shape)] if is_schema(shape) else member_names(shape)


def member_names(shape: str) -> list[str]:
    """Return the names that a shape lists: those of a Connect struct's fields, or of a JSON object's members."""
    document = json.loads(shape)
    if isinstance(document, dict):
        return [field["field"] for field in document.get("fields", ())]
    return list(document) if isinstance(document, list) else []


def is_single(key_shape: str | None) -> bool:
    """Return whether keys of a shape are single values, bare or with a schema. Such keys name no column."""
    if key_shape is None or key_shape == SINGLE:
        return key_shape is not None
    try:
        schema = json.loads(key_shape)
    except ValueError:
        return False
    return isinstance(schema, dict) and isinstance(schema.get("type"), str) and schema["type"] != "struct" and "fields" not in schema


def column_names(shapes: Iterable[TopicShape]) -> list[str]:
    """Return the names of all columns of the shapes. A name new to the list is inserted behind its left neighbour."""
    names: list[str] = []
    for shape in shapes:
        if shape.value_shape is None:
            continue
        at = 0
        for name in image_names(shape.value_shape):
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    return names


def key_columns(shapes: Sequence[TopicShape], flow: CdcFlow) -> tuple[str, ...]:
    """Return the columns that identify a row: the flow's, else those of the events' keys.

    :raises KeysUnknownError: if neither is known, or the events' keys differ.
    """
    if flow.keys:
        return flow.keys
    found = {names for shape in shapes if shape.key_shape and (names := tuple(member_names(shape.key_shape)))}
    if len(found) == 1:
        return found.pop()
    if not found and any(is_single(shape.key_shape) for shape in shapes):
        raise KeysUnknownError(
            f"Flow {flow.name}: the records' keys are single values (ExtractField$Key), so the key column is not known.",
            next_step="Declare that column in a flows file: {flows: [{topic: " + flow.topic + ", keys: [COLUMN]}]}.",
        )
    if not found:
        raise KeysUnknownError(
            f"Flow {flow.name}: the archived records carry no keys, so the key columns are not known.",
            next_step="Give the flow its keys in a flows file: {flows: [{topic: " + flow.topic + ", keys: [COLUMN]}]}.",
        )
    raise KeysUnknownError(
        f"Flow {flow.name}: the events' keys differ within one microbatch: {sorted(found)}.",
        next_step="Give the flow the key that its rows have now, in a flows file, and rebuild it. Deletes from before the change may lack"
        " a column of it: they are rejected (unproven_key), and a full snapshot then removes their rows.",
    )
