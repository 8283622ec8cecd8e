"""Read imported schema files of any supported form into their parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.source_schema import SourceSchema, from_document, is_document
from airflow_cdc.model.handed_over.apicurio_export import in_export, is_zip
from airflow_cdc.model.handed_over.avro import from_avro, is_avro
from airflow_cdc.model.handed_over.connect import is_connect, literal, normalized
from airflow_cdc.model.handed_over.found import FoundSchema, LeftAside, found_schema, in_event
from airflow_cdc.model.handed_over.json_schema import from_json_schema, is_json_schema
from airflow_cdc.model.handed_over.registry import (
    PROTOBUF_NEXT_STEP,
    PROTOBUF_REFUSED,
    RegisteredSchema,
    Registry,
    is_registered,
    registered,
)

_EXPECTED = (
    "Hand over a Connect schema or an event with one, an Avro schema, a JSON Schema of Connect's converter, an answer of a schema registry"
    " that holds a schema, an export of Apicurio Registry, or a document of airflow-cdc."
)
_BINARY = {
    b"\x1f\x8b": ("gzip", "Unpack it first: gunzip -c FILE | airflow-cdc schema import - …"),
    b"Obj\x01": ("an Avro data file", "Hand over its schema alone, as avro-tools getschema prints it."),
    b"PAR1": ("a Parquet file", _EXPECTED),
}


@dataclass
class Parts:
    """Parts of the files."""

    ready: list[SourceSchema] = field(default_factory=list)
    """From our own documents."""
    found: list[FoundSchema] = field(default_factory=list)
    aside: list[LeftAside] = field(default_factory=list)
    registered: list[RegisteredSchema] = field(default_factory=list)
    """From registries; read last, because one may refer to another."""


def read_files(files: Iterable[tuple[str, bytes]]) -> Parts:
    """Return the parts of some files.

    :param files: names, for people, and contents.
    :raises ConfigurationError: when a file's form is unknown.
    """
    parts = Parts()
    for name, data in files:
        if is_zip(data):
            parts.registered += in_export(data, name)
            continue
        for document in _documents(name, data):
            _add(document, name, parts)
    for each in Registry(parts.registered).found():
        if isinstance(each, FoundSchema):
            parts.found.append(each)
        else:
            parts.aside.append(each)
    return parts


def _documents(name: str, data: bytes) -> Iterator[Any]:
    """Yield a file's JSON values, concatenated with any blanks between them, as a loop of curl prints them."""
    for magic, (what, next_step) in _BINARY.items():
        if data.startswith(magic):
            raise ConfigurationError(f"{name} is {what}, expected JSON.", next_step=next_step)
    try:
        text = data.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{name} is no UTF-8 text: {error}.", next_step=_EXPECTED) from error
    if not text:
        raise ConfigurationError(f"{name} is empty.", next_step=_EXPECTED)
    if text.startswith(("syntax", "package ", "message ", "//")):
        raise ConfigurationError(f"{name} cannot be taken: {PROTOBUF_REFUSED}.", next_step=PROTOBUF_NEXT_STEP)
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        try:
            document, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise ConfigurationError(f"{name} is no JSON: {error}.", next_step=_EXPECTED) from error
        yield document
        while at < len(text) and text[at].isspace():
            at += 1


def _add(document: Any, name: str, parts: Parts) -> None:
    if is_document(document):
        parts.ready += from_document(document)
    elif is_registered(document) and document.get("deleted"):
        parts.aside.append(LeftAside(f"{document.get('subject')} version {document.get('version')}", "the registry has it as deleted"))
    elif is_registered(document):
        parts.registered.append(registered(document, name))
    elif is_avro(document):
        parts.found.append(found_schema(from_avro(document), f"Avro schema, {name}"))
    elif isinstance(document, list) and any(isinstance(each, Mapping) for each in document):
        for each in document:
            _add(each, name, parts)
    elif is_connect(document):
        parts.found.append(found_schema(normalized(document), f"Connect schema, {name}"))
    elif in_event(document) or _is_record(document):
        parts.found += _of_record(document, name)
    elif is_json_schema(document):
        parts.found.append(found_schema(from_json_schema(document), f"JSON Schema, {name}"))
    else:
        raise _unknown(document, name)


def _is_record(document: Any) -> bool:
    return isinstance(document, Mapping) and isinstance(document.get("topic"), str) and "value" in document


def _of_record(document: Mapping[str, Any], name: str) -> Iterator[FoundSchema]:
    """Yield the schemas of an event's value, and of a whole Kafka record's key too."""
    topic = str(document["topic"]) if _is_record(document) else ""
    value = in_event(document["value"]) if topic else document
    if value is None or not is_connect(value["schema"]):
        raise ConfigurationError(
            f"{name}: the event carries no schema of a struct, so the spelling of its values is not known.",
            next_step="Hand over an event that the converter wrote with schemas.enable=true.",
        )
    origin = f"schema in an event, {name}"
    yield found_schema(normalized(value["schema"]), origin, topic=topic)
    key = in_event(document.get("key")) if topic else None
    if key and normalized(key["schema"]):
        yield found_schema(normalized(key["schema"]), origin, topic=topic, is_key=True)


def _unknown(document: Any, name: str) -> ConfigurationError:
    next_step = _EXPECTED
    if isinstance(document, Mapping) and "error_code" in document:
        seen = f"an error of a registry: {document.get('message')}"
        next_step = "Ask the registry again: GET /subjects/<topic>-value/versions/latest."
    elif isinstance(document, list) and document:
        seen = f"a list of {document[0]!r} and the like"
        next_step = "Ask the registry for each subject's schema: GET /subjects/<subject>/versions/latest."
    elif isinstance(document, Mapping):
        kind = document.get("type")
        of_type = f" of type {kind!r}" if kind is not None else ""
        seen = f"an object{of_type} with the members {sorted(map(str, document))[:8]}"
        if literal(kind):
            next_step = "A single value's schema has no columns: hand over that of the topic's values. " + _EXPECTED
    else:
        seen = repr(document)[:80]
    return ConfigurationError(f"{name} holds {seen}, expected a schema.", next_step=next_step)
