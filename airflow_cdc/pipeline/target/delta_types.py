"""Types of Spark SQL as Delta's log spells them, found without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NAMES = {"BIGINT": "long", "INT": "integer", "SMALLINT": "short", "TINYINT": "byte"}
_PLAIN = re.compile(r"STRING|BINARY|BOOLEAN|DATE|TIMESTAMP|TIMESTAMP_NTZ|FLOAT|DOUBLE|BIGINT|INT|SMALLINT|TINYINT")
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")
_NESTED = re.compile(r"(ARRAY|STRUCT)<(.*)>")
_MEMBER = re.compile(r"(\w+): ?(.*)")


def delta_type(sql_type: str) -> Any:
    """Return a type in the JSON of a Delta schema.

    :param sql_type: such as ``ARRAY<STRUCT<name: STRING, at: DECIMAL(38,0)>>``; without comments, names in backquotes or collations.
    :raises ValueError: for any other.
    """
    if _PLAIN.fullmatch(sql_type):
        return _NAMES.get(sql_type, sql_type.lower())
    if number := _DECIMAL.fullmatch(sql_type):
        return f"decimal({number[1]},{number[2]})"
    nested = _NESTED.fullmatch(sql_type)
    if nested is None:
        raise ValueError(f"only Spark parses type {sql_type!r}")
    if nested[1] == "ARRAY":
        return {"type": "array", "elementType": delta_type(nested[2]), "containsNull": True}
    return {"type": "struct", "fields": [_member(part) for part in _split(nested[2])]}


def delta_field(name: str, sql_type: str, comment: str | None = None) -> dict[str, Any]:
    """Return a nullable column in the JSON of a Delta schema.

    :raises ValueError: as :func:`delta_type`.
    """
    return {"name": name, "type": delta_type(sql_type), "nullable": True, "metadata": {"comment": comment} if comment else {}}


def physical_name(field: Mapping[str, Any]) -> str:
    """Return the name that a column, in the JSON of a Delta schema, has in files and in statistics."""
    return str(field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"]))


def _member(text: str) -> dict[str, Any]:
    member = _MEMBER.fullmatch(text)
    if member is None:
        raise ValueError(f"only Spark parses member {text!r}")
    return delta_field(member[1], member[2])


def _split(members: str) -> Iterator[str]:
    """Yield what commas outside of brackets separate."""
    depth, begin = 0, 0
    for place, letter in enumerate(members):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and not depth:
            yield members[begin:place].strip()
            begin = place + 1
    yield members[begin:].strip()
