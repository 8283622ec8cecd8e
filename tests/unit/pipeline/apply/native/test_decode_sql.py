"""Lanes and epochs of natively decoded events: in later lives of a topic, and behind where a log went back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_cdc.model.columns import OFFSET, PARTITION, POSITION
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES, LifeSpan, lane_of
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.pipeline.apply.native.fold import fold_natively
from tests.support.events import Record, sqlserver
from tests.support.natively import bytes_of, decoder_of


def events(first: int, *, partition: int) -> list[Record]:
    """Return the creates of three keys of a partition, whose offsets and positions rise from a number."""
    return [
        sqlserver(
            "c",
            commit=number,
            change=number,
            key={"id": 10 * partition + number},
            after={"id": 10 * partition + number, "name": "n"},
            offset=number,
            partition=partition,
        )
        for number in range(first, first + 3)
    ]


def test_a_record_s_lane_and_epoch_are_those_of_its_file_and_offset(tmp_path: Path) -> None:
    files = {"old.jsonl": [*events(1, partition=0), *events(4, partition=1)], "new.jsonl": events(7, partition=0)}
    for name, records in files.items():
        (tmp_path / name).write_bytes(bytes_of(name, records))
    later = lane_of(0, 2)
    decoder = replace(
        decoder_of(files),
        lives={"new.jsonl": (LifeSpan(0, 1, 2, 7, 9),), "old.jsonl": (LifeSpan(1, 1, 0, 4, 6),)},
        epochs=Epochs({"0": ((0, 0),), "1": ((5, 1),), str(later): ((8, 2), (9, 3))}),
    )
    rows = fold_natively(decoder, str(tmp_path)).rows.sort_by(OFFSET).to_pylist()
    assert later == 2 * LANES
    assert [row[PARTITION] for row in rows] == [0, 0, 0, 1, 1, 1, later, later, later]
    epochs = [int(row[POSITION]["commit"]) // EPOCH for row in rows]
    assert epochs == [0, 0, 0, 0, 1, 1, 0, 2, 3]
    # The commit itself stays what it was.
    assert len({int(row[POSITION]["commit"]) % EPOCH for row in rows}) == 9
