"""What is found in files that are handed over, before it is known which flow each part is of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.handed_over.connect import ConnectSchema

_ROLES = {"Envelope": False, "Value": False, "Key": True}
"""Last part of the names that Debezium gives the schemas of a topic's values and keys, and whether it is the key's."""


@dataclass(frozen=True)
class FoundSchema:
    """The schema of a topic's values or keys."""

    connect: ConnectSchema
    """See :func:`airflow_cdc.model.handed_over.connect.normalized`."""
    origin: str
    """Where it is from, for people."""
    topic: str = ""
    """Empty where nothing tells it."""
    is_key: bool = False
    subject: str = ""
    """Under which a registry has it; versions count within one. Empty where it is from no registry."""
    version: tuple[int, ...] = ()
    rank: int = 0
    """How its topic is told, the lower the better: by a record or a registry's subject, by an envelope's name, by a row's name."""


@dataclass(frozen=True)
class LeftAside:
    """A part of a file that tells no table's columns."""

    what: str
    """Its name, for people."""
    reason: str


def found_schema(connect: ConnectSchema, origin: str, **told: Any) -> FoundSchema:
    """Return a schema, with its topic and role by its own name where nothing else tells them.

    :param told: further fields of :class:`FoundSchema`.
    """
    if told.get("topic"):
        return FoundSchema(connect, origin, **told)
    topic, _, role = str(connect.get("name", "")).rpartition(".")
    if not topic or role not in _ROLES:
        return FoundSchema(connect, origin, **told)
    return FoundSchema(connect, origin, **{**told, "topic": topic, "is_key": _ROLES[role], "rank": 1 if role == "Envelope" else 2})


def is_control(connect: ConnectSchema) -> bool:
    """Return whether a schema is of one of a connector's own records: a transaction, a heartbeat, a change of a schema, a part of these."""
    return str(connect.get("name", "")).startswith("io.debezium.")


def in_event(document: Any) -> Mapping[str, Any] | None:
    """Return a ``{"schema": …, "payload": …}`` pair, None for anything else."""
    is_pair = isinstance(document, Mapping) and "payload" in document and "schema" in document
    return document if is_pair else None
