"""Which missing offsets leave it open whether the source's log went back."""

from __future__ import annotations

from typing import Any

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets
from airflow_cdc.model.columns import ORDINAL
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.pipeline.locate.epoch_begins import open_gaps

ARCHIVED = ArchivedOffsets().with_files(
    [FileOffsets(f"{lane}-{first}", lane, first, last, ((first, last),)) for lane, first, last in ((0, 0, 9), (1, 0, 3), (1, 6, 9))]
)


def gaps(places: dict[str, int | None]) -> list[tuple[int, int, int]]:
    firsts: dict[str, Any] = {lane: {ORDINAL: {"offset": offset}} for lane, offset in places.items()}
    return [(gap.partition, gap.first, gap.last) for gap in open_gaps(firsts, ARCHIVED, "t")]


def test_what_is_missing_below_an_event_may_hold_its_first_delivery() -> None:
    assert gaps({"1": 8}) == [(1, 4, 5)]
    assert gaps({"1": 2}) == []


def test_one_partition_without_a_gap_proves_it_for_all() -> None:
    assert gaps({"0": 8, "1": 8}) == []


def test_where_no_offset_is_known_none_is_missing() -> None:
    assert gaps({UNKNOWN_PARTITION: None}) == []
    assert gaps({"1": None}) == []
