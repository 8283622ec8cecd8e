"""Spark's names for the types in a Delta table's schema. PySpark has them too, but its import costs more than a look."""

from __future__ import annotations

from typing import Any

_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


def simple_type(kind: Any) -> str:
    """Return a type as PySpark's ``simpleString`` does.

    :param kind: the type in the JSON of a Delta schema.
    """
    if isinstance(kind, str):
        return _NAMES.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{simple_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{simple_type(kind['keyType'])},{simple_type(kind['valueType'])}>"
    members = (f"{member['name']}:{simple_type(member['type'])}" for member in kind["fields"])
    return f"struct<{','.join(members)}>"


def is_nested(simple: str) -> bool:
    """Return whether a type has parts."""
    return simple.startswith(("array<", "map<", "struct<"))
