"""Which missing offsets a flow waits for, and with which files it decides."""

from __future__ import annotations

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets, OffsetGap
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.run.awaited_offsets import PATIENCE_SECONDS, AwaitedOffsets
from tests.support.surveys import ARCHIVE, archived

TOPIC = "t"


def offsets(file: str, first: int, last: int, lane: int = 0) -> FileOffsets:
    return FileOffsets(file, lane, first, last, ((first, last),))


def of(*paths: str) -> Microbatch:
    return Microbatch(TOPIC, 1, ARCHIVE, tuple(archived(path) for path in paths), PlanPosition(1), ())


GAP = OffsetGap(TOPIC, 0, 4, 9, "first", "copies")
HERE = offsets("copies", 10, 12)


def waiting(*others: FileOffsets, ages: dict[str, int | None]) -> AwaitedOffsets:
    return AwaitedOffsets([HERE, *others], lambda: ages)


def test_what_is_missing_below_an_offset_begins_at_the_partition_s_first_one() -> None:
    known = ArchivedOffsets().with_files(
        [offsets("first", 2, 3), offsets("copies", 10, 12), offsets("later", 20, 21), offsets("other", 5, 6, 1)]
    )
    assert [str(gap) for gap in known.missing_below(TOPIC, 0, 11)] == [
        "topic t, partition 0: offsets 0–1 are missing, before first",
        "topic t, partition 0: offsets 4–9 are missing, between first and copies",
    ]
    assert known.missing_below(TOPIC, 7, 11) == ()
    assert ArchivedOffsets().with_files([offsets("first", 0, 30)]).missing_below(TOPIC, 0, 11) == ()


def test_a_pending_file_with_the_missing_offsets_is_planned_together_with_the_file_that_it_decides_about() -> None:
    awaited = waiting(offsets("late", 4, 9), offsets("above", 13, 14), ages={"copies": 0, "new": PATIENCE_SECONDS})
    assert awaited.may_come([GAP], of("copies"))
    awaited.wait([GAP], of("copies"))
    assert awaited.left_out(["copies", "late", "above"]) == {"above"}
    assert awaited.gaps == ()


def test_without_such_a_file_the_flow_waits_for_a_day_by_the_archive_s_own_times() -> None:
    awaited = waiting(ages={"copies": 1000, "new": 999 + PATIENCE_SECONDS})
    assert awaited.may_come([GAP], of("copies"))
    awaited.wait([GAP], of("copies"))
    assert (awaited.gaps, awaited.left_out(["copies"])) == ((GAP,), frozenset())


def test_a_gap_that_stays_open_holds_nothing_for_ever() -> None:
    assert not waiting(ages={"copies": 1000, "new": 1000 + PATIENCE_SECONDS}).may_come([GAP], of("copies"))
    assert not waiting(ages={"copies": None, "new": 1000}).may_come([GAP], of("copies"))
    assert not waiting(offsets("late", 4, 9, lane=1), ages={}).may_come([GAP], of("copies"))
