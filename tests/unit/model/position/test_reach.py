"""Which microbatches lie wholly after everything applied, and which may repeat some of it."""

from __future__ import annotations

import pytest

from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach

APPLIED = Reach({"0": Position(10, 1, 1)}, {"0": Position(20, 5, 1)}, {"0": 0}, {"0": 99}, frozenset({"0"}))


def microbatch(commit: int | None, offset: int | None, partition: str = "0") -> Reach:
    first = {} if commit is None else {partition: Position(commit, 9, 9)}
    offsets = {} if offset is None else {partition: offset}
    return Reach(first, first, offsets, offsets, frozenset({partition}))


@pytest.mark.parametrize(
    ("later", "repeats"),
    [
        (microbatch(21, 100), False),
        # The last transaction goes on: its events may concern the same keys.
        (microbatch(20, 100), True),
        (microbatch(19, 100), True),
        # Reads have no place in the log; the archive gives theirs.
        (microbatch(None, 100), False),
        (microbatch(None, 99), True),
        (microbatch(21, 99), True),
        (microbatch(21, None), False),
        (microbatch(21, 100, partition="1"), True),
    ],
)
def test_a_microbatch_after_everything_applied_repeats_nothing(later: Reach, repeats: bool) -> None:
    assert later.may_repeat(APPLIED) is repeats
    assert later.may_repeat(Reach()) is False


def test_a_reach_grows_to_both_sides() -> None:
    both = APPLIED | microbatch(5, 200)
    assert both.streamed_from == {"0": Position(5, 9, 9)}
    assert both.streamed_through == {"0": Position(20, 5, 1)}
    assert (both.offset_from, both.offset_through) == ({"0": 0}, {"0": 200})
    assert Reach.from_json(both.to_json()) == both


def test_earlier_versions_find_whether_keys_were_spread_over_partitions() -> None:
    """They read the field before they compare, and would take late events for new ones if it were lost."""
    assert Reach().to_json()["is_spread"] is False
    assert (Reach(is_spread=True) | Reach()).is_spread
    assert (Reach() | Reach(is_spread=True)).is_spread


@pytest.mark.parametrize(("commits", "may"), [([19], True), ([5, 19], True), ([5, 40], False), ([], False), ([5, 10, 40], True)])
def test_a_reach_may_hold_a_transaction_that_lies_in_it(commits: list[int], may: bool) -> None:
    assert (Reach({"0": Position(10)}, {"0": Position(20)}) | Reach({"1": Position(19)}, {"1": Position(30)})).may_hold(commits) is may


def test_a_transaction_that_only_its_text_identifies_may_go_on_in_the_next_microbatch() -> None:
    def part(first: int, last: int, *texts: str) -> Reach:
        return Reach({"0": Position(first)}, {"0": Position(last)}, partitions=frozenset({"0"}), outer_transactions={"0": texts})

    applied = part(10, 19, "a", "b")
    assert part(20, 29, "b", "c").may_repeat(applied)
    assert not part(20, 29, "c").may_repeat(applied)
    both = applied | part(20, 29, "b", "c")
    assert both == part(20, 29, "b", "c") | applied
    assert part(30, 39, "c").may_repeat(both)
    # Left behind long ago.
    assert not part(30, 39, "a").may_repeat(both)
    assert part(1, 9, "a").shares_transaction(applied)
    assert Reach.from_json(both.to_json()) == both


def test_events_follow_if_they_are_above_all_partitions() -> None:
    applied = Reach(streamed_through={"0": Position(20, 5, 1), "1": Position(40, 5, 1)}, partitions=frozenset({"0", "1"}))
    # A key may have been in any of them: above partition 0 alone is not enough.
    assert not microbatch(30, 100).follows(applied)
    assert microbatch(41, 100).follows(applied)
    assert microbatch(None, 100).follows(applied)


def test_the_highest_position_of_earlier_lives_is_of_the_same_partition() -> None:
    """Partition 0 was made anew twice: its lives are the lanes 0, 65536 and 131072."""
    streamed = {"-": 99, "0": 10, "65536": 20, "131072": 5, "1": 30, "65537": 40}
    reach = Reach(streamed_through={lane: Position(commit) for lane, commit in streamed.items()})
    assert reach.highest_of_earlier_lives("131072") == Position(20)
    assert reach.highest_of_earlier_lives("65536") == Position(10)
    assert reach.highest_of_earlier_lives("0") is None
    assert reach.highest_of_earlier_lives("-") is None
