"""Read the fields of a connection's extra by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection


def extra(connection: Connection, name: str) -> Any:
    """Return a field of a connection's extra, also under the long name of Airflow 2's forms; None where it is not set."""
    fields = connection.extra_dejson
    value = fields.get(name)
    return (fields.get(f"extra__{connection.conn_type}__{name}") if value is None else value) or None
