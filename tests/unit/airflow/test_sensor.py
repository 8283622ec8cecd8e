"""Sensor and trigger: real files, real lake state, one question."""

from __future__ import annotations

import asyncio
import subprocess
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from airflow.sdk import DAG
from airflow.triggers.base import TriggerEvent

from airflow_cdc.model.errors import ArchiveNotFoundError, ConcurrentRunError
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.sensors.look import ArchiveNotReadableError
from airflow_cdc.triggers.archive import CdcArchiveTrigger
from airflow_cdc.triggers.look import Answer

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
WAITING = {"files": 1, "topics": {TOPIC: 1}}


def _sensor(**arguments: Any) -> CdcArchiveSensor:
    return CdcArchiveSensor(**{"task_id": "wait", "poke_interval": 0.01, "timeout": 0.05, **arguments})


def _trigger(**arguments: Any) -> CdcArchiveTrigger:
    given = {"archive_conn_id": "cdc_archive_default", "lake_conn_id": "cdc_lake_default", "tables": [], "min_files": 1}
    return CdcArchiveTrigger(**{**given, "poke_interval": 0.01, **arguments})


async def _first_event(trigger: CdcArchiveTrigger, seconds: float = 10) -> TriggerEvent:
    return await asyncio.wait_for(anext(trigger.run()), seconds)


def _apply_all(scene: Any) -> None:
    """Commit what is pending, as a job would."""
    command = [scene.spark_submit, "--archive", scene.archive, "--lake", scene.lake, "--report", scene.folder / "report.json"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def test_hands_on_what_waits(scene: Any) -> None:
    scene.land("0000000000")
    assert _sensor().execute({}) == WAITING


def test_files_that_the_lake_has_applied_do_not_wait(scene: Any) -> None:
    scene.land("0000000000")
    _apply_all(scene)
    with pytest.raises(AirflowSensorTimeout):
        _sensor().execute({})
    scene.land("0000000001")
    assert _sensor().execute({}) == WAITING


def test_files_that_were_looked_into_but_not_applied_still_wait(scene: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    scene.submit_by(scene.spark_submit.read_text().replace("if not matches_any(topic, job.table)", f"if topic == {TOPIC!r}"))
    _apply_all(scene)
    assert _sensor().execute({}) == WAITING


def test_the_same_root_spelled_otherwise_for_sensor_and_job_would_forget_what_is_applied(scene: Any) -> None:
    # The state goes by the archive's URI: hook and job must be given the same one, which test_merge_operator shows they are.
    scene.land("0000000000")
    _apply_all(scene)
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host=f"{scene.archive}/")
    with pytest.raises(AirflowSensorTimeout):
        _sensor().execute({})


def test_waits_for_enough_files_of_the_chosen_tables(scene: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    assert _sensor(tables="*.orders").execute({}) == WAITING
    assert _sensor(min_files=2).execute({})["files"] == 2
    with pytest.raises(AirflowSensorTimeout):
        _sensor(tables=["*.orders"], min_files=2).execute({})


def test_looks_before_it_defers(scene: Any) -> None:
    scene.land("0000000000")
    assert _sensor(deferrable=True).execute({}) == WAITING


def test_defers_with_every_argument(scene: Any) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        _sensor(deferrable=True, tables="a.*, b", min_files=3, poke_interval=7, timeout=90).execute({})
    assert deferred.value.trigger.serialize() == (
        "airflow_cdc.triggers.archive.CdcArchiveTrigger",
        {
            "archive_conn_id": "cdc_archive_default",
            "lake_conn_id": "cdc_lake_default",
            "tables": ["a.*", "b"],
            "min_files": 3,
            "poke_interval": 7.0,
        },
    )
    assert (deferred.value.method_name, deferred.value.timeout) == ("execute_complete", timedelta(seconds=90))


@pytest.mark.parametrize("deferrable", [False, True])
def test_with_no_time_to_wait_it_looks_once_and_a_run_with_nothing_to_do_is_skipped(scene: Any, deferrable: bool) -> None:
    # Deferred with a timeout of 0 it would need a triggerer to find out that there is nothing to do.
    with pytest.raises(AirflowSkipException):
        _sensor(deferrable=deferrable, timeout=0, soft_fail=True).execute({})


def test_what_the_trigger_saw_is_what_the_sensor_hands_on() -> None:
    assert _sensor().execute_complete({}, {"status": "success", "found": WAITING}) == WAITING


@pytest.mark.parametrize(("transient", "kind"), [(True, AirflowException), (False, AirflowFailException)])
def test_an_error_of_the_trigger_fails_the_task_with_its_text(transient: bool, kind: type[Exception]) -> None:
    with pytest.raises(AirflowException, match="no such bucket") as failed:
        _sensor().execute_complete({}, {"status": "error", "message": "no such bucket", "transient": transient})
    assert type(failed.value) is kind


def test_a_missing_archive_fails_without_retries(scene: Any) -> None:
    scene.archive.rmdir()
    with pytest.raises(AirflowFailException, match=r"There is no archive.*Next step"):
        _sensor().execute({})


@pytest.mark.parametrize("waiting", ["poking", "deferred"])
def test_soft_fail_does_not_skip_a_missing_archive(scene: Any, waiting: str) -> None:
    # Skipped every ten minutes, a typo in the connection would stay unseen for ever.
    scene.archive.rmdir()
    sensor = _sensor(soft_fail=True)
    event = {"status": "error", "message": "There is no archive", "transient": False}
    wait = {
        "poking": lambda: sensor.execute({}),
        "deferred": lambda: sensor.resume_execution("execute_complete", {"event": event}, {}),
    }[waiting]
    with pytest.raises(ArchiveNotReadableError, match="There is no archive"):
        wait()


@pytest.mark.usefixtures("airflow_database")
@pytest.mark.parametrize("soft_fail", [False, True])
@pytest.mark.parametrize("error", ["terminal", "passing"])
def test_what_airflow_retries_of_a_look_that_fails(scene: Any, monkeypatch: pytest.MonkeyPatch, soft_fail: bool, error: str) -> None:
    def unplugged(**_: Any) -> None:
        raise ConnectionError("unplugged")

    if error == "terminal":
        scene.archive.rmdir()
    else:
        monkeypatch.setattr(CdcArchiveTrigger, "look", staticmethod(unplugged))
    with DAG(dag_id=f"waits_{error}_{soft_fail}", start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as dag:
        _sensor(timeout=0, soft_fail=soft_fail, retries=1, retry_delay=timedelta(0))
    scene.save(dag)
    (task,) = dag.test().get_task_instances()
    # docs/reference/sensors.md: only what is terminal, and only without soft_fail.
    tries = 1 if (error, soft_fail) == ("terminal", False) else 2
    assert (str(task.state), task.try_number) == ("failed", tries)


def test_the_connections_and_tables_are_templated() -> None:
    expected = {"archive_conn_id", "lake_conn_id", "tables", "archived_since", "archived_until"}
    assert set(CdcArchiveSensor.template_fields) == expected


def test_the_trigger_fires_when_a_file_lands(scene: Any) -> None:
    async def story() -> TriggerEvent:
        waiting = asyncio.ensure_future(_first_event(_trigger()))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        scene.land("0000000000")
        return await waiting

    assert asyncio.run(story()).payload == {"status": "success", "found": WAITING}


def test_the_trigger_leaves_the_loop_to_others_while_it_looks(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    threads: list[threading.Thread] = []

    def look(**_: Any) -> Answer:
        threads.append(threading.current_thread())
        return Answer(is_done=True, found=WAITING)

    monkeypatch.setattr(CdcArchiveTrigger, "look", staticmethod(look))
    asyncio.run(_first_event(_trigger()))
    assert threads[0] is not threading.main_thread()


def test_the_trigger_rebuilt_from_what_it_serializes_is_the_same(scene: Any) -> None:
    trigger = _trigger(tables=["a"], min_files=2)
    assert CdcArchiveTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()


def test_an_error_becomes_an_event_with_whether_to_try_again(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.archive.rmdir()
    event = asyncio.run(_first_event(_trigger())).payload
    assert (event["status"], event["transient"]) == ("error", ArchiveNotFoundError.transient)
    assert "There is no archive" in event["message"]

    def unplugged(**_: Any) -> None:
        raise ConnectionError("unplugged")

    monkeypatch.setattr(CdcArchiveTrigger, "look", staticmethod(unplugged))
    event = asyncio.run(_first_event(_trigger())).payload
    assert event == {"status": "error", "message": "ConnectionError: unplugged", "transient": True}
    assert ConcurrentRunError.transient is True


@pytest.mark.parametrize(("refusal", "kind"), [("Access Denied", AirflowFailException), ("The token has expired", AirflowException)])
def test_a_refused_key_fails_at_once_and_an_expired_one_is_tried_again(
    scene: Any, monkeypatch: pytest.MonkeyPatch, refusal: str, kind: type[Exception]
) -> None:
    def refused(**_: Any) -> Answer:
        raise PermissionError(refusal)

    monkeypatch.setattr(CdcArchiveTrigger, "look", staticmethod(refused))
    with pytest.raises(AirflowException, match=refusal) as failed:
        _sensor().execute({})
    assert type(failed.value) is kind
    event = asyncio.run(_first_event(_trigger())).payload
    assert event["transient"] is (kind is AirflowException)
