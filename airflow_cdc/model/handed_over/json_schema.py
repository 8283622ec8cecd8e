"""JSON Schemas as Connect schemas, by the rules of Confluent's ``JsonSchemaData``.

``title`` is the Connect name, ``connect.type`` the type, ``connect.parameters`` the parameters, ``connect.index`` a property's place;
``oneOf`` with ``null`` means optional. Without ``connect.type`` an integer is ``int64`` and a number ``double``, as in that converter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.handed_over.connect import ConnectSchema, literal

_TYPES = {"integer": "int64", "number": "double", "boolean": "boolean", "string": "string"}
_MARKS = ("$schema", "properties", "oneOf", "anyOf", "allOf", "$ref")


def is_json_schema(node: Any) -> bool:
    """Return whether a JSON value is a JSON Schema of an object."""
    return isinstance(node, Mapping) and (node.get("type") == "object" or any(mark in node for mark in _MARKS))


def from_json_schema(node: Any, referenced: Mapping[str, Any] | None = None) -> ConnectSchema:
    """Return a JSON Schema as a Connect schema; ``{}`` for a choice of several types.

    :param referenced: schemas by the names that ``$ref`` uses.
    :raises ConfigurationError: when a ``$ref`` leads nowhere.
    """
    return _Reader(node, referenced or {}, []).read(node)


class _Reader:
    def __init__(self, root: Any, referenced: Mapping[str, Any], following: list[str]) -> None:
        self._root = root
        self._referenced = referenced
        self._open = following
        """References that are being followed; a circular one yields ``{}``."""

    def read(self, node: Any) -> ConnectSchema:
        if not isinstance(node, Mapping):
            return {}
        if isinstance(node.get("$ref"), str):
            return self._follow(node["$ref"])
        for word in ("oneOf", "anyOf", "allOf"):
            if isinstance(node.get(word), list):
                branches = [branch for branch in node[word] if not (isinstance(branch, Mapping) and branch.get("type") == "null")]
                return self.read(branches[0]) if len(branches) == 1 else {}
        schema = self._typed(node, _one_type(node))
        if schema and isinstance(node.get("title"), str):
            schema["name"] = node["title"]
        parameters = node.get("connect.parameters")
        if schema and isinstance(parameters, Mapping) and parameters:
            schema["parameters"] = {str(name): str(value) for name, value in parameters.items()}
        return schema

    def _typed(self, node: Mapping[str, Any], kind: str | None) -> ConnectSchema:
        connect_type = literal(node.get("connect.type"))
        if connect_type == "map":
            return self._map(node, kind)
        if connect_type:
            return {"type": connect_type}
        if kind == "array":
            return {"type": "array", "items": self.read(node.get("items"))}
        if kind == "object":
            return {"type": "struct", "fields": self._fields(node)}
        return {"type": _TYPES[kind]} if kind in _TYPES else {}

    def _map(self, node: Mapping[str, Any], kind: str | None) -> ConnectSchema:
        if kind == "array":
            entry = (node.get("items") or {}).get("properties") or {}
            return {"type": "map", "keys": self.read(entry.get("key")), "values": self.read(entry.get("value"))}
        return {"type": "map", "keys": {"type": "string"}, "values": self.read(node.get("additionalProperties"))}

    def _fields(self, node: Mapping[str, Any]) -> list[ConnectSchema]:
        properties = node.get("properties") or {}
        places = {name: place for place, name in enumerate(properties)}
        ordered = sorted(properties, key=lambda name: (_index(properties[name], places[name]), places[name]))
        return [{**self.read(properties[name]), "field": name} for name in ordered]

    def _follow(self, reference: str) -> ConnectSchema:
        if reference in self._open:
            return {}
        target = self._target(reference)
        if target is None:
            raise ConfigurationError(
                f"The JSON Schema refers to {reference!r} and nothing defines it.",
                next_step="Hand over the schema that defines it too: the subjects that the registry lists under its references.",
            )
        self._open.append(reference)
        try:
            return self.read(target) if reference.startswith("#") else _Reader(target, self._referenced, self._open).read(target)
        finally:
            self._open.pop()

    def _target(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return self._referenced.get(reference)
        if reference == "#":
            return self._root
        if not reference.startswith("#/"):
            return _with_id(self._root, reference)
        node = self._root
        for part in reference[2:].split("/"):
            node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
        return node


def _one_type(node: Mapping[str, Any]) -> str | None:
    kind = node.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind is None and "properties" in node:
        return "object"
    values = node.get("enum")
    if kind is None and isinstance(values, list) and all(isinstance(value, str | None) for value in values):
        return "string"
    return kind if isinstance(kind, str) else None


def _index(node: Any, place: int) -> int:
    index = node.get("connect.index") if isinstance(node, Mapping) else None
    return index if isinstance(index, int) else place


def _with_id(node: Any, wanted: str) -> Any:
    """Return the part of a schema whose ``$id`` is ``wanted``; None where there is none."""
    if isinstance(node, Mapping):
        if wanted in (node.get("$id"), node.get("id")):
            return node
        node = list(node.values())
    parts = node if isinstance(node, list) else []
    return next((found for part in parts if (found := _with_id(part, wanted)) is not None), None)
