"""Changes of keys all over a table, some of which hand a key to another row; written as :mod:`benchmarks.small_events` writes records."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.small_events import TOPIC, record_line, row_text


@dataclass(frozen=True)
class Change:
    """One row's change; those of one ``transaction`` commit together."""

    op: str
    key: int
    transaction: int


def spread(count: int, keys: int, *, first_transaction: int, seed: int, deletes: float = 0.05) -> Iterator[Change]:
    """Yield updates and deletes of keys all over the table, each a transaction of its own."""
    dice = random.Random(seed)
    for place in range(count):
        yield Change("d" if dice.random() < deletes else "u", dice.randrange(keys), first_transaction + place)


def with_takeovers(changes: Iterable[Change], share: float, *, seed: int) -> Iterator[Change]:
    """Yield the changes, but let a share of them hand a key to another row: create and delete in one transaction."""
    dice = random.Random(seed)
    for change in changes:
        if dice.random() < share:
            yield Change("c", change.key, change.transaction)
            yield Change("d", change.key, change.transaction)
        else:
            yield change


def write_events(path: Path, changes: Iterable[Change], *, first: int, seed: int) -> None:
    """Write one file of records whose positions and offsets count from ``first``."""
    dice = random.Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for place, change in enumerate(changes, start=first):
            # A delete throws the dice too: the others stay as they are when the share of deletes changes.
            row = _row(change.key, place, dice)
            after = "null" if change.op == "d" else row
            file.write(record_line(TOPIC, change.op, change.key, place, after, transaction=change.transaction))


def _row(key: int, place: int, dice: random.Random) -> str:
    whole, cents = divmod(dice.randrange(10**6), 100)
    return row_text(key, place, whole=whole, cents=cents, visits=dice.randrange(1000), note=dice.getrandbits(128))
