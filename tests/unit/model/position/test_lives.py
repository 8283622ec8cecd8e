from __future__ import annotations

import json

import pytest

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets, in_lanes
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import (
    LANES,
    LifeSpan,
    Meeting,
    Stretch,
    assign_lives,
    is_of_life,
    lane_of,
    lane_text,
    life_of_lane,
    needs_lines,
    partition_of_lane,
)
from airflow_cdc.model.position.position import EPOCH, Position
from airflow_cdc.model.position.snapshot import Snapshot


def stretch(file: str, first: int, last: int, *, line: int = 1, since: int | None = None, through: int | None = None) -> Stretch:
    return Stretch(file, 0, line, first, last, since, through)


def met(left: Stretch, right: Stretch, *, same: int = 0, other: int = 0) -> Meeting:
    return Meeting(left.name, right.name, same, other)


@pytest.mark.parametrize(("partition", "life"), [(0, 0), (7, 0), (7, 3), (65_535, 1), (2, -1)])
def test_a_lane_is_a_partition_and_its_life(partition: int, life: int) -> None:
    lane = lane_of(partition, life)
    assert (partition_of_lane(lane), life_of_lane(lane)) == (partition, life)
    assert lane_text(lane).startswith(f"partition {partition}")


def test_a_lane_is_named_by_its_partition_and_its_life_counted_from_one() -> None:
    assert lane_text(7) == "partition 7"
    assert lane_text(7 + LANES) == "partition 7 (life 2 of the topic)"


def test_the_name_of_a_lane_shows_its_life() -> None:
    names = ["0", "7", "65536", "65543", "-65536", "-"]
    assert [name for name in names if is_of_life(name, 0)] == ["0", "7"]
    assert [name for name in names if is_of_life(name, 1)] == ["65536", "65543"]
    assert [name for name in names if is_of_life(name, -1)] == ["-65536"]


def test_files_that_hold_the_same_records_are_of_one_life() -> None:
    one, again, further = stretch("a", 0, 9), stretch("b", 5, 14), stretch("c", 15, 19)
    assigned = assign_lives([one, again, further], [met(one, again, same=5)], {}, {})
    assert set(assigned.lives.values()) == {0}


def test_other_records_behind_them_in_one_file_begin_another_life() -> None:
    one, two = stretch("a", 0, 9), stretch("a", 0, 4, line=11)
    further = stretch("b", 5, 9)
    meetings = [met(one, two, other=5), met(one, further, other=5)]
    assert assign_lives([one, two, further], meetings, {}, {}).lives == {one.name: 0, two.name: 1, further.name: 1}


def test_other_records_before_those_of_a_known_life_in_one_file_are_of_an_older_life() -> None:
    """The file's end was taken for the topic's first life before its begin could be read."""
    begin, end = stretch("a", 0, 4), stretch("a", 0, 9, line=11)
    assigned = assign_lives([begin, end], [met(begin, end, other=5)], {end.name: 0}, {0: {0: 9}})
    assert (assigned.lives, assigned.unproven) == ({begin.name: -1}, ())


def test_a_copy_of_an_earlier_life_stays_there() -> None:
    one, two, copy = stretch("a", 0, 9), stretch("a", 0, 4, line=11), stretch("b", 0, 9)
    meetings = [met(one, two, other=5), met(one, copy, same=10), met(two, copy, other=5)]
    assert assign_lives([one, two, copy], meetings, {}, {}).lives[copy.name] == 0


def test_the_connector_s_times_show_which_life_came_first() -> None:
    known = stretch("a", 0, 9, since=100, through=200)
    later, earlier = stretch("b", 0, 9, since=300, through=400), stretch("c", 0, 9, since=10, through=20)
    meetings = [met(known, later, other=10), met(known, earlier, other=10), met(later, earlier, other=10)]
    assigned = assign_lives([known, later, earlier], meetings, {known.name: 0}, {0: {0: 9}})
    assert assigned.lives == {later.name: 1, earlier.name: -1}
    assert assigned.unproven == ()


@pytest.mark.parametrize("times", [(150, 250), (None, None)])
def test_where_times_overlap_or_are_missing_nothing_is_proven(times: tuple[int | None, int | None]) -> None:
    known, doubtful = stretch("a", 0, 9, since=100, through=200), stretch("b", 0, 9, since=times[0], through=times[1])
    assigned = assign_lives([known, doubtful], [met(known, doubtful, other=10)], {known.name: 0}, {0: {0: 9}})
    assert assigned.lives == {}
    assert assigned.unproven == ((known, doubtful),)


def test_several_new_lives_that_nothing_proves_are_distinguished_where_the_flow_decides() -> None:
    # The topic was made anew twice since the last run: what the third life holds the second one held too.
    one, two, three = (stretch(name, 0, 9) for name in ("a", "b", "c"))
    further = stretch("d", 10, 19)
    meetings = [met(one, two, other=10), met(one, three, other=10), met(two, three, other=10)]
    assigned = assign_lives([one, two, three, further], meetings, {}, {}, unproven_life=lambda newest: newest + 1)
    assert assigned.lives == {one.name: 0, two.name: 1, three.name: 2, further.name: 2}
    again = assign_lives([one, two, three], meetings, {}, {}, unproven_life=lambda newest: newest)
    assert {*again.lives.values()} == {0}


@pytest.mark.parametrize(("first", "life"), [(10, 0), (5, 1), (11, 1), (9, 1), (4, 1)])
def test_a_file_is_of_the_life_that_it_continues_without_a_gap_else_of_the_newest(first: int, life: int) -> None:
    """The topic's first life ended at offset 9, the second one is at 4."""
    file = stretch("late", first, first + 1)
    assert assign_lives([file], [], {}, {0: {0: 9, 1: 4}}).lives == {file.name: life}


def test_offsets_are_kept_by_lane() -> None:
    both = FileOffsets("a", 0, 0, 9, ((0, 9),))
    lives = {"a": (LifeSpan(0, 1, 0, 0, 9), LifeSpan(0, 11, 1, 0, 4)), "b": (LifeSpan(0, 1, 1, 5, 6),)}
    lanes = in_lanes([both, FileOffsets("b", 0, 5, 6, ((5, 6),)), FileOffsets("c", 0, 10, 12, ((10, 12),))], lives)
    assert [(item.file, item.partition, item.first, item.last) for item in lanes] == [
        ("a", 0, 0, 9),
        ("a", LANES, 0, 4),
        ("b", LANES, 5, 6),
        ("c", 0, 10, 12),
    ]
    # Each life is complete for itself.
    assert ArchivedOffsets().with_files(lanes).gaps("t") == ()
    assert needs_lines(lives)
    assert not needs_lines({"b": lives["b"]})
    assert not needs_lines({"of two partitions": (LifeSpan(0, 1, 1, 5, 6), LifeSpan(1, 1, 1, 5, 6))})


def test_a_lane_that_lags_joins_the_newest_epoch() -> None:
    first = Epochs().beginning({"0": 10})
    assert first.begins == {"0": ((10, 1),)}
    assert first.beginning({"1": 7}).begins == {"0": ((10, 1),), "1": ((7, 1),)}
    second = first.beginning({"0": 20})
    assert (second.newest, second.of("0"), second.of("1")) == (2, 2, 0)
    # From its very first offset on.
    assert second.with_new_lanes(["2", "0"]).begins == {"0": ((10, 1), (20, 2)), "2": ((0, 2),)}
    assert Epochs().with_new_lanes(["2"]) == Epochs()
    assert Epochs.from_json(second.to_json()) == second


def test_a_later_epoch_stands_behind_every_position_of_the_one_before() -> None:
    before, after = Position(2**80, 2**80, 9), Position(EPOCH + 1)
    assert before < after
    assert (before.epoch, after.epoch) == (0, 1)
    assert str(after) == "1 (epoch 2 of the log)"
    assert Position.from_json(after.to_json()) == after


@pytest.mark.parametrize(
    ("passed", "lanes", "proven"),
    [
        ({"0"}, {"0"}, True),
        ({"0"}, {"0", "1"}, False),
        ({"0", "1"}, {"0", "1"}, True),
        # Its reads are of the topic's second life: both partitions have to go on there.
        ({str(LANES)}, {"0", str(LANES)}, True),
        ({str(LANES)}, {"0", "1", str(LANES)}, False),
    ],
)
def test_a_snapshot_is_proven_where_every_partition_goes_on_behind_it(passed: set[str], lanes: set[str], *, proven: bool) -> None:
    of_second_life = str(LANES) in passed
    snapshot = Snapshot(
        Position(5), is_first=False, is_complete=True, last_offsets={str(LANES) if of_second_life else "0": 9}, passed=frozenset(passed)
    )
    assert snapshot.is_proven(frozenset(lanes)) is proven
    assert Snapshot.from_json(snapshot.to_json()) == snapshot


def test_a_lane_that_lags_joins_the_epoch_that_had_begun_when_its_log_went_back() -> None:
    first = Epochs().beginning({"0": 10}, {"0": 1000})
    second = first.beginning({"0": 20}, {"0": 2000})
    assert second.since_ms == {1: 1000, 2: 2000}
    assert second.beginning({"1": 7}, {"1": 1500}).begins["1"] == ((7, 1),)
    assert second.beginning({"1": 7}, {"1": 2500}).begins["1"] == ((7, 2),)
    # The first event of an epoch may be archived after later ones of it.
    early = second.beginning({"1": 7}, {"1": 900})
    assert (early.begins["1"], early.since_ms) == (((7, 1),), {1: 900, 2: 2000})
    # Beside lanes that enter another epoch the lagging one enters its own.
    both = first.beginning({"0": 20, "1": 7}, {"0": 2000, "1": 1500})
    assert (both.begins["0"], both.begins["1"]) == (((10, 1), (20, 2)), ((7, 1),))
    assert [second.at(time) for time in (500, 1000, 1999, 2000, None)] == [0, 1, 1, 2, 2]
    assert Epochs.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_an_epoch_began_when_the_first_of_the_lanes_that_enter_it_together_saw_it() -> None:
    both = Epochs().beginning({"0": 10, "1": 5}, {"0": 2000, "1": 1000})
    assert both.since_ms == {1: 1000}
    assert [both.at(time) for time in (999, 1000)] == [0, 1]
    # A lane whose event carries no time says nothing of when.
    assert Epochs().beginning({"0": 10, "1": 5}, {"0": 2000, "1": None}).since_ms == {1: 2000}
    assert Epochs().beginning({"0": 10, "1": 5}).since_ms == {}
