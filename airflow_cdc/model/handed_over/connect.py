"""Connect schemas, the common form of every imported schema.

A Connect schema is a JSON object as Kafka Connect's JSON converter writes it: ``{"type": …, "name": …, "parameters": …}``. The ``fields``
of a struct have their names as ``field``. ``{}`` stands for an unknown type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_cdc.model.connectors.registry import entries, own_images

ConnectSchema = dict[str, Any]

_SPELLED = {
    # Connect's own type names, where the JSON converter's differ.
    "float32": "float",
    "float64": "double",
    **{name: name for name in ("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes")},
    **{name: name for name in ("array", "map", "struct")},
}
IMAGES = ("after", "before", *own_images())
"""Members of an envelope that hold a row, the preferred first."""
_MARKS = ("op", *(entry.values.operation for entry in entries() if entry.values.operation))
"""An envelope has one of these members."""
_SOURCE_PREFIX, _SOURCE_SUFFIX = "io.debezium.connector.", ".Source"
_SOURCE_TYPE = "__debezium.source.column."
"""Prefix of the parameters that ``column.propagate.source.type`` adds to a column."""


def literal(name: Any) -> str | None:
    """Return a Connect type as the JSON converter spells it; None for anything else."""
    return _SPELLED.get(name) if isinstance(name, str) else None


def is_connect(node: Any) -> bool:
    """Return whether a JSON value is a Connect struct schema, the only kind with a list of fields named by ``field``."""
    fields = node.get("fields") if isinstance(node, Mapping) and node.get("type") == "struct" else None
    return isinstance(fields, list) and all(isinstance(field, Mapping) and isinstance(field.get("field"), str) for field in fields)


def normalized(node: Any) -> ConnectSchema:
    """Return the parts of a Connect schema that determine how values are encoded: no optionality, defaults, docs or versions.

    :return: ``type``, and where present ``name``, ``parameters`` (texts), ``items``, ``keys``, ``values``, ``fields``; ``{}`` for a node of
        unknown type.
    """
    kind = literal(node.get("type")) if isinstance(node, Mapping) else None
    if kind is None:
        return {}
    schema: ConnectSchema = {"type": kind}
    if isinstance(node.get("name"), str):
        schema["name"] = node["name"]
    if isinstance(node.get("parameters"), Mapping) and node["parameters"]:
        schema["parameters"] = {str(name): str(value) for name, value in node["parameters"].items()}
    schema |= {part: normalized(node[part]) for part in ("items", "keys", "values") if isinstance(node.get(part), Mapping)}
    if kind == "struct":
        schema["fields"] = [{**normalized(field), "field": field["field"]} for field in node.get("fields") or () if _is_named(field)]
    return schema


def _is_named(field: Any) -> bool:
    return isinstance(field, Mapping) and isinstance(field.get("field"), str)


def fields_of(schema: ConnectSchema) -> list[ConnectSchema]:
    """Return a struct's fields; an empty list for any other schema."""
    fields: list[ConnectSchema] = schema.get("fields") or []
    return fields


def is_envelope(schema: ConnectSchema) -> bool:
    """Return whether a value's schema is a change event's, not a row's."""
    members = {field["field"]: field for field in fields_of(schema)}
    # A table may have columns of these names, but only documents and points are structs with fields.
    holds_structs = any(fields_of(members[name]) for name in (*IMAGES, "source") if name in members)
    return holds_structs and any(mark in members for mark in _MARKS)


def row_fields(schema: ConnectSchema) -> list[ConnectSchema]:
    """Return the fields of the row in a value's schema: an envelope's image, or any other struct itself.

    The list is empty for an envelope whose images are texts, as those of documents are.
    """
    if not is_envelope(schema):
        return fields_of(schema)
    images = {field["field"]: fields_of(field) for field in fields_of(schema)}
    return next((images[name] for name in IMAGES if images.get(name)), [])


def connector_of(schema: ConnectSchema) -> str:
    """Return ``source.connector`` from the name of an envelope's ``source`` schema; empty where it is not known."""
    source = next((field for field in fields_of(schema) if field["field"] == "source"), {})
    name = str(source.get("name", ""))
    if not (is_envelope(schema) and name.startswith(_SOURCE_PREFIX) and name.endswith(_SOURCE_SUFFIX)):
        return ""
    # Confluent Cloud's second-version connectors have io.debezium.connector.v2.postgresql.Source.
    word = name.removesuffix(_SOURCE_SUFFIX).rpartition(".")[2]
    return next((entry.names[0] for entry in entries() if entry.package == word), word)


def native_type(field: Mapping[str, Any]) -> str:
    """Return a column's native type from ``column.propagate.source.type``; empty where that is absent."""
    parameters = field.get("parameters") or {}
    word = str(parameters.get(f"{_SOURCE_TYPE}type", ""))
    sizes = [str(parameters[name]) for part in ("length", "scale") if (name := f"{_SOURCE_TYPE}{part}") in parameters]
    return f"{word}({','.join(sizes)})" if word and sizes and "(" not in word else word
