"""A schema registry's answers: Confluent's REST API, which Apicurio Registry offers too (``/apis/ccompat``).

An answer of ``/subjects/<subject>/versions/<version>`` or ``/schemas/ids/<id>`` is ``{"subject", "version", "id", "schemaType", "schema",
"references"}``; ``schema`` is a text, ``schemaType`` is omitted for Avro, ``/schemas/ids`` omits subject and version. ``/schemas`` answers
with a list of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.handed_over.avro import from_avro
from airflow_cdc.model.handed_over.connect import ConnectSchema
from airflow_cdc.model.handed_over.found import FoundSchema, LeftAside, found_schema
from airflow_cdc.model.handed_over.json_schema import from_json_schema

PROTOBUF_REFUSED = "it is Protobuf, which is not read"
PROTOBUF_NEXT_STEP = (
    "Hand over the Connect schema instead, an event archived with schemas.enable=true; or declare the columns in the flows file."
)


@dataclass(frozen=True)
class Reference:
    """A named reference to another schema."""

    name: str
    subject: str
    version: str
    group: str = ""


@dataclass(frozen=True)
class RegisteredSchema:
    """One version of a subject."""

    text: str
    origin: str
    subject: str = ""
    group: str = ""
    """Apicurio's group of artifacts."""
    version: tuple[int, ...] = ()
    label: str = ""
    """The version as references name it."""
    kind: str = "AVRO"
    references: tuple[Reference, ...] = ()


def is_registered(document: Any) -> bool:
    """Return whether a JSON value is a registry's answer with a schema."""
    return isinstance(document, Mapping) and isinstance(document.get("schema"), str) and "payload" not in document


def registered(document: Mapping[str, Any], origin: str) -> RegisteredSchema:
    """Return the schema of a registry's answer."""
    subject, version = str(document.get("subject") or ""), document.get("version")
    # A subject outside the default context is written :.context:subject.
    name = subject.split(":", 2)[2] if subject.startswith(":.") and subject.count(":") > 1 else subject
    named = [each for each in document.get("references") or () if isinstance(each, Mapping)]
    references = tuple(Reference(str(each.get("name")), str(each.get("subject")), str(each.get("version"))) for each in named)
    return RegisteredSchema(
        text=document["schema"],
        origin=f"{origin}, subject {name} version {version}" if name else origin,
        subject=name,
        version=(version,) if isinstance(version, int) else (),
        label=str(version),
        kind=str(document.get("schemaType") or "AVRO").upper(),
        references=references,
    )


class Registry:
    """The schemas of one or several exports, which may refer to each other."""

    def __init__(self, schemas: Iterable[RegisteredSchema]) -> None:
        self._newest: dict[tuple[str, str], RegisteredSchema] = {}
        self._versions: dict[tuple[str, str, str], RegisteredSchema] = {}
        self._nameless = []
        for each in schemas:
            place = (each.group, each.subject)
            if not each.subject:
                self._nameless.append(each)
            elif place not in self._newest or each.version > self._newest[place].version:
                self._newest[place] = each
            self._versions[(*place, each.label)] = each

    def found(self) -> list[FoundSchema | LeftAside]:
        """Return the newest version of each subject as a Connect schema, and why one is left aside."""
        return [self._found(each) for each in (*self._newest.values(), *self._nameless)]

    def _found(self, schema: RegisteredSchema) -> FoundSchema | LeftAside:
        what = schema.subject or schema.origin
        if schema.kind == "PROTOBUF":
            return LeftAside(what, PROTOBUF_REFUSED)
        try:
            connect = self._connect(schema)
        except ConfigurationError as error:
            return LeftAside(what, error.message)
        more = {"subject": f"{schema.group}/{schema.subject}" if schema.subject else "", "version": schema.version}
        return found_schema(connect, schema.origin, **more, **_by_subject(schema.subject, str(connect.get("name", ""))))

    def _connect(self, schema: RegisteredSchema) -> ConnectSchema:
        node = _parsed(schema)
        if schema.kind == "AVRO":
            return from_avro(node, [_parsed(each) for each in self._referenced(schema, ())])
        if schema.kind == "JSON":
            names = {reference.name: _parsed(self._target(schema, reference)) for reference in schema.references}
            return from_json_schema(node, names)
        raise ConfigurationError(
            f"it is of type {schema.kind}, expected AVRO or JSON", next_step="Hand over an Avro schema, a JSON Schema or a Connect schema."
        )

    def _referenced(self, schema: RegisteredSchema, above: tuple[RegisteredSchema, ...]) -> list[RegisteredSchema]:
        """Return a schema's references, direct and indirect, in dependency order."""
        found: list[RegisteredSchema] = []
        for reference in schema.references:
            target = self._target(schema, reference)
            if target not in (schema, *above):
                found += [each for each in (*self._referenced(target, (*above, schema)), target) if each not in found]
        return found

    def _target(self, schema: RegisteredSchema, reference: Reference) -> RegisteredSchema:
        place = (reference.group, reference.subject)
        found = self._versions.get((*place, reference.version)) or self._newest.get(place)
        if found is None:
            raise ConfigurationError(
                f"it refers to {reference.name}, subject {reference.subject} version {reference.version}, which was not handed over",
                next_step="Hand over that version too, in the same command.",
            )
        return found


def _parsed(schema: RegisteredSchema) -> Any:
    try:
        return json.loads(schema.text)
    except ValueError as error:
        # Avro's shortest spelling of a primitive type is the bare word.
        if schema.kind == "AVRO" and schema.text.isidentifier():
            return schema.text
        raise ConfigurationError(f"its schema is no JSON: {error}", next_step="Export it again.") from error


def _by_subject(subject: str, name: str) -> dict[str, Any]:
    """Return the topic and role from a subject: ``<topic>-value``, ``<topic>-key``, ``<topic>-<name of the schema>``, with the whole
    name or its end.
    """
    of_key = name.endswith(".Key")
    endings = {"-value": False, "-key": True, **({f"-{name}": of_key, f"-{name.rpartition('.')[2]}": of_key} if name else {})}
    topics = {ending: subject.removesuffix(ending) for ending in endings if subject.endswith(ending)}
    return next(({"topic": topic, "is_key": endings[ending]} for ending, topic in topics.items() if topic), {})
