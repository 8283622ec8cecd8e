"""A Dag that merges by a schedule is overdue when more than two schedules passed without a run that ended well, whatever the cause."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("airflow_database")
NOW = datetime(2026, 11, 28, 12, 0, tzinfo=timezone.utc)
STEP = timedelta(minutes=10)
_CRON = {"expression": "*/10 * * * *", "timezone": "UTC"}
EVERY_STEP = {"__type": "airflow.timetables.interval.CronDataIntervalTimetable", "__var": _CRON}
NO_SCHEDULE = {"__type": "airflow.timetables.simple.NullTimetable", "__var": {}}


def dag(*, lake: str = "lake", operator: str = "CdcMergeOperator", paused: bool = False, timetable: Any = EVERY_STEP) -> Any:
    from airflow_cdc.plugins.dag_tasks import CdcDag, CdcTask

    task = CdcTask("work", operator, lake, "archive", None, is_sensor=False)
    return CdcDag("merge", paused, None, (operator,), (task,), {}, timetable)


def run(ago: int, state: str, *, tables: Any = None, kind: str = "scheduled") -> Any:
    """Return a run that was due some schedules ago, and ended at once."""
    from airflow_cdc.plugins.dag_runs import TaskRun

    due = NOW - ago * STEP
    ended = None if state in ("queued", "running", "deferred", "up_for_retry") else due.isoformat()
    moments = (due, due.isoformat(), due.isoformat(), ended)
    return TaskRun("merge", f"run {ago}", "work", -1, "CdcMergeOperator", state, 1, *moments, kind, None, None, "lake", tables, {})


def watched(monkeypatch: pytest.MonkeyPatch, dags: list[Any], runs: list[Any], flow: str = "a.b") -> list[Any]:
    from airflow_cdc.plugins import dag_watch

    monkeypatch.setattr(dag_watch.DAGS, "get", lambda: dags)
    monkeypatch.setattr(dag_watch.RUNS, "get", lambda: runs)
    return dag_watch.of_flow(dag_watch.watches({"lake"}, NOW), flow)


@pytest.mark.parametrize(
    ("states", "is_overdue"),
    [
        (["success", "success", "success"], False),
        (["skipped", "skipped", "success"], False),
        (["queued", "success", "success"], False),
        (["failed", "failed", "failed", "success"], True),
        (["up_for_retry", "failed", "failed", "success"], True),
        (["upstream_failed", "failed", "failed", "failed"], True),
        (["failed", "failed", "success"], False),
        (["running", "failed", "failed", "failed"], False),
    ],
)
def test_runs_that_do_not_end_well_for_two_schedules_are_overdue(
    monkeypatch: pytest.MonkeyPatch, states: list[str], is_overdue: bool
) -> None:
    (watch,) = watched(monkeypatch, [dag()], [run(ago, state) for ago, state in enumerate(states)])
    assert watch.is_overdue is is_overdue
    assert watch.interval == STEP


@pytest.mark.parametrize(("since", "is_overdue"), [(1, False), (2, False), (3, True), (100, True)])
def test_a_scheduler_that_is_dead_makes_a_dag_overdue(monkeypatch: pytest.MonkeyPatch, since: int, is_overdue: bool) -> None:
    (watch,) = watched(monkeypatch, [dag()], [run(since + ago, "success") for ago in range(3)])
    assert watch.is_overdue is is_overdue
    assert "is due every 10 minutes, and no run has ended well since 2026-11-2" in watch.told(named=True)


@pytest.mark.parametrize(("silent", "is_overdue"), [(timedelta(seconds=30), False), (timedelta(minutes=6), True)])
def test_a_run_whose_worker_is_silent_is_not_at_work(monkeypatch: pytest.MonkeyPatch, silent: timedelta, is_overdue: bool) -> None:
    # Nobody but the scheduler takes it for failed, and that is gone.
    (watch,) = watched(monkeypatch, [dag()], [replace(run(4, "running"), beat=NOW - silent), run(5, "success")])
    assert watch.is_overdue is is_overdue


@pytest.mark.parametrize(
    ("kind", "schedule", "minutes"),
    [
        ("interval.CronDataIntervalTimetable", {"expression": "*/5 * * * *", "timezone": "UTC"}, [2, 7, 12]),
        ("trigger.CronTriggerTimetable", {"expression": "*/5 * * * *", "timezone": "UTC", "interval": 0.0}, [2, 7, 12]),
        ("interval.DeltaDataIntervalTimetable", {"delta": 420.0}, [7, 14, 21]),
        ("simple.OnceTimetable", {}, []),
        ("simple.NullTimetable", {}, []),
        ("nothing.OfAPlugin", {}, []),
    ],
)
def test_the_schedule_itself_says_when_runs_are_due(kind: str, schedule: dict[str, Any], minutes: list[int]) -> None:
    at = NOW + timedelta(minutes=3)
    due = dag(timetable={"__type": f"airflow.timetables.{kind}", "__var": schedule}).dues_after(at, 3)
    assert due == [at + timedelta(minutes=each) for each in minutes]


def test_a_schedule_of_working_days_is_not_overdue_at_the_weekend(monkeypatch: pytest.MonkeyPatch) -> None:
    # NOW is a Saturday; the runs of Thursday and Friday ended well.
    at_noon = {**EVERY_STEP, "__var": {"expression": "0 12 * * 1-5", "timezone": "UTC"}}
    ended = [NOW - timedelta(days=ago) for ago in (1, 2)]
    runs = [replace(run(0, "success"), due=each, ended=each.isoformat()) for each in ended]
    for later, is_overdue in ((timedelta(days=1), False), (timedelta(days=3), False), (timedelta(days=3, minutes=6), True)):
        monkeypatch.setitem(globals(), "NOW", NOW + later)
        (watch,) = watched(monkeypatch, [dag(timetable=at_noon)], runs)
        assert watch.is_overdue is is_overdue, later
        monkeypatch.undo()


def test_a_paused_dag_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (watch,) = watched(monkeypatch, [dag(paused=True)], [run(0, "success")])
    assert (watch.is_paused, watch.is_overdue, watch.told(named=True)) == (True, False, "Dag merge is paused.")
    assert watch.told(named=False) == "The Dag that merges it is paused."
    (watch,) = watched(monkeypatch, [dag(paused=True)], [run(5, "success")])
    assert (watch.is_overdue, watch.told(named=True)) == (True, "Dag merge is paused.")


@pytest.mark.parametrize(
    "other", [{"lake": "other"}, {"operator": "CdcMaintainOperator"}, {"operator": "CdcRebuildOperator"}, {"timetable": NO_SCHEDULE}]
)
def test_only_what_merges_this_lake_by_a_schedule_is_watched(monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]) -> None:
    assert watched(monkeypatch, [dag(**other)], [run(9, "failed")]) == []
    assert len(watched(monkeypatch, [dag(operator="Own")], [run(9, "failed")])) == 1


def test_a_dag_watches_the_flows_of_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run(0, "success", tables=("a.*",)), run(1, "success", tables=("c.d",))]
    assert [len(watched(monkeypatch, [dag()], runs, flow)) for flow in ("a.b", "c.d", "x.y")] == [1, 1, 0]
    assert len(watched(monkeypatch, [dag()], [*runs, run(2, "success")], "x.y")) == 1


def test_runs_by_hand_look_too_and_set_no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [run(ago, "failed") for ago in range(5)]
    (watch,) = watched(monkeypatch, [dag()], [*failed, run(0, "success", kind="manual")])
    assert (watch.is_overdue, watch.interval) == (False, STEP)
