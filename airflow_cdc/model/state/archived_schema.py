"""Archived schema: the definitions of a topic's columns in schemas inside its events, as a document derived from the surveys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.state_kind import ARCHIVED_SCHEMA, FORMAT


@dataclass(frozen=True)
class ArchivedSchema(JsonObject, required=("through", "connector", "columns")):
    """The schemas of one topic, through one survey."""

    topic: str
    through: int = 0
    """Number of the last survey that was read."""
    connector: str = ""
    """``source.connector`` of the last events that had a schema; empty where none had one."""
    columns: Mapping[str, tuple[Mapping[str, Any], ...]] = field(default_factory=dict)
    """By column: Connect fields, each definition once, in the order in which they were surveyed."""


def archived_schema_from_json(document: Mapping[str, Any]) -> ArchivedSchema | None:
    """Return the schema of a document; None for another format of this kind, which is derived again."""
    return ArchivedSchema.from_json(document) if document.get(FORMAT) == ARCHIVED_SCHEMA.format else None
