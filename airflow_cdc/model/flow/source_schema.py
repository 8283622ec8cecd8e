"""Source schemas: how a connector encodes each column of a table, imported where bare JSON does not show it.

    <lake>/_cdc/schemas/<flow>.json     of one flow, as it was imported

A column is a field of a Connect schema, as Kafka Connect's JSON converter writes one. A registry, an archived schema, and a database's
catalogue with the connector's settings all reduce to it. The document that people review and import holds several flows' schemas
(``{"format": 1, "schemas": [...]}``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import FileSystem, replace_json
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.state_kind import SOURCE_SCHEMA


@dataclass(frozen=True)
class SourceColumn(JsonObject, names={"name": "column", "field": "connect"}, omits_defaults=True):
    """One column of a table in its connector's encoding."""

    name: str
    field: Mapping[str, Any]
    """The Connect field: ``{"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}``; ``items``
    for an array, ``fields`` for a struct; ``formerly`` holds older names. Empty where the encoding is not known."""
    native: str = ""
    """The database's native type, for people: ``numeric(12,2)``. Empty where it is not known."""

    def connect_field(self) -> dict[str, Any]:
        """Return the field with its name, as a Connect struct lists it."""
        return {"field": self.name, **self.field}


@dataclass(frozen=True)
class SourceSchema(JsonObject):
    """The columns of one flow's table at its source."""

    flow: str
    connector: str
    """``source.connector`` of the events, because some connectors use one semantic type for different values. Empty where it is not
    known."""
    columns: tuple[SourceColumn, ...]
    keys: tuple[str, ...] = ()
    """The primary key's columns, in its order; empty where it is not known."""
    origin: str = ""
    """Origin, for people: ``catalogue of postgresql, connection shop``; never a URL with a password."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The connector's settings that determine this encoding (``decimal.handling.mode``), where they were given."""

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SourceSchema:
        """Read what :meth:`to_json` wrote. People may have edited it, and removed or nulled what they do not know."""
        return super().from_json({"connector": "", **{name: value for name, value in document.items() if value is not None}})


def to_document(schemas: Iterable[SourceSchema]) -> dict[str, Any]:
    """Return the document that holds schemas of several flows."""
    return {"format": SOURCE_SCHEMA.format, "schemas": [schema.to_json() for schema in schemas]}


def is_document(document: Any) -> bool:
    """Return whether a JSON value is such a document, of any format."""
    return isinstance(document, Mapping) and isinstance(document.get("schemas"), Sequence) and "format" in document


def from_document(document: Mapping[str, Any]) -> tuple[SourceSchema, ...]:
    """Return the schemas of a document.

    :raises ConfigurationError: when its format is unknown to this version, or its shape is wrong.
    """
    if document["format"] != SOURCE_SCHEMA.format:
        raise ConfigurationError(
            f"The document of schemas has format {document['format']!r}, expected {SOURCE_SCHEMA.format}.",
            next_step="Use the version of airflow-cdc that made it, or make it anew.",
        )
    try:
        return tuple(map(SourceSchema.from_json, document["schemas"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"A schema of the document has another shape than expected: {type(error).__name__} {error}.",
            next_step="Make it with airflow-cdc schema pull, or hand over a Connect, Avro or JSON schema.",
        ) from error


class SourceSchemas:
    """The schemas imported into a lake."""

    def __init__(self, fs: FileSystem, lake_root: str) -> None:
        self._fs = fs
        self._folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/schemas"

    def of(self, folder: str) -> SourceSchema | None:
        """Return a flow's schema; None where none was imported.

        :param folder: the flow's (:attr:`airflow_cdc.model.state.lake.FlowState.folder`).
        :raises StateTooNewError, StateUnreadableError: as :meth:`airflow_cdc.model.state_kind.StateKind.read`.
        :raises ConfigurationError: see :func:`from_document`.
        """
        found = SOURCE_SCHEMA.read(self._fs, self._path(folder), from_document, owner=f"flow {unquote(folder)}")
        return found[0] if found else None

    def put(self, folder: str, schema: SourceSchema) -> None:
        """Save a flow's schema, replacing the previous one."""
        replace_json(self._fs, self._path(folder), to_document([schema]))

    def flows(self) -> list[str]:
        """Return the names of the flows with an imported schema."""
        if not self._fs.exists(self._folder):
            return []
        names = (str(path).rsplit("/", 1)[-1] for path in self._fs.ls(self._folder, detail=False))
        return sorted(unquote(name.removesuffix(".json")) for name in names if name.endswith(".json") and not name.startswith("."))

    def _path(self, folder: str) -> str:
        return f"{self._folder}/{folder}.json"
