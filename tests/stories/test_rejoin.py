"""From which microbatch on the events of cut transactions are folded anew."""

from __future__ import annotations

import pytest

from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.reconcile.rejoin_transactions import LOOK_BACK, first_part

REACHES = {1: (60, 69), 2: (40, 49), 3: (1, 9)}


def report_of(number: int) -> BatchReport | None:
    reach = REACHES.get(number)
    return reach and BatchReport("t", number, 1, 1, reach=Reach({"0": Position(reach[0])}, {"0": Position(reach[1])}))


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([45], 2),
        # Files in no order: the older transaction came later. Only its own microbatch would leave the younger one's out.
        ([45, 65], 1),
        ([5], 3),
        ([100], None),
    ],
)
def test_the_first_microbatch_of_any_of_the_transactions(commits: list[int], expected: int | None) -> None:
    assert first_part(report_of, 4, commits, Reach()) == expected


def test_it_is_looked_for_among_the_last_ones_only() -> None:
    assert first_part(report_of, 2 + LOOK_BACK, [45], Reach()) == 2
    assert first_part(report_of, 3 + LOOK_BACK, [45], Reach()) is None
