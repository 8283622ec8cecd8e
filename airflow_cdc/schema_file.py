"""The file of source schemas that people review, and how its columns are shown."""

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
    """Look whether a file can be written, before a database is asked.

    :raises ConfigurationError: when its name does not say which format, its folder is not there, or it is there and may not be overwritten.
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
        # A column's field on a line of its own is what people compare.
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, default_flow_style=None, width=140)
    else:
        text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    path.write_text(text, encoding="utf-8")


def column_rows(schema: SourceSchema) -> list[list[str]]:
    """Return the columns of a schema for people, a row each as :data:`COLUMNS` says."""
    return [[column.name, column.native, field_text(column.field), _becomes(column.connect_field(), schema)] for column in schema.columns]


def unknown_columns(schema: SourceSchema) -> list[str]:
    """Return the columns of which nothing says how their values are spelled."""
    return [column.name for column in schema.columns if not column.field]


def field_text(field: Mapping[str, Any]) -> str:
    """Return a Connect field in few words: ``bytes, Decimal(12,2)``."""
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
