"""Connect schemas as Confluent's converters spell them in a registry, written from those converters' rules and apart from our readers.

``AvroData.fromConnectSchema`` and ``JsonSchemaData.rawSchemaFromConnectSchema``. Names that Avro refuses stay, which Debezium adjusts.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]

CAPTURES = Path(__file__).parents[3] / "golden" / "captures"
DECIMAL = "org.apache.kafka.connect.data.Decimal"
_AVRO_TYPES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_LOGICAL = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
}


@cache
def captured() -> list[Json]:
    """Return the archived records of all captures that carry a value's schema, one for each topic and schema."""
    found = {}
    for file in sorted(CAPTURES.glob("*/archive/schema/*.jsonl.gz")):
        for record in _records(file):
            value = record["value"]
            if value and "schema" in value:
                found.setdefault((record["topic"], json.dumps(value["schema"])), record)
    return list(found.values())


def _records(file: Path) -> Iterator[Json]:
    """Yield records that may show another schema than those before: to parse each event's schema takes ten seconds."""
    seen = set()
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        for line in lines:
            # Captures hold broken lines too.
            if line.startswith("{") and '"value"' in line and line.rstrip().endswith("}"):
                # The last one: headers have values with schemas too.
                before, found, value = line.rpartition('"value":{"schema":')
                schema = (before.partition(",")[0], value.partition(',"payload":')[0])
                if not found or schema not in seen:
                    seen.add(schema)
                    yield json.loads(line)


def topic_of_table(record: Json) -> bool:
    """Return whether a record is a row's, with images that have columns."""
    fields = {field["field"]: field for field in record["value"]["schema"].get("fields", ())}
    return any(fields.get(image, {}).get("fields") for image in ("after", "data"))


def image_fields(record: Json) -> list[Json]:
    """Return the fields of the row after an event."""
    fields = {field["field"]: field for field in record["value"]["schema"]["fields"]}
    return next(fields[image]["fields"] for image in ("after", "data") if image in fields)


def essence(node: Json) -> Json:
    """Return what of a Connect field says how its values are spelled; the fields of ``SourceColumn`` are compared with it."""
    schema = {name: node[name] for name in ("type", "name", "parameters") if node.get(name)}
    schema |= {part: essence(node[part]) for part in ("items", "keys", "values") if part in node}
    if "fields" in node:
        schema["fields"] = [{**essence(field), "field": field["field"]} for field in node["fields"]]
    return schema


def as_avro(node: Json) -> Any:
    """Return the Avro schema of a Connect schema."""
    return _Avro().write(node, "")


class _Avro:
    def __init__(self) -> None:
        self._written: set[str] = set()
        self._nameless = 0

    def write(self, node: Json, space: str) -> Any:
        base = self._base(node, space)
        return ["null", base] if node.get("optional") else base

    def _base(self, node: Json, space: str) -> Any:
        kind = node["type"]
        if kind == "struct":
            return self._record(node, space)
        if kind == "array":
            return self._annotated({"type": "array", "items": self.write(node["items"], space)}, node)
        if kind == "map":
            return self._annotated(self._map(node, space), node)
        avro: Json = {"type": _AVRO_TYPES.get(kind, kind)}
        if node.get("name") == DECIMAL:
            parameters = node["parameters"]
            precision = int(parameters.get("connect.decimal.precision", 64))
            avro |= {"scale": int(parameters["scale"]), "precision": precision, "logicalType": "decimal"}
        elif node.get("name") in _LOGICAL:
            avro["logicalType"] = _LOGICAL[node["name"]]
        avro |= {"connect.type": kind} if kind in {"int8", "int16"} else {}
        annotated = self._annotated(avro, node)
        return annotated if len(annotated) > 1 else annotated["type"]

    def _map(self, node: Json, space: str) -> Json:
        if node["keys"]["type"] == "string" and not node["keys"].get("optional"):
            return {"type": "map", "values": self.write(node["values"], space)}
        namespace = "io.confluent.connect.avro"
        fields = [{"name": name, "type": self.write(node[f"{name}s"], namespace)} for name in ("key", "value")]
        return {"type": "array", "items": {"type": "record", "name": "MapEntry", "namespace": namespace, "fields": fields}}

    def _record(self, node: Json, space: str) -> Any:
        if "name" in node:
            full = node["name"]
        else:
            self._nameless += 1
            full = f"io.confluent.connect.avro.ConnectDefault{self._nameless if self._nameless > 1 else ''}"
        namespace, _, short = full.rpartition(".")
        if full in self._written:
            return short if namespace == space else full
        self._written.add(full)
        fields = []
        for field in node["fields"]:
            default = {"default": None} if field.get("optional") else {}
            fields.append({"name": field["field"], "type": self.write(field, namespace), **default})
        within = {"namespace": namespace} if namespace and namespace != space else {}
        return self._annotated({"type": "record", "name": short, **within, "fields": fields}, node)

    @staticmethod
    def _annotated(avro: Json, node: Json) -> Json:
        schema = {f"connect.{part}": node[part] for part in ("version", "doc", "parameters", "default", "name") if part in node}
        return {**avro, **schema}


def as_json_schema(node: Json, index: int | None = None) -> Json:
    """Return the JSON Schema of a Connect schema; properties stand in reverse, for only ``connect.index`` orders them."""
    kind = node["type"]
    written: Json = {}
    if kind == "struct":
        properties = {field["field"]: as_json_schema(field, place) for place, field in enumerate(node["fields"])}
        written = {"type": "object", "properties": dict(reversed(properties.items()))}
    elif kind == "array":
        written = {"type": "array", "items": as_json_schema(node["items"])}
    elif kind == "map" and node["keys"]["type"] == "string":
        written = {"type": "object", "connect.type": "map", "additionalProperties": as_json_schema(node["values"])}
    elif kind == "map":
        entry = {"key": as_json_schema(node["keys"], 0), "value": as_json_schema(node["values"], 1)}
        written = {"type": "array", "connect.type": "map", "items": {"type": "object", "properties": entry}}
    else:
        types = {"boolean": "boolean", "string": "string", "bytes": "string", "float": "number", "double": "number"}
        connect = {"float": "float32", "double": "float64"}.get(kind, kind)
        written = {"type": types.get(kind, "integer"), **({} if kind in {"boolean", "string"} else {"connect.type": connect})}
    written |= {"title": node["name"]} if "name" in node else {}
    written |= {"connect.parameters": node["parameters"]} if "parameters" in node else {}
    written |= {"connect.version": node["version"]} if "version" in node else {}
    place = {} if index is None else {"connect.index": index}
    return {"oneOf": [{"type": "null"}, written], **place} if node.get("optional") else {**written, **place}
