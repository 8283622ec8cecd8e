"""What keeping the last event per key gets wrong: each hazard is a table of its own, fed step by step (issue 4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.inspect_lake import read_rows
from tests.conftest import Apply
from tests.events import Record, postgresql, write_records

UNTOLD = "__debezium_unavailable_value"
Row = dict[str, Any]


def row(key: int, value: str | None, **more: Any) -> Row:
    return {"id": key, "v": value, **more}


def event(op: str, change: int, image: Row, *, commit: int | None = None, offset: int, partition: int = 0, **source: Any) -> Record:
    """Return one PostgreSQL event; all of one ``commit`` are one transaction, a delete's image holds the key and fillers."""
    images = {"before": image} if op == "d" else {"after": image}
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


HAZARDS = {
    "a create and, in the next batch, the delete of the row it took the key from": Hazard(
        [
            [read(10, row(2, "old"), offset=0)],
            [event("c", 21, row(2, "new"), commit=20, offset=1)],
            [event("d", 22, filler(2), commit=20, offset=2)],
        ],
        [row(2, "new")],
    ),
    "the same, the later file first": Hazard(
        [
            [read(10, row(2, "old"), offset=0)],
            [event("d", 22, filler(2), commit=20, offset=2)],
            [event("c", 21, row(2, "new"), commit=20, offset=1)],
        ],
        [row(2, "new")],
    ),
    "born in one batch and gone in the next": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 21, row(5, "brief"), commit=20, offset=1)],
            [event("d", 22, filler(5), commit=20, offset=2)],
        ],
        [row(1, "other")],
    ),
    "gone in one batch, born in a later one that was archived before": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("d", 22, filler(5), commit=20, offset=2)],
            [event("c", 21, row(5, "brief"), commit=20, offset=1)],
        ],
        [row(1, "other")],
    ),
    "a second row under a key for the length of a transaction": Hazard(
        [
            [read(10, row(1, "lives"), offset=0)],
            [event("c", 21, row(1, "brief"), commit=20, offset=1)],
            [event("d", 22, row(1, "brief"), commit=20, offset=2)],
        ],
        [row(1, "lives")],
    ),
    "a row that took its key from one told later": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 21, row(5, "taker"), commit=20, offset=2), event("d", 22, filler(5), commit=20, offset=3)],
            [event("c", 15, row(5, "first"), commit=14, offset=1)],
        ],
        [row(1, "other"), row(5, "taker")],
    ),
    "the same, told in two parts, the first of which it did not take it from": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 31, row(5, "taker"), commit=30, offset=4), event("d", 32, filler(5), commit=30, offset=5)],
            [event("c", 15, row(5, "first"), commit=14, offset=1), event("d", 17, filler(5), commit=16, offset=2)],
            [event("c", 20, row(5, "second"), commit=19, offset=3)],
        ],
        [row(1, "other"), row(5, "taker")],
    ),
    "born and gone, and the file of its birth once more": Hazard(
        [
            [read(10, row(1, "lives"), offset=0)],
            [
                event("c", 21, row(1, "brief"), commit=20, offset=1),
                event("d", 22, row(1, "brief"), commit=20, offset=2),
                event("c", 23, row(5, "brief"), commit=20, offset=3),
                event("d", 24, row(5, "brief"), commit=20, offset=4),
            ],
            [event("c", 21, row(1, "brief"), commit=20, offset=1), event("c", 23, row(5, "brief"), commit=20, offset=3)],
        ],
        [row(1, "lives")],
    ),
    "a row told later than the one that was born and gone beside it": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 21, row(5, "brief"), commit=20, offset=2), event("d", 22, row(5, "brief"), commit=20, offset=3)],
            [event("c", 15, row(5, "lives"), commit=14, offset=1)],
        ],
        [row(1, "other"), row(5, "lives")],
    ),
    "a value that a key change left out, told by the table": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [event("d", 31, filler(1), commit=30, offset=1), event("c", 31, row(7, UNTOLD), commit=30, offset=2)],
        ],
        [row(7, "long")],
    ),
    "a value that a key change left out, told before it in the batch": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [
                event("u", 30, row(1, "longer"), commit=29, offset=1),
                event("d", 32, filler(1), commit=31, offset=2),
                event("c", 32, row(7, UNTOLD), commit=31, offset=3),
            ],
        ],
        [row(7, "longer")],
    ),
    "a value that two key changes left out": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [
                event("d", 31, filler(1), commit=30, offset=1),
                event("c", 31, row(7, UNTOLD), commit=30, offset=2),
                event("d", 32, filler(7), commit=30, offset=3),
                event("c", 32, row(8, UNTOLD), commit=30, offset=4),
            ],
        ],
        [row(8, "long")],
    ),
    "two rows that swap keys and leave their values out": Hazard(
        [
            [read(10, row(1, "one"), offset=0), read(10, row(2, "two"), offset=1)],
            [
                event("d", 31, filler(1), commit=30, offset=2),
                event("c", 31, row(2, UNTOLD), commit=30, offset=3),
                event("d", 32, filler(2), commit=30, offset=4),
                event("c", 32, row(1, UNTOLD), commit=30, offset=5),
            ],
        ],
        [row(1, "two"), row(2, "one")],
    ),
    "a value that a key change left out, whose delete came a batch before": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [event("u", 30, row(1, "longer"), commit=29, offset=1), event("d", 32, filler(1), commit=31, offset=2)],
            [event("c", 32, row(7, UNTOLD), commit=31, offset=3)],
        ],
        [row(7, "longer")],
    ),
    "a value that a key change left out, whose delete comes a batch later": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [event("c", 32, row(7, UNTOLD), commit=31, offset=0, partition=1)],
            [event("u", 30, row(1, "longer"), commit=29, offset=1), event("d", 32, filler(1), commit=31, offset=2)],
        ],
        [row(7, "longer")],
        unresolved=1,
    ),
    "a value that is nowhere to be had": Hazard(
        [[read(10, row(1, "long"), offset=0)], [event("c", 31, row(9, UNTOLD), commit=30, offset=1)]],
        [row(1, "long"), row(9, None)],
        unresolved=1,
    ),
    "late events fill what the newest left out, the newer of them last or not": Hazard(
        [
            [read(10, row(1, "ten", price=1), offset=0)],
            [event("u", 50, row(1, UNTOLD, price=5), commit=49, offset=4)],
            [event("u", 40, row(1, "forty", price=4), commit=39, offset=3)],
            [event("u", 30, row(1, "thirty", price=3), commit=29, offset=2)],
        ],
        [row(1, "forty", price=5)],
    ),
    "a value told by an earlier batch between the two events of a later one": Hazard(
        [
            [event("u", 20, row(1, "between", price=2), commit=19, offset=1)],
            [read(10, row(1, "first", price=1), offset=0), event("u", 30, row(1, UNTOLD, price=5), commit=29, offset=2)],
        ],
        [row(1, "between", price=5)],
    ),
    "a snapshot read whose position lies above events archived after it": Hazard(
        [
            [
                read(100, row(1, "read"), offset=0),
                read(100, row(2, "read"), offset=1),
                event("u", 60, row(2, "newer"), commit=50, offset=2),
            ],
            [event("u", 61, row(1, "newer"), commit=50, offset=3)],
            [event("r", 58, row(1, "newer still"), commit=57, offset=4, snapshot="incremental")],
        ],
        [row(1, "newer still"), row(2, "newer")],
    ),
    "a second whole snapshot, without the rows that vanished between": Hazard(
        [
            [read(10, row(key, "first"), offset=key, snapshot="last" if key == 3 else "true") for key in (1, 2, 3)],
            [
                event("c", 30, row(9, "gone unseen"), commit=29, offset=4),
                read(50, row(1, "second"), offset=5, snapshot="first"),
                read(50, row(3, "second"), offset=6, snapshot="last"),
                event("c", 56, row(4, "after"), commit=55, offset=7),
            ],
        ],
        [row(1, "second"), row(3, "second"), row(4, "after")],
    ),
    "a second snapshot that was not finished": Hazard(
        [
            [read(10, row(key, "first"), offset=key, snapshot="last" if key == 3 else "true") for key in (1, 2, 3)],
            [read(50, row(1, "second"), offset=5, snapshot="first")],
        ],
        [row(1, "second"), row(2, "first"), row(3, "first")],
    ),
    "a column that an older schema does not have": Hazard(
        [
            [read(10, row(1, "one", x=5), offset=0)],
            [event("u", 40, row(1, "two"), commit=39, offset=1), event("c", 41, row(2, "new", x=7), commit=40, offset=2)],
        ],
        [row(1, "two", x=5), row(2, "new", x=7)],
    ),
}


OF_THE_WHOLE_TABLE = ("snapshot", "column")
"""Hazards that concern a table as a whole have one of their own; all others share one, each with a value of ``db`` to itself."""
SHARED = "pg.hazards.shared"


def topic_of(name: str) -> str:
    return "pg.hazards." + name.replace(" ", "_").replace(",", "") if any(word in name for word in OF_THE_WHOLE_TABLE) else SHARED


def owned(image: Row | None, number: int) -> Row | None:
    return None if image is None else {"db": number, "price": 0, **image}


def in_its_table(record: Record, name: str) -> Record:
    """Return the record as one of the table that the hazard lives in."""
    topic = topic_of(name)
    if topic != SHARED:
        return {**record, "topic": topic}
    number = list(HAZARDS).index(name)
    images = {side: owned(record["value"][side], number) for side in ("before", "after")}
    key = {"db": number, **record["key"]}
    source = record["value"]["source"]
    # One log, so no two events of it stand at one place.
    sequence = [None if part is None else str(1000 * number + int(part)) for part in json.loads(source["sequence"])]
    transaction = source["txId"] and 1000 * number + source["txId"]
    value = {**record["value"], **images, "source": {**source, "sequence": json.dumps(sequence), "txId": transaction}}
    return {**record, "topic": topic, "offset": 100 * number + record["offset"], "key": key, "value": value}


@pytest.fixture(scope="module")
def lake(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Apply all histories side by side, step by step; the lake, and by topic how many values stayed unresolved."""
    folder = tmp_path_factory.mktemp("hazards")
    unresolved: Counter[str] = Counter()
    for step in range(max(len(hazard.steps) for hazard in HAZARDS.values())):
        files: dict[str, list[Record]] = {}
        for name, hazard in HAZARDS.items():
            for record in hazard.steps[step] if step < len(hazard.steps) else ():
                files.setdefault(topic_of(name), []).append(in_its_table(record, name))
        for topic, records in files.items():
            write_records(folder / "archive" / f"{step} {topic}.jsonl", records)
        report = apply(folder / "archive", folder / "lake")
        for flow in report.flows:
            unresolved[flow.flow] += sum(batch.unavailable_unresolved for batch in flow.batches)
    return folder / "lake", unresolved


@pytest.mark.parametrize("name", HAZARDS)
def test_the_table_is_the_source_s(name: str, lake: tuple[Path, dict[str, int]], spark: SparkSession) -> None:
    folder, _ = lake
    rows = read_rows(spark, str(folder), topic_of(name)).rows
    expected = [dict(row) for row in HAZARDS[name].rows]
    if topic_of(name) == SHARED:
        number = list(HAZARDS).index(name)
        rows = [row for row in rows if row["db"] == number]
        expected = [{"db": number, "price": 0, **row} for row in expected]
    assert rows == expected, json.dumps(rows)


def test_what_was_nowhere_to_be_had_is_counted(lake: tuple[Path, dict[str, int]]) -> None:
    assert lake[1][SHARED] == sum(hazard.unresolved for hazard in HAZARDS.values())
