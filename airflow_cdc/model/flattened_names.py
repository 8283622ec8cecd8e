"""Names of what ``ExtractNewRecordState`` puts behind a row's columns: ``__op``, ``__deleted`` and what ``add.fields`` names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MARKS = ("__op", "__deleted")
"""Members of which a flattened record has at least one."""

TOLD_BY = {
    "sqlserver": ("commit_lsn", "change_lsn"),
    "mysql": ("file", "pos"),
    "oracle": ("commit_scn", "scn"),
    "postgresql": ("sequence", "lsn"),
}
"""Fields of ``source`` that only one connector has, for records that do not name it."""
SOURCE_FIELDS = ("ts_ms", "snapshot", *(name for names in TOLD_BY.values() for name in names))
MORE_SOURCE_FIELDS = ("event_serial_no", "txId", "row", "gtid", "rs_id", "ssn")
_OTHER_FIELDS = (
    "connector",
    "version",
    "name",
    "db",
    "schema",
    "table",
    "ts_us",
    "ts_ns",
    "xmin",
    "origin",
    "server_id",
    "thread",
    "query",
)

# A column that is called so is not told apart; any other that begins with two underscores stays one.
_NAMES = "|".join(sorted({"op", "deleted", *SOURCE_FIELDS, *MORE_SOURCE_FIELDS, *_OTHER_FIELDS}))
IS_METADATA = rf"__(?:{_NAMES}|(?:source|transaction)_\w+)"
"""Pattern of such a name; Java and Python read it alike."""


def without_metadata(fields: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row's fields without what the transform added; all of them where it made none of them."""
    is_flattened = any(field["field"] in MARKS for field in fields)
    return [field for field in fields if not (is_flattened and re.fullmatch(IS_METADATA, field["field"]))]
