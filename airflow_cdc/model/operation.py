"""Debezium's operation codes, and those of row changes that no single event describes."""

from __future__ import annotations

from enum import Enum


class Operation(str, Enum):
    """What happened to a row, by Debezium's code."""

    READ = "r"
    """A row seen by a snapshot."""
    CREATE = "c"
    """A row was inserted."""
    UPDATE = "u"
    """A row was changed under the same key."""
    DELETE = "d"
    """A row was removed."""
    TRUNCATE = "t"
    """Every row of the table was removed; carries no key."""
    MESSAGE = "m"
    """A logical decoding message (PostgreSQL); not about rows."""


KEEP = "k"
"""Row change: the target's row stays as it is."""
MEND = "n"
"""Row change: values that the row's events left out, found again under its earlier keys; its event stays."""

FILL = "f"
"""Row change: a late event only fills values that the row's newer events did not carry."""

VOID = "v"
"""Row change: a truncate or a complete snapshot removed the row that the key's events left; only for tables that flag deletes."""

ROW_OPERATIONS = (Operation.READ, Operation.CREATE, Operation.UPDATE, Operation.DELETE)
