"""SQL of DuckDB: names, which delta-rs quotes alike, texts, and the files that a statement reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def name(identifier: str) -> str:
    """Quote an identifier."""
    return '"' + identifier.replace('"', '""') + '"'


def of_source(column: str) -> str:
    """Return the quoted name of a source's column beside columns of ours, such as ``events``: a source may have one of that name."""
    return name(f"column {column}")


def text(value: str) -> str:
    """Quote a string literal."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    """Return quoted string literals, separated by commas."""
    return ", ".join(map(text, values))


def holds_text(columns: Iterable[str], wanted: str) -> str:
    """Return the SQL that is true for a row of which one of some columns, as text, holds a text in any case; never NULL."""
    found = (f"contains(lower(CAST({name(column)} AS VARCHAR)), lower({text(wanted)}))" for column in columns)
    return f"({' OR '.join(f'coalesce({each}, false)' for each in found)})"


def struct(members: Mapping[str, str]) -> str:
    """Return a STRUCT type; ``members``: types by name."""
    return f"STRUCT({', '.join(f'{name(member)} {kind}' for member, kind in members.items())})"


def read_members(paths: Iterable[str], members: Mapping[str, str]) -> str:
    """Return the table function that reads members of JSON lines; ``members``: types by name.

    A line that is not JSON, has a member twice, or a member of another kind fails the statement.
    """
    columns = ", ".join(f"{text(member)}: {text(kind)}" for member, kind in members.items())
    options = f"format = 'newline_delimited', hive_partitioning = false, filename = true, columns = {{{columns}}}"
    return f"read_json([{texts(paths)}], {options})"
