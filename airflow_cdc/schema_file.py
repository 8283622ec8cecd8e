"""The file of source schemas for review, and how its columns are displayed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.source_schema import SourceSchema, to_document
from airflow_cdc.pipeline.decode.types.connect_types import column_type, is_field

COLUMNS = ("column", "database type", "what the events will hold", "becomes")
NOT_KNOWN = "not known"
_YAML, _JSON = (".yaml", ".yml"), (".json",)


def check_schema_file(path: Path, *, overwrite: bool) -> None:
    """Check that a file can be written, before a database is queried.

    :raises ConfigurationError: when its suffix is unknown, its folder is missing, or it exists and may not be overwritten.
    """
    if path.suffix.lower() not in _YAML + _JSON:
        raise ConfigurationError(
            f"{path} ends in {path.suffix or 'nothing'!r}, expected one of {', '.join(_YAML + _JSON)}.", next_step="Give it such a name."
        )
    if not path.parent.is_dir():
        raise ConfigurationError(f"There is no folder {path.parent}.", next_step="Create it, or name another file.")
    if path.exists() and not overwrite:
        raise ConfigurationError(
            f"{path} is there already, and may have been reviewed.", next_step="Name another file, or add --overwrite to replace it."
        )


def write_schema_file(path: Path, schemas: Iterable[SourceSchema]) -> None:
    """Write the document of schemas, as YAML or JSON by the file's name."""
    document = to_document(schemas)
    if path.suffix.lower() in _YAML:
        # Each column's field on its own line, for readable diffs.
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=140)
    else:
        text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    path.write_text(text, encoding="utf-8")


def column_rows(schema: SourceSchema) -> list[list[str]]:
    """Return the columns of a schema for people, one row each, in the order of :data:`COLUMNS`."""
    return [[column.name, column.native, field_text(column.field), _becomes(column.connect_field(), schema)] for column in schema.columns]


def unknown_columns(schema: SourceSchema) -> list[str]:
    """Return the columns with unknown encoding."""
    return [column.name for column in schema.columns if not column.field]


def field_text(field: Mapping[str, Any]) -> str:
    """Return a short text for a Connect field: ``bytes, Decimal(12,2)``."""
    if not field:
        return NOT_KNOWN
    if isinstance(field.get("items"), dict) and not field.get("name"):
        return f"array of {field_text(field['items'])}"
    name = str(field.get("name") or "").rpartition(".")[2]
    parameters = field.get("parameters") or {}
    if "scale" in parameters:
        name += f"({parameters.get('connect.decimal.precision', '?')},{parameters['scale']})"
    if "length" in parameters:
        name += f"({parameters['length']})"
    return f"{field['type']}, {name}" if name else str(field["type"])


def _becomes(field: Mapping[str, Any], schema: SourceSchema) -> str:
    return column_type(field, schema.connector).sql_type if is_field(field) else ""
