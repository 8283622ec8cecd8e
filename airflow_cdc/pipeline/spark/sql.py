"""Quoting for the pipeline's SQL: no name or text reaches a statement unquoted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ONE_METHOD = 6_000
"""Characters of SQL: more do not fit into a method of ``spark.sql.codegen.hugeMethodLimit`` (docs/adr/measurements.md)."""
_NEEDS_COLUMN_MAPPING = set(" ,;{}()\n\t=")
"""Characters that Parquet field names refuse; Delta stores such columns under mapped names."""


def name(identifier: str) -> str:
    """Quote an identifier."""
    return "`" + identifier.replace("`", "``") + "`"


def names(identifiers: Iterable[str], prefix: str = "") -> str:
    """Quote identifiers and join them by commas, each behind ``prefix``."""
    return ", ".join(prefix + name(identifier) for identifier in identifiers)


def path(parts: Iterable[str]) -> str:
    """Quote the parts of a table's or schema's name and join them by dots."""
    return ".".join(map(name, parts))


def text(value: str) -> str:
    """Quote a string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def struct_type(members: Mapping[str, str]) -> str:
    """Return a struct's type; ``members``: types by name."""
    return f"STRUCT<{', '.join(f'{member}: {kind}' for member, kind in members.items())}>"


def texts(values: Iterable[str]) -> str:
    """Return an array of string literals; an empty one is typed too."""
    return f"CAST(array({', '.join(map(text, values))}) AS ARRAY<STRING>)"


def assign(values: Mapping[str, str]) -> str:
    """Return the assignments of an UPDATE; ``values``: SQL by column, both already quoted."""
    return ", ".join(f"{column} = {value}" for column, value in values.items())


def same_key(left: str, right: str, keys: Iterable[str]) -> str:
    """Return the condition that rows of two aliases have the same key."""
    return " AND ".join(f"{left}.{name(key)} = {right}.{name(key)}" for key in keys)


def struct(members: Mapping[str, str]) -> str:
    """Return a struct of members (SQL by name)."""
    return f"named_struct({', '.join(f'{text(member)}, {value}' for member, value in members.items())})"


def struct_unless_null(whole: str, members: Mapping[str, str]) -> str:
    """Return a struct of members (SQL by name), NULL where ``whole`` is."""
    return f"if({whole} IS NULL, NULL, {struct(members)})"


def let(variable: str, value: str, body: str) -> str:
    """Return ``body`` with a variable bound to a value: SQL has no let, but a transform over one element names it."""
    return f"transform(array({value}), {variable} -> {body})[0]"


def once(value: str, *, beside: Iterable[str] = ()) -> str:
    """Return a value that is computed only where it is selected.

    Spark pushes filters below a projection together with the expressions that they use: each mention of a parsed line would parse it again.

    :param beside: the other selected expressions. Spark generates one method for all of them. For a method beyond 64 KB it logs an error
        with stack trace and plan, and it discards one that the JVM would not compile. If the SQL is that long, a lambda makes Spark
        evaluate this projection alone, with its code split into pieces.
    """
    is_long = len(value) + sum(map(len, beside)) > _ONE_METHOD
    is_never = "exists(array(monotonically_increasing_id()), id -> id < 0)" if is_long else "monotonically_increasing_id() < 0"
    return f"if({is_never}, NULL, {value})"


def mentions(json_text: str, members: Iterable[str]) -> str:
    """Return the condition that a JSON text may have one of the members: a cheap test, as no string in it contains bare quotes."""
    names = list(members)
    found = " OR ".join(f"contains({json_text}, {text(chr(34) + name + chr(34))})" for name in names)
    # A value with such a name is no member: connectors name a header so. The pattern is evaluated only if the name is found.
    a_member = text(rf'"({"|".join(map(re.escape, names))})"\s*:')
    return f"(({found}) AND {json_text} RLIKE {a_member})"


def delta(uri: str) -> str:
    """Return the name of the Delta table at a URI for a FROM clause."""
    return f"delta.{name(uri)}"


def needs_column_mapping(identifiers: Iterable[str]) -> bool:
    """Return whether Parquet would refuse one of the names."""
    return any(set(identifier) & _NEEDS_COLUMN_MAPPING for identifier in identifiers)
