"""Generate PostgreSQL change events as bare JSON, fast and the same each time."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOPIC = "bench.public.accounts"


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
            file.write(json.dumps(_record(change, place, dice)) + "\n")


def _record(change: Change, place: int, dice: random.Random) -> dict[str, Any]:
    row = {
        "id": change.key,
        "amount": f"{dice.randrange(10**6) / 100:.2f}",
        "name": f"name {place}",
        "city": f"city {change.key % 500}",
        "visits": dice.randrange(1000),
        "note": f"{dice.getrandbits(128):032x}",
    }
    is_read = change.op == "r"
    source = {
        "version": "3.5.0.Final",
        "connector": "postgresql",
        "ts_ms": 1_700_000_000_000 + place,
        "snapshot": str(is_read).lower(),
        "db": "bench",
        "sequence": json.dumps([None if is_read else str(change.transaction), str(place)]),
        "schema": "public",
        "table": "accounts",
        "txId": change.transaction,
        "lsn": place,
    }
    images = {"before": {"id": change.key}, "after": None} if change.op == "d" else {"before": None, "after": row}
    value = {**images, "source": source, "op": change.op, "ts_ms": source["ts_ms"]}
    return {"topic": TOPIC, "partition": 0, "offset": place, "key": {"id": change.key}, "value": value}
