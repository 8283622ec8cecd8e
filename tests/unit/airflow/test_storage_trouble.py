"""A storage that fails while a job runs in the cluster: nobody gives the job up, and no second one runs beside it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import fsspec
import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred

from airflow_cdc.triggers import report as report_trigger
from airflow_cdc.triggers.report import CdcReportTrigger
from tests.support.spark_provider import follows_jobs
from tests.unit.airflow.resource_manager import JOB, ResourceManager

TOPIC = "server.db.orders"
KILL = (f"/ws/v1/cluster/apps/{JOB}/state", {"state": "KILLED"})


@pytest.fixture
def outage(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make the next reads of the lake's file system fail."""
    local = fsspec.get_filesystem_class("file")
    reads = local.cat_file

    def begin(times: float, error: Exception) -> None:
        left = [times]

        def cat_file(self: Any, path: str, **range_: Any) -> bytes:
            if "_cdc/reports/" in path and left[0] > 0:
                left[0] -= 1
                raise error
            found: bytes = reads(self, path, **range_)
            return found

        monkeypatch.setattr(local, "cat_file", cat_file)

    return begin


def _deferred(operator: Any, context: Any) -> CdcReportTrigger:
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    return CdcReportTrigger(**{**deferred.value.trigger.serialize()[1], "poke_interval": 0.01})  # type: ignore[union-attr]


def _event(trigger: CdcReportTrigger) -> dict[str, Any]:
    found: dict[str, Any] = asyncio.run(asyncio.wait_for(anext(trigger.run()), 20)).payload
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@follows_jobs
def test_a_storage_error_that_passes_is_logged_each_time_and_costs_nothing(
    yarn: Any, context: Any, outage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    trigger = _deferred(yarn.merge(deferrable=True), context)
    outage(3, ConnectionError("unplugged"))
    yarn.go.touch()
    event = _event(trigger)
    assert (event["status"], event["found"]["why"]) == ("success", "report")
    assert yarn.merge(deferrable=True).execute_complete(context, event)["rows"]["inserted"] == 1
    assert capsys.readouterr().out.count("The look failed and is repeated in 0.01 seconds: ConnectionError: unplugged") == 3


@follows_jobs
@pytest.mark.parametrize("error", [ConnectionError("unplugged"), PermissionError("Forbidden")], ids=["passing", "staying"])
def test_a_job_is_waited_for_on_where_the_triggerer_alone_cannot_look(
    yarn: Any, context: Any, manager: ResourceManager, outage: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trigger = _deferred(yarn.merge(deferrable=True), context)
    monkeypatch.setattr(report_trigger, "_TOLERATED", 0.1)
    monkeypatch.setattr(report_trigger, "_TOLERATED_TERMINAL", 0.1)
    outage(float("inf"), error)
    event = _event(trigger)
    assert event["found"] == {"why": "error", "job": JOB, "until": None, "report": trigger.question["report"]}
    outage(0, error)
    with pytest.raises(TaskDeferred) as again:
        yarn.merge(deferrable=True).execute_complete(context, event)
    assert again.value.trigger.serialize()[1]["report"] == trigger.question["report"]  # type: ignore[union-attr]
    assert (manager.asked, yarn.submissions) == ([], 1)


@follows_jobs
@pytest.mark.parametrize(
    ("error", "kind"), [(ConnectionError("unplugged"), AirflowException), (PermissionError("Forbidden"), AirflowFailException)]
)
def test_a_job_whose_report_nobody_can_look_for_is_killed_before_the_task_fails(
    yarn: Any, context: Any, manager: ResourceManager, outage: Any, error: Exception, kind: type[Exception]
) -> None:
    trigger = _deferred(yarn.merge(deferrable=True), context)
    outage(float("inf"), error)
    event = {"status": "error", "message": "m", "transient": True, **trigger.event_of_error()}
    with pytest.raises(AirflowException, match=rf"The report of job {JOB} cannot be read: .*; it is killed") as failed:
        yarn.merge(deferrable=True).execute_complete(context, event)
    assert type(failed.value) is kind
    assert manager.asked == [KILL]


@follows_jobs
def test_a_task_that_wakes_up_in_an_outage_waits_on(yarn: Any, context: Any, manager: ResourceManager, outage: Any) -> None:
    trigger = _deferred(yarn.merge(deferrable=True), context)
    trigger.question["ask_at"] = 0.0
    event = _event(trigger)
    assert event["found"]["why"] == "ask"
    outage(float("inf"), ConnectionError("unplugged"))
    with pytest.raises(TaskDeferred):
        yarn.merge(deferrable=True).execute_complete(context, event)
    assert manager.asked == []


@follows_jobs
def test_a_job_that_nobody_can_kill_gets_no_second_one_beside_it(yarn: Any, context: Any, outage: Any) -> None:
    yarn.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    trigger = _deferred(yarn.merge(deferrable=True), context)
    # Nobody can be asked, and nothing bounds the wait: then something must.
    week = 7 * 24 * 3600
    assert time.time() + week - 60 < trigger.question["until"] <= time.time() + week
    outage(float("inf"), ConnectionError("unplugged"))
    event = {"status": "error", "message": "m", "transient": True, **trigger.event_of_error()}
    with pytest.raises(AirflowFailException, match=rf"it may still run.*yarn application -kill {JOB}"):
        yarn.merge(deferrable=True).execute_complete(context, event)


def test_what_would_wait_for_ever_is_refused() -> None:
    question = {"lake_conn_id": "l", "report": "r.json", **dict.fromkeys(("ask_at", "until", "job", "spark_conn_id"))}
    # Of what a trigger's making raises, the triggerer outlives this type alone.
    with pytest.raises(TypeError, match="it could wait for ever"):
        CdcReportTrigger(poke_interval=1, **question)
    CdcReportTrigger(poke_interval=1, **{**question, "job": JOB})
