"""Fillers: what a connector writes in a before image in place of a value that the source's log does not hold.

Which columns the log holds is the table's replica identity, which no event names (docs/sources/postgresql.md#images-before). So a filler
is never a value and never a key; a value that is no filler is real, and one such value beside the key shows that the image is a whole row.
"""

from __future__ import annotations

from airflow_cdc.pipeline.spark import sql

FILLERS = (
    *("", "0", "false", "AA==", "[]", "{}", '{"scale":0,"value":"AA=="}'),
    *(f"0.{'0' * digits}" for digits in range(1, 21)),
    *(f"1970-01-01{time}{zone}" for time in ("", "T00:00:00", "T00:00:00.000000") for zone in ("", "Z")),
    *(f"00:00:00{fraction}{zone}" for fraction in ("", ".000000") for zone in ("", "Z")),
    *("P0Y0M0DT0H0M0S", "P0Y0M0DT0H0M0.0S"),
)
"""The texts of all types' fillers. A NULL is one too."""


HASH_OF_NULL = "0L"
"""SQL of the hash of a NULL in an image. A value that the image does not carry has none."""


def may_be_filler(text: str) -> str:
    """Return the SQL, of both engines, that is true for a text that may be a filler."""
    return f"coalesce({text} IN ({', '.join(map(sql.text, FILLERS))}), true)"
