"""What of a flow asks for a person's look: for how long, from how much on, and in whose words."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

import pytest

from airflow_cdc.model.archive.completeness import OffsetReport
from airflow_cdc.model.flow.warn_above import WarnAbove
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.report.findings import FindingKind
from airflow_cdc.model.report.health import FlowHealth, findings_of_run

FLOW = "server.db.orders"
_ANY = WarnAbove()
MONDAY, TUESDAY, WEDNESDAY = (date(2026, 11, day) for day in (23, 24, 25))


def batch(day: date = MONDAY, read: int = 100, rejected: int = 0, bounds: WarnAbove = _ANY, **more: Any) -> BatchReport:
    at = datetime(day.year, day.month, day.day, 12, tzinfo=timezone.utc)
    return BatchReport(
        FLOW,
        1,
        1,
        9,
        EventCounts(read=read, merged=read - rejected, rejected=rejected),
        rejects={"malformed_json": rejected} if rejected else {},
        started_at=int(at.timestamp() * 1000),
        warn_above=bounds,
        **more,
    )


def health(*batches: BatchReport) -> FlowHealth:
    found = FlowHealth()
    for each in batches:
        # As the state keeps it from run to run.
        found = FlowHealth.from_json(found.after(each).to_json())
    return found


def said(found: FlowHealth, today: date, *, is_undecided: bool = False) -> list[str]:
    return [finding.line() for finding in found.findings(FLOW, is_undecided=is_undecided, today=today)]


def test_rejects_need_a_look_on_their_day_and_on_the_next() -> None:
    found = health(batch(read=31, rejected=30), batch(TUESDAY))
    assert said(found, MONDAY) == [f"{FLOW}: 30 of 31 records (30 malformed_json)"]
    assert said(found, TUESDAY) == [f"{FLOW}: 30 of 131 records (30 malformed_json)"]
    assert said(found, WEDNESDAY) == []


def test_a_share_is_the_days_or_the_last_microbatchs_alone() -> None:
    bounds = WarnAbove(rejected=0.01)
    few = batch(read=100_000, rejected=900, bounds=bounds)
    assert said(health(few), MONDAY) == []
    assert said(health(few, batch(read=3, rejected=3, bounds=bounds)), MONDAY) == [f"{FLOW}: 3 of 3 records (3 malformed_json)"]
    assert said(health(few, batch(read=3, rejected=3, bounds=bounds), batch(read=0, bounds=bounds)), MONDAY) != []
    assert said(health(few, batch(read=9, bounds=bounds)), MONDAY) == []


@pytest.mark.parametrize(
    ("more", "name", "kind", "text"),
    [
        ({"rows_not_found": 2}, "rows_not_found", FindingKind.NOT_FOUND, "2 rows. Next step: airflow-cdc verify"),
        ({"unavailable_unresolved": 2}, "unavailable_unresolved", FindingKind.UNRESOLVED, "2 rows"),
        ({"offsets": OffsetReport(missing=2, newly_missing=2)}, "missing_offsets", FindingKind.MISSING, "2 offsets"),
        (
            {"columns_added": ("a",), "columns_renamed": {"b": "c"}},
            "schema_changes",
            FindingKind.SCHEMA,
            "column a added; column b renamed to c",
        ),
        (
            {"rows_unconfirmed": 2},
            "rows_unconfirmed",
            FindingKind.UNCONFIRMED,
            f"2 rows. Next step: airflow-cdc confirm-snapshot {FLOW}",
        ),
    ],
)
def test_each_count_has_a_bound(more: dict[str, Any], name: str, kind: FindingKind, text: str) -> None:
    def found(**bounds: Any) -> tuple[Any, ...]:
        return health(batch(bounds=WarnAbove(**bounds), **more)).findings(FLOW, is_undecided=True, today=MONDAY)

    (finding,) = found()
    assert (finding.kind, finding.text, finding.count) == (kind, text, 2)
    assert found(**{name: 1}) == (finding,)
    assert found(**{name: 2}) == found(**{name: None}) == ()


def test_unconfirmed_rows_need_a_look_until_somebody_decides() -> None:
    found = health(batch(rows_unconfirmed=12), batch(WEDNESDAY))
    assert said(found, WEDNESDAY) == []
    assert said(found, WEDNESDAY, is_undecided=True) == [f"{FLOW}: 12 rows. Next step: airflow-cdc confirm-snapshot {FLOW}"]
    assert said(found.after(batch(rows_unconfirmed=0)), WEDNESDAY, is_undecided=True) == []


def test_the_newest_microbatchs_bounds_hold() -> None:
    assert said(health(batch(rejected=1), batch(bounds=WarnAbove(rejected=None))), MONDAY) == []
    assert said(health(batch(rejected=1, bounds=WarnAbove(rejected=None)), batch()), MONDAY) != []


def test_a_report_without_a_time_counts_for_no_day_and_is_the_last_all_the_same() -> None:
    found = health(batch(), replace(batch(rejected=7), started_at=None))
    assert said(found, MONDAY) == [f"{FLOW}: 7 of 100 records (7 malformed_json)"]
    assert said(found, WEDNESDAY) == []


def test_a_hundred_new_columns_are_counted_and_the_first_are_named() -> None:
    names = tuple(f"c{number}" for number in range(100))
    (finding,) = health(batch(columns_added=names), batch(columns_added=("last",))).findings(FLOW, is_undecided=False, today=MONDAY)
    assert finding.count == 101
    assert finding.text.startswith("column c0 added; ")
    assert finding.text.endswith("column c19 added; and 81 more")


def test_a_run_is_judged_by_its_own_microbatches() -> None:
    outcome = FlowOutcome(FLOW, FlowStatus.APPLIED, "l/t", (batch(rejected=1), batch(rejected=2, rows_unconfirmed=3)))
    found = list(findings_of_run(ApplyReport("a", "l", (outcome, FlowOutcome("idle", FlowStatus.UP_TO_DATE)))))
    assert [(finding.kind, finding.count) for finding in found] == [(FindingKind.REJECTED, 3), (FindingKind.UNCONFIRMED, 3)]
