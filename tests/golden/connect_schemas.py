"""The Connect schemas in a capture's events."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).parent / "captures"
CATALOGUES = Path(__file__).parent / "catalogues"
_NOT_READ = ("optional", "default", "version", "doc")
"""What a field says beside how its values are spelled."""


def row_fields(capture: str, topic: str) -> dict[str, dict[str, Any]]:
    """Return by column the fields of the last event of a topic, in a comparable form."""
    last: Mapping[str, Any] = {}
    with gzip.open(CAPTURES / capture / "archive/schema" / f"{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            last = (json.loads(line)["value"] or {}).get("schema") or last
    (after,) = [field for field in last["fields"] if field["field"] == "after"]
    return {field["field"]: comparable(field) for field in after["fields"]}


def comparable(field: Mapping[str, Any]) -> dict[str, Any]:
    """Return a field without its name and what does not change how its values are spelled."""
    kept = {name: value for name, value in field.items() if name not in (*_NOT_READ, "field")}
    for name in ("items", "keys", "values"):
        if name in kept:
            kept[name] = comparable(kept[name])
    if "fields" in kept:
        kept["fields"] = {member["field"]: comparable(member) for member in kept["fields"]}
    return kept
