"""Unavailable values: the placeholders that a connector writes where an update did not touch a large value."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterable

from airflow_cdc.pipeline import sql

MAY_BE_UNAVAILABLE = ("STRING", "BINARY")
"""Types of columns that may hold a placeholder."""
_PLACEHOLDER = "__debezium_unavailable_value"
_BYTES = _PLACEHOLDER.encode()
_UUID = str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))
_TEXTS = (_PLACEHOLDER, base64.b64encode(_BYTES).decode(), _BYTES.hex())
# As text; as bytes in base64 or hexadecimal; as the only element of an array of texts, bytes or UUIDs, or of a map; as an array of
# numbers, one a byte (archives, fact 7; Debezium's UnchangedToastedPlaceholder). Arrays as their JSON text, tight or not.
_NESTED = (*([text] for text in (*_TEXTS, _UUID)), {_PLACEHOLDER: _PLACEHOLDER}, list(_BYTES))
PLACEHOLDERS = ", ".join(
    sql.text(spelled)
    for spelled in (
        *_TEXTS,
        *(json.dumps(nested, separators=separators) for nested in _NESTED for separators in ((",", ":"), (", ", ": "))),
    )
)


def unless_unavailable(text: str) -> str:
    """Return the SQL of a text, NULL where it is a placeholder."""
    return f"if({text} IN ({PLACEHOLDERS}), NULL, {text})"


def hashes_of(image: str, columns: Iterable[str]) -> str:
    """Return the SQL of an image's hashes by column, NULL for one that tells nothing."""
    texts = (unless_unavailable(f"{image}.{sql.name(name)}") for name in columns)
    hashes = f"CAST(array({', '.join(f'if({text} IS NULL, NULL, xxhash64({text}))' for text in texts)}) AS array<bigint>)"
    # What tells nothing beside the key is no image.
    return f"if({image} IS NULL OR forall({hashes}, hash -> hash IS NULL), NULL, {hashes})"
