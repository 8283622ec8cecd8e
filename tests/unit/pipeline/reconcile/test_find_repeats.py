"""Which events at one position a restarted connector sent again."""

from __future__ import annotations

import random

import pytest

from airflow_cdc.pipeline.reconcile.find_repeats import Tied, find_repeats

A, B, C = (1,), (2,), (3,)
CREATE_A, DELETE_A, A_TO_B, B_TO_A, B_TO_C = (
    Tied("c", None, A),
    Tied("d", A, None),
    Tied("u", A, B),
    Tied("u", B, A),
    Tied("u", B, C),
)


@pytest.mark.parametrize(
    ("events", "repeats"),
    [
        ([CREATE_A, CREATE_A, DELETE_A], {1}),
        ([CREATE_A, A_TO_B, CREATE_A, A_TO_B, Tied("d", B, None)], {2, 3}),
        ([A_TO_B, B_TO_C, A_TO_B], {2}),
        # It crashed twice.
        ([CREATE_A, A_TO_B, CREATE_A, A_TO_B, B_TO_C, CREATE_A, A_TO_B, B_TO_C], {2, 3, 5, 6, 7}),
        # The row that takes the key comes before the one that leaves it goes.
        ([CREATE_A, Tied("d", B, None)], set()),
        ([CREATE_A, Tied("d", B, None), Tied("d", B, None)], {2}),
        ([Tied("d", B, None), CREATE_A, Tied("d", B, None), CREATE_A], {2, 3}),
        # There and back: what contradicts nothing is an event.
        ([A_TO_B, B_TO_A, A_TO_B], set()),
        ([CREATE_A, DELETE_A, CREATE_A], set()),
        # It contradicts what stands before it, and repeats nothing.
        ([A_TO_B, Tied("u", A, C)], set()),
        # It repeats an event, but not those that followed it.
        ([A_TO_B, B_TO_C, A_TO_B, Tied("u", B, (4,))], set()),
    ],
)
def test_what_contradicts_the_event_before_it_and_repeats_all_from_an_earlier_one_is_a_copy(events: list[Tied], repeats: set[int]) -> None:
    assert find_repeats(events) == repeats


@pytest.mark.parametrize("seed", range(200))
def test_a_connector_that_restarts_anywhere_leaves_the_events_as_they_were(seed: int) -> None:
    """The events of one row, none of which contradicts the one before it; each restart sends again from some event on."""
    chance = random.Random(seed)
    row: tuple[int, ...] | None = None
    events: list[Tied] = []
    for number in range(chance.randrange(1, 8)):
        image = (number,)
        if row is None:
            events.append(Tied("c", None, image))
            row = image
        elif chance.random() < 0.3:
            events.append(Tied("d", row, None))
            row = None
        else:
            events.append(Tied("u", row, image))
            row = image
    sent: list[Tied] = []
    reached = 0
    while reached < len(events):
        first = chance.randrange(reached + 1)
        until = chance.randrange(max(first, reached), len(events)) + 1
        sent += events[first:until]
        reached = until
    repeats = find_repeats(sent)
    left = [event for place, event in enumerate(sent) if place not in repeats]
    # A repetition from a create on, behind a delete, contradicts nothing; and leaves the same row.
    assert left[-1] == events[-1]
    assert [event for event in left if event.op == "u"][-1:] == [event for event in events if event.op == "u"][-1:]
