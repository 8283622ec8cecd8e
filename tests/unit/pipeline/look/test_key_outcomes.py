"""What became of a key's events: each rule, and what the reports contradict."""

from __future__ import annotations

from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.pipeline.look.key_outcomes import Evidence, Outcome, PlacedEvent, Written, judge

STALE = EventCounts(read=1, stale=1)
MERGED = EventCounts(read=1, merged=1)


def report(number: int, events: EventCounts = MERGED, truncated: int | None = None) -> BatchReport:
    return BatchReport("f", number, 1, 1, events=events, truncated_through={"t": Position(truncated)} if truncated else {})


def event(number: int, microbatch: int | None, op: str | None = "u", commit: int | None = None, change: int = 0) -> PlacedEvent:
    return PlacedEvent(number, microbatch, op, Position(number if commit is None else commit, change, 0))


def outcomes(events: list[PlacedEvent], evidence: Evidence) -> list[tuple[Outcome, bool]]:
    return [(each.outcome, each.is_proven) for each in judge(events, evidence)]


def test_the_last_event_of_each_microbatch_is_merged_and_the_table_proves_the_one_that_it_carries() -> None:
    events = [event(0, 1, "c"), event(1, 2), event(2, 2)]
    evidence = Evidence({1: report(1), 2: report(2)}, (Written(2, Position(2, 0, 0), "u"),))
    assert outcomes(events, evidence) == [(Outcome.MERGED, False), (Outcome.SUPERSEDED, True), (Outcome.MERGED, True)]
    assert [each.by for each in judge(events, evidence)] == [None, 2, None]


def test_the_delete_of_another_row_does_not_take_back_what_the_same_transaction_gave_to_the_key() -> None:
    # The row carries the position of the last event, which removed the row that had the key before.
    events = [event(0, 1, "c", commit=7, change=1), event(1, 1, "d", commit=7, change=2)]
    evidence = Evidence({1: report(1)}, (Written(1, Position(7, 2, 0), "c"),))
    assert outcomes(events, evidence) == [(Outcome.MERGED, True), (Outcome.SUPERSEDED, True)]


def test_a_delete_is_proven_by_its_marker() -> None:
    evidence = Evidence({1: report(1)}, (Written(1, Position(0, 0, 0), "d"),))
    assert outcomes([event(0, 1, "d")], evidence) == [(Outcome.MERGED, True)]


def test_the_same_event_in_a_later_microbatch_is_stale() -> None:
    events = [event(0, 1), event(1, 2, commit=0)]
    assert outcomes(events, Evidence({1: report(1), 2: report(2, STALE)})) == [(Outcome.MERGED, False), (Outcome.STALE, False)]


def test_a_copy_in_the_same_microbatch_decides_nothing_also_when_the_row_has_moved_on() -> None:
    events = [event(0, 1, "c"), event(1, 1, "c", commit=0), event(2, 2)]
    reports = {1: report(1, EventCounts(read=2, merged=1, redelivered=1)), 2: report(2)}
    found = [(Outcome.MERGED, False), (Outcome.REDELIVERED, False), (Outcome.MERGED, True)]
    assert outcomes(events, Evidence(reports, (Written(2, Position(2, 0, 0), "u"),))) == found
    first = [(Outcome.MERGED, True), (Outcome.REDELIVERED, False)]
    assert outcomes(events[:2], Evidence(reports, (Written(1, Position(0, 0, 0), "c"),))) == first


def test_a_truncate_behind_an_event_makes_it_superseded_or_stale() -> None:
    assert outcomes([event(0, 1)], Evidence({1: report(1, truncated=5)})) == [(Outcome.SUPERSEDED, False)]
    assert outcomes([event(0, 2)], Evidence({1: report(1, truncated=5), 2: report(2, STALE)})) == [(Outcome.STALE, False)]
    assert outcomes([event(6, 2)], Evidence({1: report(1, truncated=5), 2: report(2)})) == [(Outcome.MERGED, False)]


def test_what_the_reports_contradict_is_unclear() -> None:
    assert outcomes([event(0, 1)], Evidence({1: report(1, EventCounts(read=1, rejected=1))})) == [(Outcome.UNCLEAR, False)]
    assert outcomes([event(0, 1)], Evidence()) == [(Outcome.UNCLEAR, False)]
    assert outcomes([event(0, 1, "t")], Evidence({1: report(1)})) == [(Outcome.UNCLEAR, False)]


def test_a_table_of_every_event_takes_them_all() -> None:
    events = [event(0, 1), event(1, 1)]
    assert outcomes(events, Evidence({1: report(1)}, keeps_history=True)) == [(Outcome.APPENDED, False)] * 2


def test_events_that_no_microbatch_has_read_have_the_reason() -> None:
    events = [PlacedEvent(0, None, "u", None, Outcome.HELD), PlacedEvent(1, None, "u", None)]
    assert outcomes(events, Evidence()) == [(Outcome.HELD, True), (Outcome.UNCLEAR, False)]
