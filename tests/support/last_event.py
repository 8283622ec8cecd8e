"""The rule to compare with: the last event per key, and what it makes of the hazards."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.support.events import Record
from tests.support.hazard_events import Row
from tests.support.hazards import HAZARDS


def last_event_per_key(records: Iterable[Record]) -> list[Row]:
    """Return the rows that are left when of each key the event with the highest position counts, and no other."""
    last: dict[tuple[Any, ...], tuple[tuple[int, int], Row | None]] = {}
    for item in records:
        value = item["value"]
        place = (int(json.loads(value["source"]["sequence"])[1]), item["offset"])
        key = tuple(item["key"].values())
        if key not in last or last[key][0] <= place:
            last[key] = (place, value["after"])
    return sorted((image for _, image in last.values() if image), key=lambda image: str(image["id"]))


def table_of_hazards() -> str:
    """Return, as Markdown, what the last event per key gives and what the source holds."""
    lines = ["| history | source, and this package | the last event per key | met by users of others |", "|---|---|---|---|"]
    for name, hazard in HAZARDS.items():
        theirs = last_event_per_key(hazard.records)
        words = "the same" if theirs == list(hazard.rows) else _in_words(theirs)
        lines.append(f"| {name} | {_in_words(hazard.rows)} | {words} | {hazard.pain} |")
    return "\n".join(lines) + "\n"


def _in_words(rows: Iterable[Row]) -> str:
    words = [" ".join(f"{name}={'NULL' if value is None else value}" for name, value in row.items()) for row in rows]
    return "`" + "`<br>`".join(words) + "`" if words else "no row"
