"""The events of a change log as the native engine reads them, and those that it leaves to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from airflow_cdc.model.columns import OFFSET, OP, TRANSACTION, UNAVAILABLE
from airflow_cdc.pipeline.apply.native.all_events import NativeEvents, read_all_events
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from tests.support.events import Record, lsn, numbered, sqlserver, tombstone
from tests.support.natively import bytes_of, decoder_of
from tests.support.stories import PLACEHOLDER

ANN, BEN = {"id": 1, "name": "ann"}, {"id": 2, "name": "ben"}
OUT = {"id": 1, "name": PLACEHOLDER}


def read(root: Path, records: Sequence[Record]) -> NativeEvents:
    files = {"events.jsonl": list(records)}
    (root / "events.jsonl").write_bytes(bytes_of("events.jsonl", files["events.jsonl"]))
    return read_all_events(decoder_of(files), str(root))


def test_each_event_is_a_row_and_tombstones_are_none(tmp_path: Path) -> None:
    records = [
        sqlserver("c", commit=1, after=ANN),
        sqlserver("u", commit=2, after=OUT),
        sqlserver("c", commit=2, change=1, after=BEN),
        sqlserver("d", commit=3, before=ANN),
        tombstone({"id": 1}),
    ]
    found = read(tmp_path, numbered(records))
    rows = sorted(found.rows.to_pylist(), key=lambda row: row[OFFSET])
    assert [(row[OP], row["id"], row["name"], row[UNAVAILABLE], row[TRANSACTION]) for row in rows] == [
        ("c", 1, "ann", None, lsn(1)),
        ("u", 1, None, ["name"], lsn(2)),
        ("c", 2, "ben", None, lsn(2)),
        ("d", 1, None, None, lsn(3)),
    ]
    staged = found.staged
    assert (staged.events, staged.keys, staged.redelivered, staged.conflicts, staged.has_deletes) == (4, 4, 0, 0, True)
    assert (staged.reach.offset_from, staged.reach.offset_through) == ({"0": 0}, {"0": 3})
    assert (staged.last, staged.reach.streamed_through, staged.falls) == (staged.reach.streamed_through, staged.last, False)


def test_a_key_s_events_in_two_partitions_reach_through_each(tmp_path: Path) -> None:
    records = [sqlserver("c", commit=1, after=ANN), {**sqlserver("u", commit=2, after=ANN), "partition": 1}]
    staged = read(tmp_path, numbered(records)).staged
    assert (set(staged.last), staged.last["0"] < staged.last["1"]) == ({"0", "1"}, True)
    assert staged.events == 2


IN_DISORDER = [{**sqlserver("u", commit=3, after=ANN), "offset": 0}, {**sqlserver("u", commit=2, after=ANN), "offset": 1}]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (numbered([sqlserver("c", commit=1, after=ANN)] * 2), "an event comes twice"),
        (IN_DISORDER, "an event was archived before one that it follows"),
        (numbered([sqlserver("u", commit=2, before=ANN, after=OUT)]), "a value that an event leaves out, with an image before"),
        (
            numbered([sqlserver("u", commit=2, before=ANN, after=OUT), sqlserver("u", commit=3, after=OUT)]),
            "a value that an event leaves out, with an image before",
        ),
        (numbered([sqlserver("c", commit=1, after={"id": None, "name": "x"}, key={"id": None})]), "a record without key"),
    ],
    ids=["twice", "in disorder", "left out", "one of two left out with an image before", "no key"],
)
def test_what_has_to_be_put_in_order_or_completed_is_left_to_spark(records: list[Record], reason: str, tmp_path: Path) -> None:
    with pytest.raises(HandedOver, match=reason):
        read(tmp_path, records)
