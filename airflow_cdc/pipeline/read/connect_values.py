"""Typed values as Kafka Connect's JSON converter would write them, with their Connect schema.

A record of an Avro or Parquet file becomes ``{"schema": …, "payload": …}``, so the rest of the pipeline handles a single form.
A field's annotation in the file's Avro schema takes precedence (``connect.name``, else ``logicalType``), then Spark's type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from airflow_cdc.model.catalogue.fields import DECIMAL
from airflow_cdc.pipeline.read.embedded_schema import AvroNode
from airflow_cdc.pipeline.spark import sql

ConnectSchema = dict[str, Any]

_LITERAL: Mapping[type[DataType], str] = {
    ByteType: "int8",
    ShortType: "int16",
    IntegerType: "int32",
    LongType: "int64",
    FloatType: "float",
    DoubleType: "double",
    BooleanType: "boolean",
    StringType: "string",
    BinaryType: "bytes",
    MapType: "map",
}
_LOCAL_TIMES = ("org.apache.kafka.connect.data.Timestamp", "io.debezium.time.Timestamp", "io.debezium.time.MicroTimestamp")


class NamedTypes:
    """The types of an Avro schema by name: a second use of a type, such as a row's type in ``after``, is only its name."""

    def __init__(self, schema: AvroNode | None) -> None:
        self._types: dict[str, AvroNode] = {}
        self._collect(schema, "")

    def _collect(self, node: AvroNode, namespace: str) -> None:
        if isinstance(node, list):
            for branch in node:
                self._collect(branch, namespace)
        elif isinstance(node, dict):
            if "name" in node and node.get("type") in ("record", "enum", "fixed"):
                *parts, short = node["name"].split(".")
                namespace = ".".join(parts) or node.get("namespace", namespace)
                for name in (short, f"{namespace}.{short}"):
                    self._types.setdefault(name, node)
            for part in ("type", "items", "values"):
                self._collect(node.get(part), namespace)
            for field in node.get("fields", ()):
                self._collect(field["type"], namespace)

    def resolve(self, node: AvroNode | None) -> dict[str, Any]:
        """Return the definition of a node's only type beside NULL; empty for a union of several."""
        if isinstance(node, list):
            branches = [branch for branch in node if branch != "null"]
            return self.resolve(branches[0]) if len(branches) == 1 else {}
        if isinstance(node, str):
            return self.resolve(self._types[node]) if node in self._types else {"type": node}
        if isinstance(node, dict) and isinstance(node.get("type"), dict | list):
            return self.resolve(node["type"])
        return node or {}


def without_logical_types(node: AvroNode) -> AvroNode:
    """Return an Avro schema with which a reader leaves every value as written: a decimal of 64 digits fits no other type."""
    if isinstance(node, list):
        return [without_logical_types(branch) for branch in node]
    if isinstance(node, dict):
        return {name: without_logical_types(part) for name, part in node.items() if name != "logicalType"}
    return node


def spell(kind: DataType, avro: AvroNode | None, names: NamedTypes, value: str) -> tuple[str, ConnectSchema]:
    """Return the SQL of a value as the converter would write it, and its Connect schema.

    :param kind: the type that Spark read.
    :param avro: its node in the file's Avro schema, None if there is none.
    :param value: SQL of the value.
    """
    node = names.resolve(avro)
    if isinstance(kind, StructType):
        return _spell_struct(kind, node, names, value)
    if isinstance(kind, ArrayType):
        element, items = spell(kind.elementType, node.get("items"), names, "element")
        return f"transform({value}, element -> {element})", {"type": "array", "items": {**items, "optional": True}}
    text, own_schema = _of_spark(kind, str(node.get("connect.name")), value)
    schema: ConnectSchema = {**own_schema, **(_of_avro(node) if type(kind) in _LITERAL else {})}
    return text, schema


def _spell_struct(kind: StructType, node: Mapping[str, Any], names: NamedTypes, value: str) -> tuple[str, ConnectSchema]:
    fields_of = {field["name"]: field["type"] for field in node.get("fields", ())}
    members, fields = {}, []
    for field in kind.fields:
        text, schema = spell(field.dataType, fields_of.get(field.name), names, f"{value}.{sql.name(field.name)}")
        members[field.name] = text
        fields.append({**schema, "optional": True, "field": field.name})
    named = {"name": node["connect.name"]} if "connect.name" in node else {}
    return sql.struct_unless_null(value, members), {"type": "struct", "fields": fields, **named}


def _of_spark(kind: DataType, connect_name: str, value: str) -> tuple[str, ConnectSchema]:
    if isinstance(kind, DecimalType):
        # As text a number keeps all its digits; with a point it is not taken for base64.
        digits = f"concat(CAST({value} AS STRING), '{'' if kind.scale else '.0'}')"
        parameters = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        return digits, {"type": "bytes", "name": DECIMAL, "parameters": parameters}
    if isinstance(kind, DateType):
        return f"unix_date({value})", {"type": "int32", "name": "org.apache.kafka.connect.data.Date"}
    if isinstance(kind, TimestampType):
        name = "io.debezium.time.MicroTimestamp" if connect_name in _LOCAL_TIMES else "timestamp-micros"
        return f"unix_micros({value})", {"type": "int64", "name": name}
    if isinstance(kind, TimestampNTZType):
        # The session's zone is UTC.
        return f"unix_micros(CAST({value} AS TIMESTAMP))", {"type": "int64", "name": "local-timestamp-micros"}
    literal = _LITERAL.get(type(kind))
    return (value, {"type": literal}) if literal else (f"CAST({value} AS STRING)", {"type": "string"})


def _of_avro(node: Mapping[str, Any]) -> ConnectSchema:
    logical = node.get("logicalType")
    name = node.get("connect.name") or (DECIMAL if logical == "decimal" else logical)
    parameters = {
        **({"scale": str(node.get("scale", 0)), "connect.decimal.precision": str(node["precision"])} if logical == "decimal" else {}),
        **node.get("connect.parameters", {}),
    }
    literal = {"type": node["connect.type"]} if "connect.type" in node else {}
    return {**literal, **({"name": name} if name else {}), **({"parameters": parameters} if parameters else {})}
