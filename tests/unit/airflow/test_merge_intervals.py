"""Which archived files a run of the merge asks for: by its data interval, by times, or all that waits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

BEGIN = datetime(2026, 11, 22, 14, tzinfo=timezone.utc)
END = BEGIN + timedelta(hours=1)
SINCE, UNTIL = ("--since", "2026-11-22T14:00:00+00:00"), ("--until", "2026-11-22T15:00:00+00:00")


def asked(scene: Any, context: Any, run: Any, **arguments: Any) -> set[tuple[str, str]]:
    scene.land("0000000000")
    scene.merge(**arguments).execute({**context, "dag_run": run})
    return {pair for pair in scene.pairs if pair[0] in ("--since", "--until")}


def run_of(kind: str, begin: datetime | None = BEGIN, end: datetime | None = END) -> Any:
    return SimpleNamespace(run_type=kind, data_interval_start=begin, data_interval_end=end)


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (run_of("backfill"), {SINCE, UNTIL}),
        # Late files are taken too.
        (run_of("scheduled"), {UNTIL}),
        # A form fills in the moment of the click, which says nothing of the archive.
        (run_of("manual"), set()),
        (run_of("asset_triggered", None, None), set()),
        (run_of("scheduled", None, None), set()),
        # A plain cron text gives intervals without length: there nothing would ever be taken.
        (run_of("backfill", BEGIN, BEGIN), set()),
    ],
)
def test_a_run_takes_the_files_of_its_data_interval_where_it_has_one(
    scene: Any, context: Any, run: Any, expected: set[tuple[str, str]]
) -> None:
    assert asked(scene, context, run, by_data_interval=True) == expected


def test_times_that_are_given_go_before_the_runs_interval(scene: Any, context: Any) -> None:
    run = run_of("backfill")
    assert asked(scene, context, run, by_data_interval=True, archived_since="2026-11-22T14:00:00Z") == {SINCE}
    assert asked(scene, context, run) == set()


def test_what_is_no_time_stops_before_spark_is_started(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="since is 'now'"):
        scene.merge(archived_since="now").execute(context)


def test_an_airflow_run_has_the_attributes_that_are_asked_for() -> None:
    from airflow.sdk.api.datamodels._generated import DagRun, DagRunType

    assert {"run_type", "data_interval_start", "data_interval_end"} <= DagRun.model_fields.keys()
    assert {"backfill", "scheduled", "manual", "asset_triggered"} <= {kind.value for kind in DagRunType}
