"""The SQL queries of a database's catalogue: its tables, a table's columns, its primary key.

``?`` stands for a parameter, the schema and then the table; :func:`in_style` converts it to the driver's style. No statement holds another
``?``, a ``%`` or a ``:``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class Queries:
    """The statements for one kind of database."""

    tables: str
    """Database, schema and name of each table that is not the system's. MySQL's databases are its schemas."""
    columns: str
    """Rows of the table's columns in their order, for ``column_of`` of that database's module."""
    keys: str
    """Names of the primary key's columns in its order."""


def in_style(sql: str, placeholder: str) -> str:
    """Return a statement with the driver's placeholders.

    :param placeholder: ``?``, ``%s``, or ``:`` where parameters are numbered (``:1``).
    """
    numbers = count(1)
    return "".join(
        (f":{next(numbers)}" if placeholder == ":" else placeholder) if character == "?" else character for character in sql.strip()
    )
