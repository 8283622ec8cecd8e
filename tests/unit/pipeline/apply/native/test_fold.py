"""What a native fold says of a microbatch: the reads of snapshots, and what it leaves to Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.apply.native.fold import NativeChanges, fold_natively, folding
from airflow_cdc.pipeline.apply.native.fold_sql import CHANGES
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.evidence.snapshot_reads import LaneBeside, LaneReads
from tests.support.events import Record, sqlserver
from tests.support.natively import bytes_of, changes_of, decoder_of

AT = 7
"""Number of the commit at which the snapshot reads."""
FIRST_LSN = 0x27 << 48
"""What the first parts of the support's LSNs count for."""


def folded(root: Path, records: Sequence[Record]) -> NativeChanges:
    files = {"events.jsonl": list(records)}
    (root / "events.jsonl").write_bytes(bytes_of("events.jsonl", files["events.jsonl"]))
    return fold_natively(decoder_of(files), str(root))


def event(op: str, number: int, *, commit: int, offset: int, partition: int = 0, name: str = "n", **source: Any) -> Record:
    image = {"id": number, "name": name}
    images: dict[str, Any] = {"before": image} if op == "d" else {"after": image}
    made = sqlserver(op, commit=commit, **images, offset=offset, partition=partition)
    made["value"]["source"].update(source)
    return made


def position(commit: int) -> Position:
    """Return the position of a change."""
    return Position(FIRST_LSN + commit, FIRST_LSN + commit, 1)


READ = Position(FIRST_LSN + AT)


@pytest.mark.parametrize(
    ("markers", "has_first", "has_last", "ends_marked"),
    [
        (["true", "true", "true"], False, False, False),
        (["first", "true", "last"], True, True, True),
        (["first_in_data_collection", "true", "last_in_data_collection"], True, True, True),
        (["last", "true", "true"], False, True, False),
        (["true", "first", "true"], True, False, False),
    ],
)
def test_the_markers_of_a_snapshot_s_reads_are_found(
    markers: list[str], *, has_first: bool, has_last: bool, ends_marked: bool, tmp_path: Path
) -> None:
    reads = [event("r", 10 + place, commit=AT, offset=place, snapshot=marker) for place, marker in enumerate(markers)]
    found = folded(tmp_path, reads).reads.by_lane()
    assert [*found] == [READ]
    assert found[READ] == {"0": LaneReads(0, 2, 3, ends_marked=ends_marked, has_last=has_last, is_initial=False, has_first=has_first)}


def test_incremental_reads_are_of_no_full_snapshot(tmp_path: Path) -> None:
    reads = [event("r", number, commit=AT, offset=number, snapshot="incremental") for number in range(3)]
    assert folded(tmp_path, reads).reads.by_lane() == {}


def test_what_stands_beside_the_reads_is_found_in_each_lane(tmp_path: Path) -> None:
    records = [
        event("c", 1, commit=4, offset=0),
        event("c", 2, commit=5, offset=1),
        event("r", 3, commit=AT, offset=2),
        event("r", 4, commit=AT, offset=3),
        event("u", 5, commit=8, offset=4),
        event("u", 6, commit=9, offset=5),
        event("r", 7, commit=AT, offset=0, partition=1),
        event("u", 8, commit=AT, offset=1, partition=1),
        event("u", 9, commit=3, offset=2, partition=2),
    ]
    reads = folded(tmp_path, records).reads
    assert {lane: (each.begin, each.end, each.count) for lane, each in reads.by_lane()[READ].items()} == {
        "0": (2, 3, 2),
        "1": (0, 0, 1),
    }
    assert reads.beside([READ], reads.by_lane())[READ] == {
        "0": LaneBeside(position(9), position(5), behind=4, names_gtids=True),
        # A change of the snapshot's own commit is not behind it.
        "1": LaneBeside(position(AT), None, behind=None, names_gtids=True),
        "2": LaneBeside(position(3), None, behind=None, names_gtids=True),
    }


def test_reads_of_two_snapshots_are_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(HandedOver, match="reads of several snapshots"):
        folded(tmp_path, [event("r", 1, commit=AT, offset=0), event("r", 2, commit=AT + 1, offset=1)])
    with pytest.raises(HandedOver, match="reads of several snapshots"):
        folded(tmp_path, [event("r", 1, commit=AT, offset=0), event("r", 1, commit=AT + 1, offset=1)])


@pytest.mark.parametrize("part", ["commit_lsn", "change_lsn"])
def test_a_change_without_a_part_of_its_position_is_left_to_spark(part: str, tmp_path: Path) -> None:
    with pytest.raises(HandedOver, match="a position of another form"):
        folded(tmp_path, [event("u", 1, commit=1, offset=0), event("u", 2, commit=2, offset=1, **{part: None})])


LIVES = {1: "c", 2: "cu", 3: "cd", 4: "cdc", 5: "u", 6: "ud", 7: "d", 8: "dc", 9: "r", 10: "uu"}
"""Operations by key, each in a transaction of its own."""


def test_what_a_key_s_events_do_together_is_known(tmp_path: Path) -> None:
    records: list[Record] = []
    for number, operations in LIVES.items():
        records += [event(op, number, commit=1 + len(records) + place, offset=len(records) + place) for place, op in enumerate(operations)]
    (tmp_path / "events.jsonl").write_bytes(bytes_of("events.jsonl", records))
    with folding(decoder_of({"events.jsonl": records}), str(tmp_path)) as fold:
        found = fold.read(f"SELECT * FROM {CHANGES} ORDER BY first_offset").to_pylist()
        staged = fold.staged
    assert [row["writes"] for row in found] == [any(op in "cu" for op in each) for each in LIVES.values()]
    assert [row["deletes"] for row in found] == ["d" in each for each in LIVES.values()]
    assert [row["events"] for row in found] == [len(each) for each in LIVES.values()]
    # Only a key whose first event changes a row had one before.
    assert [row["expects"] for row in found] == [each[0] in "ud" for each in LIVES.values()]
    assert (staged.to_delete, staged.to_insert) == (len(["ud", "d"]), len(["c", "cu", "cdc", "r"]))
    assert (staged.events, staged.keys, staged.redelivered, staged.conflicts, staged.has_deletes) == (17, 10, 0, 0, True)


def test_a_read_that_is_delivered_again_stands_where_it_came_first(tmp_path: Path) -> None:
    """An incremental snapshot reads a row twice, and the connector sends its first read again."""
    read = {"snapshot": "incremental"}
    records = [
        event("r", 1, commit=5, offset=0, name="old", **read),
        event("r", 1, commit=9, offset=1, name="new", **read),
        event("r", 1, commit=5, offset=2, name="old", **read),
        event("c", 2, commit=10, offset=3),
    ]
    found = folded(tmp_path, records)
    assert changes_of(found.rows) == [(1, "new", "r"), (2, "n", "c")]
    assert found.staged.redelivered == 1
