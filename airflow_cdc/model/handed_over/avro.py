"""Avro schemas as Connect schemas, by the rules of Confluent's ``AvroData``, which Apicurio's converter shares.

What Avro cannot express is in ``connect.name``, ``connect.parameters`` and ``connect.type`` (``int8``, ``int16``). A logical type without a
``connect.name`` keeps Avro's own name (``timestamp-micros``), as in archived Avro files (docs/reference/types.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_cdc.model.catalogue.fields import DECIMAL
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.handed_over.connect import ConnectSchema, literal

_PRIMITIVES = {"int": "int32", "long": "int64", **{name: name for name in ("float", "double", "boolean", "string", "bytes")}}
_NAMED = ("record", "enum", "fixed")
_BASES = {"enum": "string", "fixed": "bytes", **_PRIMITIVES}
_PRECISION = "connect.decimal.precision"
_NO_PRECISION = 64
"""``AvroData``'s precision for a decimal that has none."""
_MADE_UP = "io.confluent.connect.avro.ConnectDefault"
"""``AvroData``'s name for records of unnamed structs, followed by a number."""
_MAP_ENTRY = "io.confluent.connect.avro.MapEntry"


def is_avro(node: Any) -> bool:
    """Return whether a JSON value is an Avro schema of a named type, or a list of such schemas, as one file may hold."""
    if isinstance(node, list):
        return bool(node) and all(is_avro(branch) for branch in node)
    return isinstance(node, Mapping) and node.get("type") in _NAMED and isinstance(node.get("name"), str)


def from_avro(node: Any, referenced: Iterable[Any] = ()) -> ConnectSchema:
    """Return an Avro schema as a Connect schema; ``{}`` for a union of several types.

    :param node: the schema. In a list of named types the last one is meant; the others are the types that it refers to.
    :param referenced: schemas of the types that it refers to by name, in dependency order.
    :raises ConfigurationError: when it refers to an undefined type, or is not an Avro schema.
    """
    reader = _Reader()
    *before, last = [*referenced, *(node if is_avro(node) and isinstance(node, list) else [node])]
    for each in before:
        reader.read(each, "")
    return reader.read(last, "")


class _Reader:
    """Reads schemas in order, as Avro requires a type to be defined before it is referred to."""

    def __init__(self) -> None:
        self._types: dict[str, ConnectSchema] = {}
        """By full name; empty while the type is being read, so that a recursive type ends."""

    def read(self, node: Any, namespace: str) -> ConnectSchema:
        if isinstance(node, str):
            return {"type": _PRIMITIVES[node]} if node in _PRIMITIVES else self._type(node, namespace)
        if isinstance(node, list):
            # All branches are read: a later field may refer to a type that one of them defines.
            branches = [self.read(branch, namespace) for branch in node if branch != "null"]
            return branches[0] if len(branches) == 1 else {}
        kind = node.get("type") if isinstance(node, Mapping) else None
        if isinstance(kind, str):
            return self._of_kind(kind, node, namespace)
        if isinstance(kind, Mapping | list):
            return self.read(kind, namespace)
        raise ConfigurationError(
            f"A part of the Avro schema is {str(node)[:80]!r}, expected a type's name, a union, or an object with a type.",
            next_step="Hand over the schema as the registry has it.",
        )

    def _of_kind(self, kind: str, node: Mapping[str, Any], namespace: str) -> ConnectSchema:
        if kind in _BASES:
            return self._leaf(node, kind, namespace)
        readers = {"record": self._record, "array": self._array, "map": self._map}
        if kind in readers:
            return readers[kind](node, namespace)
        return {} if kind == "null" else self._type(kind, namespace)

    def _type(self, name: str, namespace: str) -> ConnectSchema:
        for full in (f"{namespace}.{name}", name):
            if full in self._types:
                return self._types[full]
        raise ConfigurationError(
            f"The Avro schema refers to type {name} and nothing defines it.",
            next_step="Hand over the schema that defines it too: the subjects that the registry lists under its references.",
        )

    def _record(self, node: Mapping[str, Any], namespace: str) -> ConnectSchema:
        full = _full_name(node, namespace)
        self._types[full] = {}
        inner = full.rpartition(".")[0]
        fields = [{**self._field(field, inner), "field": str(field["name"])} for field in node.get("fields", ())]
        name = node.get("connect.name") or ("" if full.startswith(_MADE_UP) else full)
        self._types[full] = {"type": "struct", **({"name": name} if name else {}), **_parameters(node), "fields": fields}
        return self._types[full]

    def _field(self, field: Mapping[str, Any], namespace: str) -> ConnectSchema:
        schema = self.read(field.get("type"), namespace)
        # A type that is defined once and used twice may have different parameters: those of the later use stand beside the field's name.
        own = _parameters(field).get("parameters", {})
        return {**schema, "parameters": {**schema.get("parameters", {}), **own}} if schema and own else schema

    def _array(self, node: Mapping[str, Any], namespace: str) -> ConnectSchema:
        items = node.get("items")
        element = self.read(items, namespace)
        if isinstance(items, Mapping) and (_full_name(items, namespace) == _MAP_ENTRY or items.get("connect.internal.type") == "MapEntry"):
            parts = {field["field"]: {name: part for name, part in field.items() if name != "field"} for field in element["fields"]}
            return {"type": "map", "keys": parts.get("key", {}), "values": parts.get("value", {}), **_annotated(node)}
        return {"type": "array", "items": element, **_annotated(node)}

    def _map(self, node: Mapping[str, Any], namespace: str) -> ConnectSchema:
        values = self.read([node.get("values", "null")], namespace)
        return {"type": "map", "keys": {"type": "string"}, "values": values, **_annotated(node)}

    def _leaf(self, node: Mapping[str, Any], kind: str, namespace: str) -> ConnectSchema:
        schema: ConnectSchema = {"type": literal(node.get("connect.type")) or _BASES[kind]}
        logical = node.get("logicalType")
        if kind in ("bytes", "fixed") and (logical == "decimal" or node.get("connect.name") == DECIMAL):
            schema |= _decimal(node)
        elif kind in _NAMED:
            schema |= {"name": _full_name(node, namespace), **_annotated(node)}
        else:
            schema |= {**({"name": logical} if isinstance(logical, str) else {}), **_annotated(node)}
        if kind in _NAMED:
            self._types[_full_name(node, namespace)] = schema
        return schema


def _full_name(node: Mapping[str, Any], namespace: str) -> str:
    name = str(node.get("name", ""))
    space = node.get("namespace", namespace)
    return name if "." in name or not space else f"{space}.{name}"


def _annotated(node: Mapping[str, Any]) -> ConnectSchema:
    name = node.get("connect.name")
    return {**({"name": name} if isinstance(name, str) else {}), **_parameters(node)}


def _parameters(node: Mapping[str, Any]) -> ConnectSchema:
    parameters = node.get("connect.parameters")
    return {"parameters": {str(name): str(value) for name, value in parameters.items()}} if isinstance(parameters, Mapping) else {}


def _decimal(node: Mapping[str, Any]) -> ConnectSchema:
    precision = node.get("precision", _NO_PRECISION)
    parameters = {"scale": str(node.get("scale", 0)), **({} if precision == _NO_PRECISION else {_PRECISION: str(precision)})}
    return {"name": DECIMAL, "parameters": {**parameters, **_parameters(node).get("parameters", {})}}
