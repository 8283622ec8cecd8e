"""Events of a key with one position, in several runs of the archive: their images show which came first, or nothing does."""

from __future__ import annotations

import pytest

from airflow_cdc.pipeline.reconcile.find_repeats import Tied
from airflow_cdc.pipeline.reconcile.settle_ties import settle

A, B, C = (1,), (2,), (3,)
Image = tuple[int, ...] | None


def update(before: Image, after: Image, *, offset: bool = False) -> Tied:
    return Tied("u", before, after, has_offset=offset)


def create(after: Image) -> Tied:
    return Tied("c", None, after)


def delete(before: Image) -> Tied:
    return Tied("d", before, None)


def test_each_update_continues_what_the_one_before_it_left() -> None:
    assert settle([[update(A, B)], [update(B, C)]]) == [0, 1]
    assert settle([[update(B, C)], [update(A, B)]]) == [1, 0]


def test_a_way_there_and_back_may_have_begun_at_either_end() -> None:
    assert settle([[update(A, B)], [update(B, A)]]) is None


def test_images_that_are_not_carried_show_nothing() -> None:
    assert settle([[update(None, B)], [update(None, C)]]) is None
    assert settle([[Tied("u", (None,), (2,))], [Tied("u", (None,), (3,))]]) is None


def test_after_a_delete_there_is_no_row_to_update() -> None:
    assert settle([[delete(A)], [update(A, B)]]) is None
    assert settle([[delete(B)], [update(A, B)]]) == [1, 0]
    assert settle([[create(A)], [delete(B)]]) == [1, 0]


def test_a_file_whose_events_stand_in_another_one_holds_copies() -> None:
    assert settle([[update(A, B), update(B, C)], [update(A, B)]]) == [0, -1]
    assert settle([[update(A, B)], [update(A, B), update(B, C)]]) == [-1, 0]


def test_records_of_two_partitions_are_copies_only_if_their_images_allow_nothing_else() -> None:
    first = [update(A, B, offset=True), update(B, C, offset=True)]
    assert settle([first, [update(A, B, offset=True)]]) == [0, -1]
    # The second A to B may be a third event: it continues what the others leave.
    there_and_back = [update(A, B, offset=True), update(B, A, offset=True)]
    assert settle([there_and_back, [update(A, B, offset=True)]]) == [0, 1]


def test_equal_runs_are_copies() -> None:
    run = [update(A, B, offset=True), update(B, C, offset=True)]
    assert settle([run, run]) == [0, -1]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
def test_three_files(order: tuple[int, ...]) -> None:
    files = [[update(A, B)], [update(B, C)], [update(C, (4,))]]
    assert settle([files[number] for number in order]) == list(order)


def test_a_circle_may_have_begun_anywhere() -> None:
    assert settle([[update(A, B)], [update(B, C)], [update(C, A)]]) is None


def test_many_runs_are_not_tried_in_all_orders() -> None:
    assert settle([[update((number,), (number + 1,))] for number in range(7)]) is None
