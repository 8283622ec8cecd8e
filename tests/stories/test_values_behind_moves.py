"""A large value that key changes left out is there in the end, whatever the order of the files, through any number of moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete
from tests.conftest import Apply
from tests.support.events import Record, postgresql, write_records
from tests.support.stories import PLACEHOLDER
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

TOPIC = "pg.public.notes"
PARTITIONS = 3
ORDERS = 1_000
"""More than there are orders of files: each has places in the log of its own."""


@dataclass(frozen=True)
class Event:
    """One event of a story; of a key change the delete and the create have one place."""

    op: str
    place: int
    id: int
    v: str = ""
    note: str = ""


def put(op: str, place: int, key: int, v: str, note: str = PLACEHOLDER) -> Event:
    return Event(op, place, key, v, note)


def gone(place: int, key: int) -> Event:
    return Event("d", place, key)


def moved(place: int, old: int, new: int, v: str = "v") -> list[Event]:
    """The row takes another key, and its note, which did not change, is left out."""
    return [gone(place, old), put("c", place, new, v)]


FIRST, SECOND, THIRD = moved(20, 1, 2), moved(30, 2, 3), moved(40, 3, 4)
STORIES: dict[str, Sequence[Sequence[Event]]] = {
    "two moves": [[put("c", 10, 1, "v", "X")], FIRST, SECOND],
    "three moves": [[put("c", 10, 1, "v", "X")], FIRST, SECOND, THIRD],
    "an update between two moves": [[put("c", 10, 1, "v", "X")], FIRST, [put("u", 25, 2, "v", "X2")], SECOND],
    "an update before the first": [[put("c", 10, 1, "v", "X")], [put("u", 15, 1, "v", "X1")], FIRST, SECOND],
    "another row takes the old key": [
        [put("c", 10, 1, "v", "X")],
        FIRST,
        [put("c", 22, 1, "w", "Y")],
        [put("u", 35, 1, "w", "Y2")],
        SECOND,
    ],
    "the old key was another row's": [[put("c", 5, 1, "w", "W")], [gone(7, 1)], [put("c", 10, 1, "v", "X")], FIRST],
    "two rows leave one key": [[put("c", 10, 1, "v", "X")], FIRST, [put("c", 22, 1, "w", "Y")], moved(30, 1, 3, "w")],
    "there and back": [[put("c", 10, 1, "v", "X")], FIRST, moved(30, 2, 1), [put("u", 40, 1, "v2")]],
    "gone in the end": [[put("c", 10, 1, "v", "X")], FIRST, SECOND, [gone(40, 3)]],
    "two rows change places": [
        [put("c", 10, 1, "v", "X"), put("c", 11, 2, "w", "Y")],
        moved(20, 1, 9),
        moved(30, 2, 1, "w"),
        moved(40, 9, 2),
    ],
    "an update that leaves it out too": [[put("c", 10, 1, "v", "X")], FIRST, [put("u", 25, 2, "v2")], moved(30, 2, 3, "v2")],
    "the halves of a move apart": [[put("c", 10, 1, "v", "X")], FIRST[:1], FIRST[1:], SECOND],
    "the halves apart, and another row": [[put("c", 10, 1, "v", "X")], FIRST[:1], FIRST[1:], [put("c", 22, 1, "w", "Y")]],
}


@dataclass(frozen=True)
class History:
    """A story whose files come in one order."""

    number: int
    name: str
    files: Sequence[Sequence[Event]]

    def records(self) -> list[list[Record]]:
        return [[self._record(event) for event in file] for file in self.files]

    def _record(self, event: Event) -> Record:
        key = {"db": self.number, "id": event.id}
        image = {**key, "v": event.v, "note": event.note}
        place = event.place * ORDERS + self.number
        images: dict[str, Any] = {"before": image} if event.op == "d" else {"after": image}
        made = postgresql(event.op, commit=place - 1, change=place, key=key, topic=TOPIC, partition=event.id % PARTITIONS, **images)
        return {**made, "value": {**made["value"], "source": {**made["value"]["source"], "txId": place}}}

    def rows(self) -> tuple[dict[int, Event], dict[int, Event]]:
        """Return the rows at the end, and the last deleted row of each other key."""
        live: dict[int, Event] = {}
        dead: dict[int, Event] = {}
        note = ""
        for event in sorted(itertools.chain(*self.files), key=lambda event: (event.place, event.op == "c")):
            if event.op == "d":
                dead[event.id] = live.pop(event.id)
                note = dead[event.id].note
            else:
                note = live[event.id].note if event.id in live else note
                note = note if event.note == PLACEHOLDER else event.note
                live[event.id] = Event(event.op, event.place, event.id, event.v, note)
        return live, {key: row for key, row in dead.items() if key not in live}


def histories(names: Iterable[str]) -> list[History]:
    """Return a history for each order of the files of each story."""
    orders = ((name, order) for name in names for order in itertools.permutations(STORIES[name]))
    return [History(number, name, order) for number, (name, order) in enumerate(orders)]


def grouped(names: Iterable[str]) -> list[History]:
    """Return a history for each way to divide a story's changes between two files, either of which may come first."""
    ways = [(name, way) for name in names for way in itertools.product((0, 1), repeat=len(STORIES[name]))]

    def files(name: str, way: Sequence[int]) -> list[list[Event]]:
        by_file: list[list[Event]] = [[], []]
        for part, file in zip(STORIES[name], way, strict=True):
            by_file[file] += part
        return by_file

    return [History(number, name, files(name, way)) for number, (name, way) in enumerate(ways)]


def archived(folder: Path, told: Iterable[History], *, again: bool) -> None:
    """Archive all histories side by side: the n-th file of each in one, and all once more backwards where asked."""
    files = [
        [record for file in slot for record in file] for slot in itertools.zip_longest(*(each.records() for each in told), fillvalue=[])
    ]
    offsets = dict.fromkeys(range(PARTITIONS), 0)
    for record in sorted(itertools.chain(*files), key=lambda record: (record["value"]["source"]["lsn"], record["value"]["op"] == "c")):
        record["offset"] = offsets[record["partition"]]
        offsets[record["partition"]] += 1
    for place, file in enumerate([*files, *(reversed(files) if again else [])]):
        write_records(folder / f"{place:03d}.jsonl", file)


def table(spark: SparkSession, lake: Path, *, history: bool = False) -> dict[int, list[tuple[Any, ...]]]:
    """Return the rows by the number of their history."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in read_rows(spark, str(lake), TOPIC, history=history).rows:
        deleted = (row["__cdc_deleted"],) if history else ()
        found.setdefault(row["db"], []).append((row["id"], row["v"], row["note"], *deleted))
    return {number: sorted(rows) for number, rows in found.items()}


def wrong(told: Iterable[History], found: dict[int, list[tuple[Any, ...]]], expected: dict[int, list[tuple[Any, ...]]]) -> list[Any]:
    """Return what differs, with the story and the order of its files."""
    return [
        (each.name, each.files, found.get(each.number, []), expected[each.number])
        for each in told
        if found.get(each.number, []) != expected[each.number]
    ]


FEW = ("an update between two moves", "the halves apart, and another row")


@pytest.mark.parametrize(
    ("told", "again"),
    [
        pytest.param(histories(FEW), False, id="few"),
        pytest.param(histories(STORIES), True, id="all, and again", marks=pytest.mark.deep),
        pytest.param(grouped(STORIES), False, id="all, in two files", marks=pytest.mark.deep),
    ],
)
def test_every_order_of_the_files_gives_every_row_its_value(
    told: list[History], again: bool, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    archived(tmp_path / "archive", told, again=again)
    report = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)})

    expected = {each.number: sorted((key, row.v, row.note) for key, row in each.rows()[0].items()) for each in told}
    assert wrong(told, table(spark, tmp_path / "lake"), expected) == []
    assert report.flows[0].events.rejected == 0


@pytest.mark.parametrize(
    "told",
    [
        # The delete of a first move comes with all of a second one: the row has moved on when its value is found.
        pytest.param(grouped(["the halves of a move apart"])[5:6], id="one of a row that moved on"),
        pytest.param(histories(STORIES), id="all", marks=pytest.mark.deep),
        pytest.param(grouped(STORIES), id="all, in two files", marks=pytest.mark.deep),
    ],
)
def test_deleted_rows_that_stay_have_their_values_too(told: list[History], apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archived(tmp_path / "archive", told, again=False)
    flow = CdcFlow(TOPIC, max_microbatch_bytes=1, on_delete=OnDelete.FLAG)
    apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow})

    def of(history: History) -> list[tuple[Any, ...]]:
        live, dead = history.rows()
        kept = [(key, row.v, row.note, is_dead) for rows, is_dead in ((live, False), (dead, True)) for key, row in rows.items()]
        return sorted(kept)

    assert wrong(told, table(spark, tmp_path / "lake", history=True), {each.number: of(each) for each in told}) == []
