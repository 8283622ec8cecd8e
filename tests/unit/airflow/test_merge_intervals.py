"""Which archived files a run's sensor and merge ask for, both the same: by its data interval, by times, or all that waits."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, TaskDeferred

from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.triggers.archive import CdcArchiveTrigger

BEGIN = datetime(2026, 11, 22, 14, tzinfo=timezone.utc)
END = BEGIN + timedelta(hours=1)
SINCE, UNTIL = ("--since", "2026-11-22T14:00:00+00:00"), ("--until", "2026-11-22T15:00:00+00:00")


def asked(scene: Any, context: Any, run: Any, **arguments: Any) -> set[tuple[str, str]]:
    scene.land("0000000000")
    context = {**context, "dag_run": run}
    question = CdcArchiveSensor(task_id="wait", **arguments).question(context)
    scene.merge(**arguments).execute(context)
    found = {pair for pair in scene.pairs if pair[0] in ("--since", "--until")}
    # Else the sensor calls for files that the merge leaves, and Spark starts for nothing.
    assert {(f"--{name}", question[name]) for name in ("since", "until") if name in question} == found
    return found


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


def test_a_scheduled_run_whose_interval_ended_before_the_files_came_is_skipped_without_spark(
    scene: Any, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    # Files that land now, of which an hour of last year knows nothing.
    for name in ("0000000000", "0000000001"):
        scene.land(name)
    ended = datetime(2025, 11, 22, tzinfo=timezone.utc)
    before = {**context, "dag_run": run_of("scheduled", ended - timedelta(hours=1), ended)}
    sensor = CdcArchiveSensor(task_id="wait", by_data_interval=True, timeout=0, soft_fail=True)
    with pytest.raises(AirflowSkipException):
        sensor.execute(before)
    assert "2 more wait that were archived outside of this run's interval" in capsys.readouterr().out
    by_hand = {**context, "dag_run": run_of("manual")}
    assert sensor.execute(by_hand)["files"] == 2


def test_a_deferred_sensor_waits_for_the_files_of_its_runs_interval(scene: Any, context: Any) -> None:
    sensor = CdcArchiveSensor(task_id="wait", by_data_interval=True, timeout=60, deferrable=True)
    scene.land("0000000000")
    with pytest.raises(TaskDeferred) as deferred:
        sensor.execute({**context, "dag_run": run_of("backfill", BEGIN - timedelta(days=400), END - timedelta(days=400))})
    arguments = deferred.value.trigger.serialize()[1]
    assert (arguments["since"], arguments["until"]) == ("2025-10-18T14:00:00+00:00", "2025-10-18T15:00:00+00:00")
    assert not CdcArchiveTrigger.look(**{name: value for name, value in arguments.items() if name != "poke_interval"}).is_done


def test_an_airflow_run_has_the_attributes_that_are_asked_for() -> None:
    from airflow.sdk.api.datamodels._generated import DagRun, DagRunType

    assert {"run_type", "data_interval_start", "data_interval_end"} <= DagRun.model_fields.keys()
    assert {"backfill", "scheduled", "manual", "asset_triggered"} <= {kind.value for kind in DagRunType}


def test_a_partitioned_run_takes_the_files_of_its_partition(scene: Any, context: Any) -> None:
    from airflow.sdk.execution_time import macros

    scene.land("0000000000")
    templates = {"archived_since": "{{ partition_key }}", "archived_until": "{{ macros.ds_add(partition_key, 1) }}"}
    of_partition = {**context, "dag_run": run_of("scheduled", None, None), "partition_key": "2026-11-22", "macros": macros}
    sensor, merge = CdcArchiveSensor(task_id="wait", **templates), scene.merge(**templates)
    for task in (sensor, merge):
        task.render_template_fields(of_partition)
    merge.execute(of_partition)
    day = {("--since", "2026-11-22T00:00:00+00:00"), ("--until", "2026-11-23T00:00:00+00:00")}
    assert {pair for pair in scene.pairs if pair[0] in ("--since", "--until")} == day
    assert {(f"--{name}", sensor.question(of_partition)[name]) for name in ("since", "until")} == day


@pytest.mark.skipif(version("apache-airflow-core") < "3.2", reason="Airflow 3.1 exports no callback for it")
def test_a_merging_dag_may_have_a_deadline(scene: Any, airflow_database: None) -> None:
    from airflow.providers.smtp.notifications.smtp import SmtpNotifier
    from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference

    late = AsyncCallback(
        SmtpNotifier, kwargs={"from_email": "a@example.com", "to": "b@example.com", "subject": "{{ dag_run.dag_id }} is late"}
    )
    alert = DeadlineAlert(reference=DeadlineReference.DAGRUN_QUEUED_AT, interval=timedelta(minutes=30), callback=late)
    with DAG("cdc_with_deadline", schedule=None, deadline=alert) as dag:
        scene.merge()
    # Airflow refuses an alert that it cannot keep.
    scene.save(dag)
