"""Random transactions that hand keys on from row to row, as a database logs them whose constraint is checked at the end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.support.events import Record, Row, tombstone

Change = Callable[..., Record]
WHOLE, KEYS, NONE = "whole rows", "keys and fillers", "none"
"""What before images hold. PostgreSQL logs the latter two; updates without a new key then have none."""


class HandedOn:
    """A table whose transactions move, change, remove and add rows, several of them under one key for a while.

    :param change: makes an event, as those of ``DIALECTS``.
    :param images: what before images hold.
    """

    def __init__(self, change: Change, seed: int, *, images: str, topic: str) -> None:
        self._change, self._pick, self._images, self._topic = change, random.Random(seed), images, topic
        self.rows: dict[int, Row] = {}
        """As they are now, by key."""
        self._place = 1_000

    def load(self, keys: int) -> list[Record]:
        """Return creates of keys, each in a transaction of its own."""
        return [record for key in range(keys) for record in self._create(key, self._begin())]

    def transactions(self, count: int, *, keys: int) -> list[Record]:
        """Return the events of transactions over keys below a number; some come twice, one behind the other."""
        records = [record for _ in range(count) for record in self._transaction(keys)]
        return [record for record in records for _ in range(self._pick.choice([1] * 9 + [2]))]

    def _begin(self) -> int:
        self._place += self._pick.randrange(2, 9)
        return self._place

    def _transaction(self, keys: int) -> Iterator[Record]:
        at = self._begin()
        moving = self._pick.sample(sorted(self.rows), min(len(self.rows), self._pick.randrange(5)))
        # Some of them leave their place to others, or to none.
        taken = {*self.rows} - {*moving}
        free = [key for key in range(keys) if key not in taken]
        goals = dict(zip(moving, self._pick.sample(free, len(moving)), strict=True))
        old = {key: self.rows.pop(key) for key in moving}
        for key in moving:
            yield from self._move(old[key], goals[key], at)
            if self._pick.random() < 0.2:
                yield from self._update(goals[key], at)
        for _ in range(self._pick.randrange(3)):
            key = self._pick.randrange(keys)
            if key in self.rows:
                yield from self._pick.choice([self._update, self._delete])(key, at)
            else:
                yield from self._create(key, at)

    def _move(self, row: Row, goal: int, at: int) -> Iterator[Record]:
        yield self._event("d", at, before=row, key=row["id"])
        if self._pick.random() < 0.5:
            yield tombstone({"id": row["id"]}, topic=self._topic, partition=row["id"] % 3)
        self.rows[goal] = {**row, "id": goal}
        yield self._event("c", at, after=self.rows[goal], key=goal)

    def _create(self, key: int, at: int) -> Iterator[Record]:
        self.rows[key] = self._row(key)
        yield self._event("c", at, after=self.rows[key], key=key)

    def _update(self, key: int, at: int) -> Iterator[Record]:
        before, self.rows[key] = self.rows[key], self._row(key)
        yield self._event("u", at, before=before, after=self.rows[key], key=key)

    def _delete(self, key: int, at: int) -> Iterator[Record]:
        yield self._event("d", at, before=self.rows.pop(key), key=key)

    def _event(self, op: str, at: int, *, before: Row | None = None, after: Row | None = None, key: int) -> Record:
        self._place += 1
        if before and self._images != WHOLE:
            before = {**dict.fromkeys(before), "id": key, "name": "", "amount": 0} if op == "d" and self._images == KEYS else None
        if op == "d" and before is None:
            before = {"id": key}
        record = self._change(op, self._place, at, before=before, after=after, key={"id": key}, partition=key % 3)
        source: dict[str, Any] = record["value"]["source"]
        if "txId" in source and source["connector"] == "postgresql":
            source["txId"] = at
        return record

    def _row(self, key: int) -> Row:
        name = self._pick.choice([None, "", "plain", "naïve ☃", 'a "quoted" \\ one'])
        return {"id": key, "name": name, "amount": self._pick.randrange(4), "share": self._pick.random(), "open": self._pick.random() < 0.5}
