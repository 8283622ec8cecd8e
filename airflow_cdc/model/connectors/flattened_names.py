"""Names of the metadata that ``ExtractNewRecordState`` adds to a row's columns: ``__op``, ``__deleted`` and those of ``add.fields``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from airflow_cdc.model.connectors.registry import flattened_fields

MARKS = ("__op", "__deleted")
"""A flattened record has at least one of these members."""

BEFORE = "__before_"
"""Prefix of a column's value before the event, where ``add.fields`` includes it."""
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


def source_fields() -> tuple[str, ...]:
    """Return the members of ``source`` that are read where ``add.fields`` includes them."""
    return ("ts_ms", "snapshot", *flattened_fields())


def metadata_pattern() -> str:
    """Return the pattern of such a name, valid in Java and Python alike."""
    # A column with such a name cannot be distinguished; any other that begins with two underscores stays a column.
    names = "|".join(sorted({"op", "deleted", *source_fields(), *_OTHER_FIELDS}))
    return rf"__(?:{names}|(?:source|transaction|before)_\w+)"


def without_metadata(fields: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row's fields without the transform's metadata; all fields where it added none."""
    is_flattened = any(field["field"] in MARKS for field in fields)
    is_metadata = re.compile(metadata_pattern())
    return [field for field in fields if not (is_flattened and is_metadata.fullmatch(field["field"]))]
