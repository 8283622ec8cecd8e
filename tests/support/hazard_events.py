"""The words of which histories of hazards are made: rows, PostgreSQL's events of them, and a history in files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.events import Record, postgresql

PLACEHOLDER = "__debezium_unavailable_value"
Row = dict[str, Any]


def row(key: int, value: str | None, **more: Any) -> Row:
    return {"id": key, "v": value, **more}


def event(
    op: str, change: int, image: Row, was: Row | None = None, *, commit: int | None = None, offset: int, partition: int = 0, **source: Any
) -> Record:
    """Return one PostgreSQL event; all of one ``commit`` are one transaction. A delete's image holds key and fillers; ``was``: before."""
    images = {"before": image} if op == "d" else {"before": was, "after": image}
    made = postgresql(op, commit=commit, change=change, offset=offset, partition=partition, **images)
    return {**made, "value": {**made["value"], "source": {**made["value"]["source"], "txId": commit, **source}}}


def read(change: int, image: Row, *, offset: int, snapshot: str = "true") -> Record:
    return event("r", change, image, offset=offset, snapshot=snapshot)


def filler(key: int) -> Row:
    return row(key, "")


@dataclass(frozen=True)
class Hazard:
    """A table's history, cut into the files that arrive one after the other, and the rows of its source at the end."""

    steps: Sequence[Sequence[Record]]
    rows: Sequence[Row]
    unresolved: int = 0
    """Values that were nowhere to be had when their row was merged."""
    pain: str = ""
    """Where users of other tools met it."""

    @property
    def records(self) -> list[Record]:
        """All records in the order in which they arrive."""
        return [record for step in self.steps for record in step]
