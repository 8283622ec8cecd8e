"""The rule that picks a flow's next files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.position.epochs import ArchivedEpochs, Epochs, FileEpochs
from airflow_cdc.model.position.lives import LifeSpan
from airflow_cdc.model.state.microbatch import (
    FilePart,
    HeldFile,
    Microbatch,
    PlanPosition,
    SurveyedPart,
    next_microbatch,
    pending_in,
    read_together,
)
from tests.support.surveys import ARCHIVE, shape, survey


def pick(
    surveys: Sequence[Survey],
    planned: PlanPosition = PlanPosition(),  # noqa: B008
    *,
    max_bytes: int = 100,
    held: Collection[HeldFile] = (),
    waiting: Collection[str] = (),
    parts: Mapping[str, SurveyedPart] | None = None,
) -> Microbatch | None:
    """Pick the next microbatch of flow ``t`` from the surveys that the caller would hand over."""
    pending = [item for item in surveys if item.number >= planned.survey or item.number in {file.survey for file in held}]
    return next_microbatch(
        flow="t",
        number=1,
        archive=ARCHIVE,
        surveys=pending,
        planned=planned,
        max_bytes=max_bytes,
        held=held,
        waiting=waiting,
        parts=parts,
    )


def paths(microbatch: Microbatch | None) -> list[str]:
    assert microbatch is not None
    return [file.path for file in microbatch.files]


def test_a_microbatch_takes_whole_files_up_to_the_bytes_it_may_take() -> None:
    surveys = [survey(1, {"a": "t", "b": "t", "c": "t"}, sizes={"a": 40, "b": 60, "c": 1})]
    first = pick(surveys)
    assert paths(first) == ["a", "b"]
    assert first is not None
    assert first.size == 100
    assert first.planned_through == PlanPosition(1, 2)
    # One byte less, and the file that no longer fits waits.
    assert paths(pick(surveys, max_bytes=99)) == ["a"]


def test_a_file_too_large_for_any_microbatch_has_one_of_its_own() -> None:
    surveys = [survey(1, {"a": "t", "huge": "t", "z": "t"}, sizes={"a": 1, "huge": 10**9, "z": 1})]
    assert paths(pick(surveys)) == ["a"]
    assert paths(pick(surveys, PlanPosition(1, 1))) == ["huge"]
    assert paths(pick(surveys, PlanPosition(1, 2))) == ["z"]


def test_a_microbatch_goes_on_in_the_middle_of_a_survey_and_over_its_end() -> None:
    surveys = [survey(1, {"a": "t", "b": "t"}), survey(2, {"c": "u"}), survey(3, {"A": "t", "B": "t"})]
    found = pick(surveys, PlanPosition(1, 1), max_bytes=2)
    assert paths(found) == ["b", "A"]
    assert found is not None
    assert found.planned_through == PlanPosition(3, 1)
    assert paths(pick(surveys, found.planned_through, max_bytes=2)) == ["B"]


def test_a_survey_whose_first_file_does_not_fit_is_begun_and_nothing_of_it_taken() -> None:
    surveys = [survey(1, {"a": "t"}), survey(2, {"b": "t"}, sizes={"b": 100})]
    found = pick(surveys)
    assert found is not None
    assert (paths(found), found.planned_through) == (["a"], PlanPosition(2, 0))
    assert paths(pick(surveys, found.planned_through)) == ["b"]


def test_nothing_pending_is_no_microbatch() -> None:
    surveys = [survey(1, {"a": "t", "b": "u"}), survey(2, {"c": "u"})]
    assert pick([]) is None
    assert pick(surveys, PlanPosition(1, 1)) is None
    assert pick(surveys, PlanPosition(2, 0)) is None


def test_a_microbatch_carries_the_shapes_of_its_own_files_and_topic_only() -> None:
    found = pick([survey(1, {"a": "tu", "b": "t", "c": "t"})], PlanPosition(1, 1), max_bytes=1)
    assert found is not None
    assert [(shape.file, shape.topic) for shape in found.shapes] == [("b", "t")]
    assert (found.flow, found.number, found.archive) == ("t", 1, ARCHIVE)


@st.composite
def archives(draw: st.DrawFn) -> list[Survey]:
    """Generate surveys of an archive with files of many sizes, each with none, one or two topics."""
    numbers = range(1, 1 + draw(st.integers(0, 5)))
    topics = st.sampled_from(["", "t", "u", "tu"])
    found = []
    for number in numbers:
        held = {f"{name:02d}-of-{number}": draw(topics) for name in range(draw(st.integers(0, 6)))}
        found.append(survey(number, held, sizes={path: draw(st.integers(0, 30)) for path in held}))
    return found


@given(archives(), st.integers(1, 60))
def test_the_microbatches_together_own_each_file_of_the_topic_once_and_in_order(surveys: list[Survey], max_bytes: int) -> None:
    planned, owned, shapes = PlanPosition(), [], []
    while microbatch := pick(surveys, planned, max_bytes=max_bytes):
        assert microbatch.files
        assert microbatch.size <= max_bytes or len(microbatch.files) == 1
        assert microbatch.planned_through > planned
        planned = microbatch.planned_through
        owned += microbatch.files
        shapes += microbatch.shapes
        left = [file for item in surveys for file in item.files_of("t")][len(owned) :]
        assert not left or microbatch.size + left[0].size > max_bytes, "a file that would have fit was left out"

    assert owned == [file for item in surveys for file in item.files_of("t")]
    assert shapes == [shape for item in surveys for shape in item.shapes if shape.topic == "t"]


@given(archives(), archives(), st.integers(1, 60), st.integers(0, 10))
def test_surveys_that_come_while_microbatches_run_are_picked_up_where_the_last_one_stopped(
    early: list[Survey], late: list[Survey], max_bytes: int, taken: int
) -> None:
    later = [Survey(item.archive, item.number + len(early), item.files, item.shapes) for item in late]
    planned, owned = PlanPosition(), []
    for known in [early] * taken + [early + later] * 100:
        microbatch = pick(known, planned, max_bytes=max_bytes)
        if microbatch:
            planned = microbatch.planned_through
            owned += microbatch.files
    assert owned == [file for item in early + later for file in item.files_of("t")]


# -- files that wait for missing offsets ---------------------------------------------------------------------------


def test_a_file_that_waits_is_passed_over_and_written_down() -> None:
    surveys = [survey(1, {"a": "t", "b": "t", "c": "t"})]
    found = pick(surveys, waiting={"b"})
    assert paths(found) == ["a", "c"]
    assert found is not None
    assert (found.planned_through, found.held) == (PlanPosition(2), (HeldFile(1, "b"),))
    assert [item.file for item in found.offsets] == ["a", "c"]


def test_what_waits_alone_is_no_microbatch_and_nothing_moves() -> None:
    assert pick([survey(1, {"a": "t", "b": "t"})], waiting={"a", "b"}) is None


def test_a_held_file_is_taken_when_it_need_not_wait_any_more_though_the_plan_is_far_behind_it() -> None:
    surveys = [survey(1, {"a": "t", "b": "t"}), survey(2, {"c": "t"}), survey(3, {"d": "t"})]
    found = pick(surveys, PlanPosition(2, 1), held=(HeldFile(1, "b"),))
    assert paths(found) == ["b", "d"]
    assert found is not None
    assert (found.planned_through, found.held) == (PlanPosition(4), ())


def test_a_held_file_for_which_there_is_no_room_stays_held() -> None:
    surveys = [survey(1, {"a": "t", "b": "t"}, sizes={"a": 60, "b": 60}), survey(2, {"c": "t"})]
    held = (HeldFile(1, "a"), HeldFile(1, "b"))
    found = pick(surveys, PlanPosition(1, 2), held=held)
    assert (paths(found), found and found.held, found and found.planned_through) == (["a"], (HeldFile(1, "b"),), PlanPosition(1, 2))
    assert pending_in(surveys[0], "t", PlanPosition(1, 2), held) == surveys[0].files


def test_a_held_file_whose_survey_is_not_at_hand_is_not_forgotten() -> None:
    found = next_microbatch(
        flow="t",
        number=1,
        archive=ARCHIVE,
        surveys=[survey(2, {"c": "t"})],
        planned=PlanPosition(1, 1),
        max_bytes=1,
        held=(HeldFile(1, "a"),),
    )
    assert found is not None
    assert found.held == (HeldFile(1, "a"),)


@given(archives(), st.integers(1, 60), st.lists(st.sets(st.integers(0, 40)), max_size=8))
def test_whatever_waits_and_for_how_long_each_file_is_owned_once_and_nothing_is_lost(
    surveys: list[Survey], max_bytes: int, rounds: list[set[int]]
) -> None:
    everything = [file for item in surveys for file in item.files_of("t")]
    planned, owned = PlanPosition(), []
    held: tuple[HeldFile, ...] = ()
    for places in [*rounds, *[set[int]()] * (len(everything) + 1)]:
        waiting = {everything[place].path for place in places if place < len(everything)}
        microbatch = pick(surveys, planned, max_bytes=max_bytes, held=held, waiting=waiting)
        if microbatch is None:
            continue
        assert not waiting & set(paths(microbatch))
        assert Microbatch.from_json(microbatch.to_json()) == microbatch
        planned, held = microbatch.planned_through, microbatch.held
        owned += microbatch.files
        pending = [file for item in surveys for file in pending_in(item, "t", planned, held)]
        assert sorted([*owned, *pending]) == sorted(everything)
    assert sorted(owned) == sorted(everything)


# -- files that a cut divides --------------------------------------------------------------------------------------

FAR = 2**70
"""A commit position that JSON numbers cannot hold everywhere."""


def part(path: str, *, since: int | None = None, before: int | None = FAR, records: int = 1, left: int = 0) -> SurveyedPart:
    """Return a part of a file of flow ``t``."""
    return SurveyedPart(FilePart("sqlserver", since, before), (replace(shape(path, "t"), records=records),), left)


def test_of_a_file_that_the_cut_divides_a_microbatch_owns_the_first_part_and_holds_the_rest() -> None:
    surveys = [survey(1, {"a": "t", "b": "t", "c": "t"})]
    found = pick(surveys, parts={"a": part("a"), "b": part("b", records=3, left=4)})
    assert paths(found) == ["a", "b", "c"]
    assert found is not None
    # All of a stands before the cut: it needs no second look.
    assert found.parts == {"b": FilePart("sqlserver", None, FAR)}
    assert (found.held, found.rests) == ((HeldFile(1, "b", FAR, 4),), frozenset())
    assert sorted((item.file, item.records) for item in found.shapes) == [("a", 1), ("b", 3), ("c", 1)]
    assert [item.file for item in found.offsets] == ["a", "b", "c"]
    assert Microbatch.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_rest_of_a_divided_file_is_owned_later_and_accounts_for_no_offsets_again() -> None:
    surveys = [survey(1, {"a": "t", "b": "t"}), survey(2, {"c": "t"})]
    held = (HeldFile(1, "b", FAR, 4),)
    rest = {"b": part("b", since=FAR, before=None, records=4)}
    found = pick(surveys, PlanPosition(1, 2), held=held, parts=rest)
    assert paths(found) == ["b", "c"]
    assert found is not None
    assert (found.held, found.parts, found.rests) == ((), {"b": FilePart("sqlserver", FAR, None)}, frozenset("b"))
    assert [item.file for item in found.offsets] == ["c"]
    assert sum(item.records for item in found.shapes) == 5


def test_a_divided_file_that_still_waits_keeps_its_mark() -> None:
    surveys = [survey(1, {"a": "t", "b": "t"})]
    held = (HeldFile(1, "a", FAR, 4),)
    found = pick(surveys, PlanPosition(1, 1), held=held, waiting={"a"})
    assert (paths(found), found and found.held) == (["b"], held)


def test_a_file_divided_twice_is_held_from_the_second_cut_on() -> None:
    held = (HeldFile(1, "a", 5, 4),)
    found = pick([survey(1, {"a": "t"})], PlanPosition(1, 1), held=held, parts={"a": part("a", since=5, before=9, records=1, left=3)})
    assert found is not None
    assert (found.parts, found.held) == ({"a": FilePart("sqlserver", 5, 9)}, (HeldFile(1, "a", 9, 3),))


def test_the_rest_of_a_file_remembers_which_reads_were_left_out_of_it() -> None:
    first = SurveyedPart(FilePart("sqlserver", None, FAR, reads_before=FAR - 1), (shape("a", "t"),), 4)
    found = pick([survey(1, {"a": "t"})], parts={"a": first})
    assert found is not None
    assert (found.held, found.parts) == ((HeldFile(1, "a", FAR, 4, FAR - 1),), {"a": first.part})
    assert Microbatch.from_json(json.loads(json.dumps(found.to_json()))) == found


def owning(number: int, files: Mapping[str, FilePart | None], archive: str = ARCHIVE, *, is_again: bool = False) -> Microbatch:
    found = pick([survey(number, dict.fromkeys(files, "t"))])
    assert found is not None
    return replace(
        found, number=number, archive=archive, parts={path: item for path, item in files.items() if item is not None}, is_again=is_again
    )


@pytest.mark.parametrize(
    ("owned", "together"),
    [
        ([None], None),
        ([FilePart("sqlserver", None, 5, None, 4), FilePart("sqlserver", 5, None, 4)], None),
        ([FilePart("sqlserver", None, 5, None, 4), FilePart("sqlserver", 5, 9, 4, 8)], FilePart("sqlserver", None, 9, None, 8)),
        # What an earlier microbatch owned of it stays away.
        ([FilePart("sqlserver", 5, 9, 4, 8)], FilePart("sqlserver", 5, 9, 4, 8)),
        ([FilePart("sqlserver", 5, 9, 4, 8), FilePart("sqlserver", 9, None, 8)], FilePart("sqlserver", 5, None, 4)),
    ],
)
def test_microbatches_that_are_read_together_read_what_they_own_and_no_line_twice(
    owned: Sequence[FilePart | None], together: FilePart | None
) -> None:
    members = [owning(number, {f"whole-{number}": None, "divided": item}) for number, item in enumerate(owned)]
    (found,) = read_together(members)
    assert sorted(paths(found)) == sorted({path for member in members for path in paths(member)})
    assert found.parts == ({"divided": together} if together else {})
    assert found.shapes == tuple(item for member in members for item in member.shapes)


def test_other_archives_and_what_was_read_again_are_read_by_themselves() -> None:
    members = [
        owning(1, {"a": None}),
        owning(2, {"a": None}, "file:///other"),
        owning(3, {"a": None}, is_again=True),
        owning(4, {"b": None}),
    ]
    assert [(item.archive, paths(item), item.is_again) for item in read_together(members)] == [
        (ARCHIVE, ["a", "b"], False),
        ("file:///other", ["a"], False),
        (ARCHIVE, ["a"], True),
    ]


def test_parts_and_what_is_left_of_them_keep_of_which_epoch_their_records_are() -> None:
    epochs = ArchivedEpochs(Epochs({"0": ((12, 1),), "65536": ((0, 1), (7, 2))}), {"a": (LifeSpan(0, 9, 1, 0, 5),)}).of_file("a")
    part = FilePart("postgresql", None, FAR, None, FAR - 1, epochs)
    held = HeldFile(1, "a", FAR, 4, FAR - 1, epochs)
    assert epochs.epochs.begins == {"0": ((12, 1),), "65536": ((0, 1), (7, 2))}
    for item in (part, FilePart("postgresql", FAR)):
        assert FilePart.from_json(json.loads(json.dumps(item.to_json()))) == item
    for each in (held, HeldFile(1, "a", FAR, 4, None, epochs), HeldFile(1, "a", FAR, 4), HeldFile(1, "a")):
        assert HeldFile.from_json(json.loads(json.dumps(each.to_json()))) == each
    # Where the log never went back nothing is kept.
    assert ArchivedEpochs(lives={"a": (LifeSpan(0, 9, 1, 0, 5),)}).of_file("a") == FileEpochs()
