"""A merge that leaves its job to YARN: the slot is free until the report is there, and nothing of the outcome is lost.

The job outlives the spark-submit that stands for YARN's; the ResourceManager is one that answers as its REST interface does.
"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred

from airflow_cdc.triggers.report import CdcReportTrigger
from tests.support.spark_provider import follows_jobs
from tests.unit.airflow.resource_manager import JOB, ResourceManager

TOPIC = "server.db.orders"
REPORT = {"ok": True, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}


def _defer(operator: Any, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    return deferred.value


def _event(trigger: CdcReportTrigger, seconds: float = 20) -> dict[str, Any]:
    rebuilt = CdcReportTrigger(**{**trigger.serialize()[1], "poke_interval": 0.02})
    payload: dict[str, Any] = asyncio.run(asyncio.wait_for(anext(rebuilt.run()), seconds)).payload
    return payload


def _at(trigger: CdcReportTrigger, **asked: Any) -> CdcReportTrigger:
    return CdcReportTrigger(**{**trigger.serialize()[1], **asked})


def _resume(operator: Any, context: Any, deferred: TaskDeferred, event: dict[str, Any]) -> Any:
    # The task that goes on is another process: it knows what was serialized, and nothing else.
    assert deferred.method_name == "execute_complete"
    return operator.execute_complete(context, json.loads(json.dumps(event)))


@follows_jobs
def test_the_slot_is_free_while_the_job_runs_and_the_outcome_is_that_of_waiting(yarn: Any, context: Any) -> None:
    deferred = _defer(yarn.merge(deferrable=True, poke_interval=7), context)
    path, asked = deferred.trigger.serialize()
    assert path == "airflow_cdc.triggers.report.CdcReportTrigger"
    report = asked.pop("report")
    assert asked.pop("ask_at") > time.time()
    cluster = {"job": JOB, "spark_conn_id": "spark_default", "keytab": None, "principal": None, "rm_auth": None}
    assert asked == {"lake_conn_id": "cdc_lake_default", "until": None, "poke_interval": 7, **cluster}
    assert not (yarn.lake / report).exists()
    yarn.go.touch()
    event = _event(deferred.trigger)
    assert event == {"status": "success", "found": {"why": "report", "job": JOB, "until": None, "report": report}}
    assert yarn.conf["spark.yarn.submit.waitAppCompletion"] == "false"
    result = _resume(yarn.merge(deferrable=True), context, deferred, event)
    assert (result["rows"]["inserted"], result["flows"][TOPIC]["status"]) == (1, "applied")
    assert not (yarn.lake / report).exists()


@follows_jobs
def test_a_failed_flow_fails_the_task_that_was_deferred(yarn: Any, context: Any) -> None:
    deferred = _defer(yarn.merge(deferrable=True), context)
    error = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
    path = yarn.lake / deferred.trigger.serialize()[1]["report"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**REPORT, "ok": False, "error": error}))
    with pytest.raises(AirflowFailException, match=r"The run: SchemaChangeError: Column total shrank. Next step: Widen it."):
        _resume(yarn.merge(deferrable=True), context, deferred, _event(deferred.trigger))
    yarn.go.touch()


@follows_jobs
def test_a_job_that_is_lost_is_found_out_by_asking_the_cluster(yarn: Any, context: Any, manager: ResourceManager) -> None:
    merge = {"deferrable": True, "execution_timeout": timedelta(hours=1)}
    before = time.time()
    deferred = _defer(yarn.merge(**merge), context)
    asked = deferred.trigger.serialize()[1]
    assert before + 600 <= asked["ask_at"] <= time.time() + 600
    assert before + 3600 <= asked["until"] <= time.time() + 3600
    event = _event(_at(deferred.trigger, ask_at=0.0))
    assert event["found"] == {"why": "ask", "job": JOB, "until": asked["until"], "report": asked["report"]}
    # It runs: wait on, no longer than was set at first.
    with pytest.raises(TaskDeferred) as again:
        _resume(yarn.merge(**merge), context, deferred, event)
    assert again.value.trigger.serialize()[1]["until"] == asked["until"]
    manager.state = ("FINISHED", "FAILED")
    with pytest.raises(AirflowException, match=rf"Job {JOB} ended and left no report"):
        _resume(yarn.merge(**merge), context, again.value, event)
    # A cluster that does not answer says nothing of the job.
    manager.server.shutdown()
    manager.server.server_close()
    with pytest.raises(TaskDeferred):
        _resume(yarn.merge(**merge), context, again.value, event)
    yarn.go.touch()


@follows_jobs
def test_a_job_that_is_late_or_ended_by_a_user_is_killed(yarn: Any, context: Any, manager: ResourceManager) -> None:
    merge = {"deferrable": True, "execution_timeout": timedelta(seconds=5)}
    deferred = _defer(yarn.merge(**merge), context)
    event = _event(_at(deferred.trigger, until=1.0))
    assert event["found"] == {"why": "late", "job": JOB, "until": 1.0, "report": deferred.trigger.serialize()[1]["report"]}
    with pytest.raises(AirflowException, match=rf"Job {JOB} left no report within execution_timeout .* it is killed"):
        _resume(yarn.merge(**merge), context, deferred, event)
    kill = (f"/ws/v1/cluster/apps/{JOB}/state", {"state": "KILLED"})
    assert manager.asked == [kill]
    asyncio.run(deferred.trigger.on_kill())
    assert manager.asked == [kill, kill]
    yarn.go.touch()


@follows_jobs
def test_where_nobody_is_named_who_could_kill_the_job_it_is_not_reported_as_killed(yarn: Any, context: Any) -> None:
    yarn.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    merge = {"deferrable": True, "execution_timeout": timedelta(seconds=5)}
    deferred = _defer(yarn.merge(**merge), context)
    asked = deferred.trigger.serialize()[1]
    assert (asked["ask_at"], asked["spark_conn_id"]) == (None, None)
    with pytest.raises(AirflowFailException, match=r"within execution_timeout .* it may still run.*a retry would run beside it"):
        _resume(yarn.merge(**merge), context, deferred, _event(_at(deferred.trigger, until=1.0)))
    yarn.go.touch()


@follows_jobs
def test_what_another_try_or_another_airflow_leaves_is_no_report_of_this_job(yarn: Any, context: Any, manager: ResourceManager) -> None:
    # Equal Dag, run and task ids are no reason to read each other's reports: two Airflows may share a lake.
    known = set()
    for extra in ({}, {"yarn_resourcemanager_webapp_address": manager.url}):
        yarn.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster", **extra})
        for _ in range(2):
            known.add(_defer(yarn.merge(deferrable=True), context).trigger.serialize()[1]["report"])
    assert len(known) == 4
    assert {name.rsplit("/", 1)[0] for name in known} == {"_cdc/reports"}


def test_a_report_that_is_being_written_is_not_there_yet(scene: Any) -> None:
    scene.lake.mkdir()
    asked = {"lake_conn_id": "cdc_lake_default", "report": "r.json", **dict.fromkeys(("ask_at", "until", "job", "spark_conn_id"))}
    for text, is_done in (("", False), ('{"ok": tr', False), ('{"ok": true}', True)):
        (scene.lake / "r.json").write_text(text)
        assert CdcReportTrigger.look(**asked).is_done is is_done


def test_a_driver_on_this_machine_keeps_the_slot_and_logs_it(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land("0000000000")
    assert scene.merge(deferrable=True).execute(context)["rows"]["inserted"] == 1
    assert "it is not deferred, and keeps the worker's slot" in capsys.readouterr().out


@follows_jobs
def test_a_spark_submit_that_is_set_to_wait_contradicts_it(yarn: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"waitAppCompletion=true: .*Next step: Take"):
        yarn.merge(deferrable=True, conf={"spark.yarn.submit.waitAppCompletion": "true"}).execute(context)
    assert yarn.submissions == 0


@pytest.mark.deep
def test_airflow_itself_takes_a_deferred_merge_to_its_end(yarn: Any, airflow_database: None) -> None:
    from airflow.sdk import DAG

    with DAG("cdc_deferred", schedule=None) as dag:
        yarn.merge(deferrable=True, poke_interval=0.1)
    yarn.save(dag)
    yarn.go.touch()
    run = dag.test()
    assert str(run.state) == "success"
    assert (yarn.lake / "_cdc" / "flows" / TOPIC / "commits").is_dir()
