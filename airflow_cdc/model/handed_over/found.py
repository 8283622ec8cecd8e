"""Schemas found in imported files, before their flows are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.handed_over.connect import ConnectSchema

_ROLES = {"Envelope": False, "Value": False, "Key": True}
"""Last part of Debezium's names for the schemas of a topic's values and keys, and whether it is the key's."""


@dataclass(frozen=True)
class FoundSchema:
    """The schema of a topic's values or keys."""

    connect: ConnectSchema
    """See :func:`airflow_cdc.model.handed_over.connect.normalized`."""
    origin: str
    """Origin, for people."""
    topic: str = ""
    """Empty where it is not known."""
    is_key: bool = False
    subject: str = ""
    """The registry's subject; versions count within one. Empty where the schema is not from a registry."""
    version: tuple[int, ...] = ()
    rank: int = 0
    """How its topic is known, lower is better: 0 from a record or a registry's subject, 1 from an envelope's name, 2 from a row's name."""


@dataclass(frozen=True)
class LeftAside:
    """A part of a file that describes no table's columns."""

    what: str
    """Its name, for people."""
    reason: str


def found_schema(connect: ConnectSchema, origin: str, **more: Any) -> FoundSchema:
    """Return a schema. Its topic and role come from its own name where they are not given.

    :param more: further fields of :class:`FoundSchema`.
    """
    if more.get("topic"):
        return FoundSchema(connect, origin, **more)
    topic, _, role = str(connect.get("name", "")).rpartition(".")
    if not topic or role not in _ROLES:
        return FoundSchema(connect, origin, **more)
    return FoundSchema(connect, origin, **{**more, "topic": topic, "is_key": _ROLES[role], "rank": 1 if role == "Envelope" else 2})


def is_control(connect: ConnectSchema) -> bool:
    """Return whether a schema is for a connector's own records (transaction, heartbeat, schema change) or a part of one."""
    return str(connect.get("name", "")).startswith("io.debezium.")


def in_event(document: Any) -> Mapping[str, Any] | None:
    """Return a ``{"schema": …, "payload": …}`` pair, None for anything else."""
    is_pair = isinstance(document, Mapping) and "payload" in document and "schema" in document
    return document if is_pair else None
