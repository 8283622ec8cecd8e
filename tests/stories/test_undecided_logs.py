"""While offsets are missing below an event, nothing proves that the source's log went back: a restarted connector sends its last events
again, and their first deliveries may be archived later.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.policies import OnLogWentBack
from airflow_cdc.model.report.apply_report import FlowOutcome, FlowStatus
from tests.conftest import Apply
from tests.support.events import Record
from tests.support.life_story import Story, change

DAY = 86_400


@pytest.fixture
def story(tmp_path: Path, apply: Apply, spark: SparkSession) -> Story:
    return Story(tmp_path, apply, spark)


def sent_again(event: Record, *, offset: int) -> Record:
    return {**event, "offset": offset}


# The connector crashed behind commit 40, and began again at 20.
MADE = [change("c", 1, "a", at=10, offset=0), change("c", 2, "x", at=20, offset=1), change("u", 1, "b", at=30, offset=2)]
LAST = change("c", 3, "y", at=40, offset=3)
BEGINS, DELIVERED = MADE[:1], MADE[1:]
CRASH = [LAST, sent_again(MADE[1], offset=4), sent_again(MADE[2], offset=5)]
BEHIND = [sent_again(LAST, offset=6), change("u", 2, "z", at=50, offset=7)]
ROWS = {1: "b", 2: "z", 3: "y"}


def missing(outcome: FlowOutcome) -> list[tuple[int, int]]:
    return [(gap.first, gap.last) for gap in outcome.waiting_for]


def test_copies_that_come_before_the_file_with_their_first_delivery_wait_for_it(story: Story) -> None:
    story.lands(*BEGINS)
    first = story.outcome(*CRASH)
    assert (first.status, missing(first), first.waiting_files, first.error) == (FlowStatus.WAITING, [(1, 2)], 2, None)
    again = story.outcome()
    assert (again.status, missing(again), again.waiting_files) == (FlowStatus.WAITING, [(1, 2)], 2)

    done = [story.outcome(*DELIVERED), story.outcome(*BEHIND)]

    assert [(each.status, each.waiting_files) for each in done] == [(FlowStatus.APPLIED, 0)] * 2
    assert story.rows == ROWS
    assert done[-1].batches[-1].epochs.begins == {}
    assert sum(batch.events.read for each in done for batch in each.batches) == 8


def test_copies_behind_which_the_log_goes_on_in_one_microbatch_wait_for_nothing(story: Story) -> None:
    """By position and by the archive's order the rows are the same, and the next event that falls below is seen."""
    story.lands(*BEGINS)
    done = story.outcome(*CRASH, *BEHIND)
    assert (done.status, done.error, story.rows) == (FlowStatus.APPLIED, None, ROWS)
    assert story.outcome(*DELIVERED).error is None
    assert story.rows == ROWS


def test_a_pending_file_that_decides_about_an_earlier_one_is_applied_together_with_it(story: Story) -> None:
    for file in (BEGINS, BEHIND, CRASH, DELIVERED):
        story.lands(*file)

    done = story.outcome(max_microbatch_bytes=1)

    assert (done.status, done.waiting_files) == (FlowStatus.APPLIED, 0)
    assert story.rows == ROWS
    assert done.batches[-1].epochs.begins == {}


@pytest.mark.deep
def test_the_first_file_of_a_partition_may_come_last(story: Story) -> None:
    assert story.outcome(*CRASH).status is FlowStatus.WAITING
    assert missing(story.outcome(*DELIVERED)) == []
    assert story.outcome(*BEGINS, *BEHIND).error is None
    assert story.rows == ROWS


@pytest.mark.deep
def test_a_log_that_went_back_stops_the_flow_once_the_missing_offsets_prove_it(story: Story) -> None:
    story.lands(change("c", 1, "a", at=1000, offset=0))
    assert missing(story.outcome(change("u", 1, "b", at=1005, offset=2), change("c", 2, "new", at=20, offset=3))) == [(1, 1)]

    error = story.error(change("d", 9, "z", at=1001, offset=1))

    assert error["type"] == "SourceLogWentBackError"
    assert "no earlier file holds the same event" in error["message"]
    story.apply(on_log_went_back=OnLogWentBack.ACCEPT)
    assert story.rows == {1: "b", 2: "new"}


@pytest.mark.parametrize(
    ("policy", "begins"), [(OnLogWentBack.REDELIVERY, {}), pytest.param(OnLogWentBack.ACCEPT, {"0": ((4, 1),)}, marks=pytest.mark.deep)]
)
def test_a_gap_that_stays_open_for_a_day_leaves_the_decision_to_a_person(
    story: Story, policy: OnLogWentBack, begins: dict[str, tuple[tuple[int, int], ...]]
) -> None:
    for file in (story.lands(*BEGINS), story.lands(*CRASH)):
        os.utime(file, (0, file.stat().st_mtime - DAY - 60))

    error = story.error(sent_again(MADE[2], offset=6))

    assert error["type"] == "SourceLogWentBackError"
    for fact in ("offset 4", "offsets 1–2 are missing"):
        assert fact in error["message"]
    for choice in ("redelivery", "accept", "Bring the missing records"):
        assert choice in error["next_step"]
    batch = story.apply(*(sent_again(event, offset=1 + event["offset"]) for event in BEHIND), on_log_went_back=policy)
    assert story.rows == ROWS
    assert batch.epochs.begins == begins
