"""Which offsets an archive proves, misses and repeats; nothing is called missing that something else explains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.archive import completeness
from airflow_cdc.model.archive.archived_files import ArchivedFile, classify
from airflow_cdc.model.archive.completeness import (
    MOST_LISTED,
    ArchivedOffsets,
    FileOffsets,
    OffsetGap,
    OffsetOverlap,
    OffsetReport,
    file_offsets,
    files_behind,
    report_offsets,
)
from airflow_cdc.model.archive.survey import OffsetHoles, RecordLayout, Survey, TopicShape, may_skip_offsets
from tests.support.surveys import ARCHIVE, archived

CAPTURES = Path(__file__).parents[3] / "golden" / "captures"


def records(
    file: str, first: int, last: int, *, kind: str = "c", count: int | None = None, topic: str = "t", partition: int = 0
) -> TopicShape:
    """Return whole records whose offsets run from first to last."""
    number = last - first + 1 if count is None else count
    return TopicShape(file, topic, RecordLayout.RECORD, kind, None, partition, None, None, True, number, first, last)


def values(file: str, count: int, kind: str = "c", topic: str = "t") -> TopicShape:
    """Return records of a sink's value file: only the file's name has partition and first offset."""
    return TopicShape(file, topic, RecordLayout.VALUE, kind, None, 0, None, None, False, count, None, None)


def unreadable(file: str, count: int, topic: str = "t") -> TopicShape:
    """Return lines of a record file that are cut off."""
    return TopicShape(file, topic, RecordLayout.RECORD, "malformed", None, None, None, None, False, count, None, None)


def survey(*shapes: TopicShape, holes: Iterable[OffsetHoles] = (), files: Iterable[ArchivedFile] = ()) -> Survey:
    known = {file.path: file for file in files}
    listed = tuple(known.get(path) or archived(path) for path in dict.fromkeys(shape.file for shape in shapes))
    return Survey(ARCHIVE, 1, listed, shapes, tuple(holes))


def seen(*shapes: TopicShape, **more: Any) -> ArchivedOffsets:
    return ArchivedOffsets().with_files(file_offsets(survey(*shapes, **more), "t"))


def gaps(*shapes: TopicShape, **more: Any) -> list[tuple[int, int, str, str]]:
    return [(gap.first, gap.last, gap.after, gap.before) for gap in seen(*shapes, **more).gaps("t")]


# -- whole records -------------------------------------------------------------------------------------------------


def test_files_that_follow_each_other_leave_no_gap_and_one_run() -> None:
    offsets = seen(*(records(f"f{number:02d}", number * 10, number * 10 + 9) for number in range(50)))
    assert offsets.gaps("t") == ()
    assert len(offsets.partitions[0].runs) == 1


def test_a_missing_range_is_named_with_the_files_beside_it() -> None:
    assert gaps(records("a", 0, 99), records("c", 200, 299)) == [(100, 199, "a", "c")]
    (gap,) = seen(records("a", 0, 99), records("c", 200, 299)).gaps("t")
    assert str(gap) == "topic t, partition 0: offsets 100–199 are missing, between a and c"
    assert gap.missing == 100


def test_a_late_file_that_fills_a_gap_takes_it_away_and_one_that_fills_half_leaves_the_other_half() -> None:
    outer = records("a", 0, 99), records("d", 200, 299)
    assert gaps(*outer, records("b", 100, 199)) == []
    assert gaps(*outer, records("b", 120, 149)) == [(100, 119, "a", "b"), (150, 199, "b", "d")]


def test_what_kafka_dropped_before_the_first_archived_offset_is_no_gap_but_is_reported() -> None:
    offsets = seen(records("a", 5000, 5009))
    assert offsets.gaps("t") == ()
    assert offsets.partitions[0].begins == 5000
    assert offsets.with_files(file_offsets(survey(records("z", 10, 4999)), "t")).partitions[0].begins == 10


def test_partitions_do_not_fill_each_others_gaps() -> None:
    offsets = seen(records("a", 0, 9), records("b", 20, 29), records("a", 10, 19, partition=1))
    assert offsets.gaps("t") == (OffsetGap("t", 0, 10, 19, "a", "b"),)


def test_records_of_every_kind_count_also_control_and_other_kinds_in_between() -> None:
    file = [records("a", 0, 8, count=4), records("a", 1, 9, kind="tombstone", count=4), records("a", 3, 5, kind="heartbeat", count=2)]
    assert gaps(*file, records("b", 10, 10, kind="m")) == []
    assert may_skip_offsets(file) == ()


def test_another_topics_records_in_the_same_file_do_not_count() -> None:
    assert gaps(records("a", 0, 9), records("a", 10, 19, topic="u"), records("b", 20, 29)) == [(10, 19, "a", "b")]


def test_a_file_whose_count_does_not_fit_its_offsets_is_looked_into_and_its_hole_is_named() -> None:
    shapes = [records("a", 0, 99, count=90), records("b", 100, 109)]
    assert may_skip_offsets(shapes) == ("a",)
    assert gaps(*shapes, holes=[OffsetHoles("a", "t", 0, ((40, 49),))]) == [(40, 49, "a", "a")]
    assert str(seen(*shapes, holes=[OffsetHoles("a", "t", 0, ((40, 49),))]).gaps("t")[0]).endswith("40–49 are missing, inside a")


def test_a_file_that_repeats_a_record_is_looked_into_too() -> None:
    assert may_skip_offsets([records("a", 0, 9, count=11), records("b", 0, 9), values("c", 3)]) == ("a",)


def test_records_without_tombstones_are_complete_where_the_deletes_account_for_the_holes() -> None:
    shapes = [records("a", 0, 9, count=6), records("a", 3, 7, kind="d", count=2), records("b", 10, 19)]
    holes = [OffsetHoles("a", "t", 0, ((4, 4), (8, 8)))]
    assert gaps(*shapes, holes=holes) == []
    # One hole more than deletes: the largest cannot be a tombstone.
    assert gaps(*shapes, holes=[OffsetHoles("a", "t", 0, ((2, 3), (5, 5), (8, 8)))]) == [(2, 3, "a", "a")]
    # Where the tombstones are there, a hole is a hole.
    with_tombstones = [*shapes, records("a", 1, 6, kind="tombstone", count=1)]
    assert gaps(*with_tombstones, holes=holes) == [(4, 4, "a", "a"), (8, 8, "a", "a")]


def test_a_line_that_cannot_be_read_has_an_offset_all_the_same() -> None:
    assert gaps(records("a", 0, 9), records("b", 11, 19)) == [(10, 10, "a", "b")]
    assert gaps(records("a", 0, 9), unreadable("a", 1), records("b", 11, 19)) == []
    assert gaps(records("a", 0, 9), records("b", 11, 19), unreadable("b", 1)) == []
    assert gaps(records("a", 0, 9), unreadable("a", 1), records("b", 13, 19)) == [(11, 12, "a", "b")]
    # It counts for the first topic of its file, and may be of any.
    assert gaps(records("a", 0, 9), unreadable("a", 1, topic="a-first"), records("b", 11, 19)) == []
    assert seen(records("a", 3, 9), unreadable("a", 2)).partitions[0].begins == 3


def test_holes_that_are_not_listed_are_still_counted() -> None:
    shapes = [records("a", 0, 99, count=60)]
    offsets = seen(*shapes, holes=[OffsetHoles("a", "t", 0, ((40, 49),), unlisted=30)])
    found = report_offsets("t", [], [], before=ArchivedOffsets(), known=offsets)
    assert found.missing == 40


# -- a sink's value files ------------------------------------------------------------------------------------------


def sink(first: int) -> ArchivedFile:
    (file,) = classify([(f"t/partition=0/t+0+{first:010d}.json", 1)]).files
    return file


def test_value_files_that_hold_as_many_records_as_offsets_are_complete() -> None:
    a, b = sink(0), sink(50)
    offsets = seen(values(a.path, 50), values(b.path, 10), files=[a, b])
    assert offsets.gaps("t") == ()
    assert offsets.partitions[0].runs[0].last == 59


def test_deletes_of_a_value_file_account_for_as_many_tombstones_and_not_for_one_more() -> None:
    a, b = sink(0), sink(60)
    assert gaps(values(a.path, 40), values(a.path, 10, "d"), values(b.path, 5), files=[a, b]) == []
    assert gaps(values(a.path, 41), values(a.path, 9, "d"), values(b.path, 5), files=[a, b]) == [(59, 59, a.path, b.path)]


def test_value_files_that_hold_their_tombstones_owe_none() -> None:
    a, b = sink(0), sink(14)
    held = [values(a.path, 5), values(a.path, 5, "d"), values(a.path, 4, "tombstone")]
    assert gaps(*held, values(b.path, 5), files=[a, b]) == []
    b = sink(15)
    assert gaps(*held, values(b.path, 5), files=[a, b]) == [(14, 14, a.path, b.path)]


def test_omitted_tombstones_are_no_overlap_with_the_file_behind() -> None:
    a, b = sink(0), sink(10)
    files = file_offsets(survey(values(a.path, 5), values(a.path, 5, "d"), values(b.path, 5), files=[a, b]), "t")
    assert ArchivedOffsets().overlaps(files) == ()


def test_a_file_without_offsets_proves_nothing_and_is_counted() -> None:
    file = archived("t.jsonl")
    assert file_offsets(survey(values("t.jsonl", 5), files=[file]), "t") == ()
    found = report_offsets(
        "t", [file, sink(0)], [FileOffsets(sink(0).path, 0, 0, 0, ((0, 0),))], before=ArchivedOffsets(), known=ArchivedOffsets()
    )
    assert found.without_offsets == 1


def captured(root: Path) -> Mapping[str, Survey]:
    """Survey a sink's folder of a capture as Spark does; by topic."""
    listing = classify((str(path.relative_to(root)), 1) for path in root.rglob("*.json"))
    shapes: dict[str, list[TopicShape]] = {}
    for file in listing.files:
        kinds = [json.loads(line).get("op", "transaction") for line in (root / file.path).read_text().splitlines()]
        shapes.setdefault(file.topic, []).extend(values(file.path, kinds.count(kind), kind, file.topic) for kind in dict.fromkeys(kinds))
    return {topic: survey(*found, files=listing.files) for topic, found in shapes.items()}


@pytest.mark.parametrize("capture", ["pg_pk", "pg_pk_v19", "sqlserver_synth"])
def test_real_sink_files_are_complete_and_each_file_taken_out_is_missed(capture: str) -> None:
    missed = 0
    for topic, whole in captured(CAPTURES / capture / "s3" / "topics").items():
        offsets = file_offsets(whole, topic)
        assert ArchivedOffsets().with_files(offsets).gaps(topic) == (), topic
        for left, out, right in zip(offsets, offsets[1:], offsets[2:], strict=False):
            (gap,) = ArchivedOffsets().with_files(item for item in offsets if item != out).gaps(topic)
            # The files beside it are named, and no offset but of what was taken out, or of the tombstones at its borders.
            assert (gap.after, gap.before) == (left.file, right.file)
            assert left.last < gap.first <= out.first
            assert gap.last == right.first - 1
            missed += 1
    assert missed > 10


# -- overlaps ------------------------------------------------------------------------------------------------------


def test_what_comes_again_is_reported_by_range_and_file() -> None:
    before = seen(records("a", 0, 99))
    again = file_offsets(survey(records("b", 90, 109), records("c", 105, 107)), "t")
    assert before.overlaps(again) == (OffsetOverlap(0, 90, 99, "b"), OffsetOverlap(0, 105, 107, "c"))
    assert before.with_files(again).gaps("t") == ()


def test_a_file_that_fills_a_gap_is_no_overlap() -> None:
    assert seen(records("a", 0, 9), records("c", 20, 29)).overlaps(file_offsets(survey(records("b", 10, 19)), "t")) == ()


# -- any order -----------------------------------------------------------------------------------------------------


@st.composite
def arrivals(draw: st.DrawFn) -> list[FileOffsets]:
    """Generate files of two partitions that touch, overlap, repeat each other and leave gaps; some with holes and tombstones."""
    found = []
    for number in range(draw(st.integers(1, 8))):
        first = draw(st.integers(0, 40))
        last = first + draw(st.integers(0, 12))
        covered = [(first, last)]
        if last - first >= 2 and draw(st.booleans()):
            hole = draw(st.integers(first + 1, last - 1))
            covered = [(first, hole - 1), (hole + 1, last)]
        covered[-1] = (covered[-1][0], last + draw(st.sampled_from([0, 0, 3])))
        found.append(FileOffsets(f"f{number}", draw(st.integers(0, 1)), first, last, tuple(covered)))
    return found


@given(arrivals(), st.randoms(use_true_random=False))
def test_whatever_the_order_of_arrival_the_offsets_are_the_same(files: list[FileOffsets], random: Any) -> None:
    shuffled = [*files, *files[:2]]
    random.shuffle(shuffled)
    assert ArchivedOffsets().with_files(shuffled) == ArchivedOffsets().with_files(files)
    at_once, one_by_one = ArchivedOffsets().with_files(shuffled), ArchivedOffsets()
    for file in shuffled:
        one_by_one = ArchivedOffsets.from_json(json.loads(json.dumps(one_by_one.with_files([file]).to_json())))
    assert one_by_one == at_once


@given(arrivals())
def test_the_gaps_are_the_offsets_between_the_first_and_the_last_that_no_file_covers(files: list[FileOffsets]) -> None:
    offsets = ArchivedOffsets().with_files(files)
    missing: set[tuple[int, int]] = set()
    for partition in {file.partition for file in files}:
        covered = {
            offset for file in files if file.partition == partition for first, last in file.covered for offset in range(first, last + 1)
        }
        missing |= {(partition, offset) for offset in range(min(covered), max(covered)) if offset not in covered}
    found = offsets.gaps("t")
    assert {(gap.partition, offset) for gap in found for offset in range(gap.first, gap.last + 1)} == missing
    assert sum(gap.missing for gap in found) == len(missing)
    borders = {file.file: file for file in files}
    for gap in found:
        assert any(first == gap.last + 1 for first, _ in borders[gap.before].covered)


@given(arrivals())
def test_offsets_survive_their_json(files: list[FileOffsets]) -> None:
    assert [FileOffsets.from_json(json.loads(json.dumps(file.to_json()))) for file in files] == files
    offsets = ArchivedOffsets().with_files(files)
    found = report_offsets("t", [], files, before=ArchivedOffsets(), known=offsets)
    assert OffsetReport.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_a_checkpoint_stays_small_however_many_holes_there_are_and_none_is_forgotten_in_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completeness, "MOST_RUNS", 10)
    # Every other offset, as Kafka's transaction markers leave them.
    offsets = seen(*(records(f"f{number:03d}", number * 2, number * 2) for number in range(100)))
    assert len(offsets.partitions[0].runs) == 10
    found = report_offsets("t", [], [], before=ArchivedOffsets(), known=offsets)
    assert found.missing == 99
    assert [gap.first for gap in found.gaps] == [2 * number + 1 for number in range(90, 99)]


def test_a_report_lists_the_last_gaps_and_counts_them_all() -> None:
    known = seen(*(records(f"f{number:03d}", number * 2, number * 2) for number in range(100)))
    found = report_offsets("t", [], [], before=ArchivedOffsets(), known=known)
    assert (len(found.gaps), found.missing, found.begins) == (MOST_LISTED, 99, {"0": 0})
    assert found.gaps[-1].last == 197


# -- what waits ----------------------------------------------------------------------------------------------------


def test_files_behind_a_gap_of_their_own_partition_wait_and_no_others() -> None:
    shapes = [
        records("a", 0, 9),
        records("b", 20, 29),
        records("c", 30, 39),
        records("d", 0, 99, partition=1),
        records("e", 5, 25),
    ]
    offsets = file_offsets(survey(*shapes[:4]), "t")
    known = ArchivedOffsets().with_files(offsets)
    assert files_behind(known.gaps("t"), offsets) == {"b", "c"}
    filled = file_offsets(survey(*shapes), "t")
    assert files_behind(ArchivedOffsets().with_files(filled).gaps("t"), filled) == frozenset()
    # A file with the hole inside holds records behind it.
    inside = [replace(offsets[0], last=30, covered=((0, 9), (12, 30)))]
    assert files_behind(ArchivedOffsets().with_files(inside).gaps("t"), inside) == {"a"}
