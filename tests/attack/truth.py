"""What the source says of each key, for any part of its log: the rows that a table must have after that part was archived."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[Any, ...]
Row = Mapping[str, Any]
Effects = dict[Key, Row | None]
"""Rows by their keys; None: the key is gone."""


@dataclass(frozen=True)
class Event:
    """What one event does to keys. Events are numbered in the order in which the source did them."""

    serial: int
    transaction: int
    effects: Effects
    empties_table: bool = False
    committed_at: int = 0
    """Place of the commit in the log, which is also its time, in milliseconds."""
    is_snapshot: bool = False
    """Whether it is a read of the initial snapshot."""


@dataclass
class Truth:
    """All that happened in the source, in its own order."""

    events: list[Event] = field(default_factory=list)
    handed_on: dict[int, Effects] = field(default_factory=dict)
    """By transaction: the final rows of keys that it handed on between rows. Single events of it do not show them."""

    def add(self, transaction: int, effects: Effects, committed_at: int, *, empties_table: bool = False, is_snapshot: bool = False) -> int:
        """Return the number of a new event."""
        self.events.append(Event(len(self.events), transaction, effects, empties_table, committed_at, is_snapshot))
        return len(self.events) - 1

    def rows(self, archived: Collection[int]) -> tuple[dict[Key, Row], set[Key]]:
        """Return the rows by key, and the keys of which nobody can say what they are yet.

        Of each key its last archived event counts. A transaction that handed keys on counts when all of it is archived, and the events of
        the rows that held them before. A row that is born and goes in one transaction says nothing of an older row of its key, which went
        by an event that is not archived yet: a source may give a key to two rows for a while.
        """
        known = set(archived)
        last: dict[int, int] = {}
        missing: dict[int, bool] = defaultdict(bool)
        for event in self.events:
            last[event.transaction] = event.serial
            missing[event.transaction] |= event.serial not in known
        rows: dict[Key, Row] = {}
        unclear: set[Key] = set()
        lacking: set[Key] = set()
        born: set[tuple[int, Key]] = set()
        for event in self.events:
            if event.serial not in known:
                lacking |= rows.keys() if event.empties_table else event.effects.keys()
                continue
            if event.empties_table:
                rows.clear()
                unclear.clear()
                lacking.clear()
            together = self.handed_on.get(event.transaction, {})
            effects = {key: row for key, row in event.effects.items() if key not in together}
            if together and missing[event.transaction]:
                unclear |= together.keys()
            elif event.serial == last[event.transaction]:
                effects.update(together)
            for key, row in effects.items():
                unclear.discard(key)
                if row is not None:
                    born.add((event.transaction, key))
                    rows[key] = row
                    continue
                rows.pop(key, None)
                if key in lacking and (event.transaction, key) in born:
                    unclear.add(key)
            # Which of its two rows a delete is about depends on the older one.
            unclear |= together.keys() & effects.keys() & lacking
        return rows, unclear
