"""A merge that leaves its job to YARN: the slot is free until the report is there, and nothing of the outcome is lost.

The job outlives the spark-submit that stands for YARN's; the ResourceManager is one that answers as its REST interface does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred

from airflow_cdc.triggers.report import CdcReportTrigger

TOPIC = "server.db.orders"
JOB = "application_1700000000000_0001"
REPORT = {"ok": True, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}


class ResourceManager:
    """Tells the state of one application, and remembers what it is asked to do."""

    def __init__(self) -> None:
        self.state, self.asked = ("RUNNING", "UNDEFINED"), []
        manager = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                state, final = manager.state
                self._answer({"app": {"state": state, "finalStatus": final, "diagnostics": ""}})

            def do_PUT(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                manager.asked.append((self.path, asked))
                self._answer({"state": "KILLED"})

            def _answer(self, document: Any) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def manager() -> Iterator[ResourceManager]:
    manager = ResourceManager()
    yield manager
    manager.server.shutdown()
    manager.server.server_close()


@pytest.fixture
def yarn(scene: Any, manager: ResourceManager) -> Any:
    """A scene whose job goes on when spark-submit has ended, until a file lets it."""
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": manager.url}
    scene.connect("spark_default", conn_type="spark", host="yarn", extra=extra)
    scene.land("0000000000")
    job, scene.go = scene.folder / "job.py", scene.folder / "go"
    job.write_text(scene.spark_submit.read_text())
    waits = f'while [ ! -e {scene.go} ]; do sleep 0.02; done; {sys.executable} {job} "$@"'
    scene.submitted = scene.folder / "submitted"
    scene.submit_by(
        f"#!/bin/sh\necho x >> {scene.submitted}\necho 'Submitted application {JOB}'\n({waits}) < /dev/null > /dev/null 2>&1 &\nexit 0\n"
    )
    return scene


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


def test_the_slot_is_free_while_the_job_runs_and_the_outcome_is_that_of_waiting(yarn: Any, context: Any) -> None:
    deferred = _defer(yarn.merge(deferrable=True, poke_interval=7), context)
    path, asked = deferred.trigger.serialize()
    assert path == "airflow_cdc.triggers.report.CdcReportTrigger"
    report = asked.pop("report")
    assert asked.pop("ask_at") > time.time()
    cluster = {"job": JOB, "spark_conn_id": "spark_default"}
    assert asked == {"lake_conn_id": "cdc_lake_default", "until": None, "poke_interval": 7, **cluster}
    assert not (yarn.lake / report).exists()
    yarn.go.touch()
    event = _event(deferred.trigger)
    assert event == {"status": "success", "told": {"why": "report", "job": JOB, "until": None}}
    assert yarn.conf["spark.yarn.submit.waitAppCompletion"] == "false"
    result = _resume(yarn.merge(deferrable=True), context, deferred, event)
    assert (result["rows"]["inserted"], result["flows"][TOPIC]["status"]) == (1, "applied")
    assert not (yarn.lake / report).exists()


def test_a_failed_flow_fails_the_task_that_was_deferred(yarn: Any, context: Any) -> None:
    deferred = _defer(yarn.merge(deferrable=True), context)
    error = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
    path = yarn.lake / deferred.trigger.serialize()[1]["report"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**REPORT, "ok": False, "error": error}))
    with pytest.raises(AirflowFailException, match=r"The run: SchemaChangeError: Column total shrank. Next step: Widen it."):
        _resume(yarn.merge(deferrable=True), context, deferred, _event(deferred.trigger))
    yarn.go.touch()


def test_a_job_that_is_lost_is_found_out_by_asking_the_cluster(yarn: Any, context: Any, manager: ResourceManager) -> None:
    merge = {"deferrable": True, "execution_timeout": timedelta(hours=1)}
    before = time.time()
    deferred = _defer(yarn.merge(**merge), context)
    asked = deferred.trigger.serialize()[1]
    assert before + 600 <= asked["ask_at"] <= time.time() + 600
    assert before + 3600 <= asked["until"] <= time.time() + 3600
    event = _event(_at(deferred.trigger, ask_at=0.0))
    assert event["told"] == {"why": "ask", "job": JOB, "until": asked["until"]}
    # It runs: wait on, no longer than was said at first.
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


def test_a_job_that_is_late_or_ended_by_a_user_is_killed(yarn: Any, context: Any, manager: ResourceManager) -> None:
    merge = {"deferrable": True, "execution_timeout": timedelta(seconds=5)}
    deferred = _defer(yarn.merge(**merge), context)
    event = _event(_at(deferred.trigger, until=1.0))
    assert event["told"] == {"why": "late", "job": JOB, "until": 1.0}
    with pytest.raises(AirflowException, match=rf"Job {JOB} left no report within execution_timeout .* it is killed"):
        _resume(yarn.merge(**merge), context, deferred, event)
    kill = (f"/ws/v1/cluster/apps/{JOB}/state", {"state": "KILLED"})
    assert manager.asked == [kill]
    asyncio.run(deferred.trigger.on_kill())
    assert manager.asked == [kill, kill]
    yarn.go.touch()


def test_where_nobody_is_named_who_could_kill_the_job_nobody_says_that_it_is_killed(yarn: Any, context: Any) -> None:
    yarn.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    merge = {"deferrable": True, "execution_timeout": timedelta(seconds=5)}
    deferred = _defer(yarn.merge(**merge), context)
    asked = deferred.trigger.serialize()[1]
    assert (asked["ask_at"], asked["spark_conn_id"]) == (None, None)
    with pytest.raises(AirflowException, match="it may still run"):
        _resume(yarn.merge(**merge), context, deferred, _event(_at(deferred.trigger, until=1.0)))
    yarn.go.touch()


def test_what_a_try_before_left_is_no_report_of_this_one(yarn: Any, context: Any, manager: ResourceManager) -> None:
    report = yarn.lake / _defer(yarn.merge(deferrable=True), context).trigger.serialize()[1]["report"]
    for extra in ({}, {"yarn_resourcemanager_webapp_address": manager.url}):
        yarn.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster", **extra})
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text(json.dumps(REPORT))
        _defer(yarn.merge(deferrable=True), context)
        assert not report.exists()
    yarn.go.touch()


def test_a_report_that_is_being_written_is_not_there_yet(scene: Any) -> None:
    scene.lake.mkdir()
    asked = {"lake_conn_id": "cdc_lake_default", "report": "r.json", **dict.fromkeys(("ask_at", "until", "job", "spark_conn_id"))}
    for text, is_done in (("", False), ('{"ok": tr', False), ('{"ok": true}', True)):
        (scene.lake / "r.json").write_text(text)
        assert CdcReportTrigger.look(**asked).is_done is is_done


def test_a_retry_takes_up_the_job_that_still_runs(yarn: Any, context: Any, needs_state_stores: None) -> None:
    class Store(dict[str, Any]):
        def set(self, key: str, value: Any) -> None:
            self[key] = value

    context["task_state_store"] = Store()
    merge = {"deferrable": True}
    for _ in range(2):
        deferred = _defer(yarn.merge(**merge), context)
        assert deferred.trigger.serialize()[1]["job"] == JOB
    assert yarn.submitted.read_text() == "x\n"
    yarn.go.touch()
    assert _resume(yarn.merge(**merge), context, deferred, _event(deferred.trigger))["rows"]["inserted"] == 1


def test_a_driver_on_this_machine_keeps_the_slot_and_says_so(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land("0000000000")
    assert scene.merge(deferrable=True).execute(context)["rows"]["inserted"] == 1
    assert "it is not deferred, and keeps the worker's slot" in capsys.readouterr().out


def test_a_spark_submit_that_is_told_to_wait_contradicts_it(yarn: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"waitAppCompletion=true: .*Next step: Take"):
        yarn.merge(deferrable=True, conf={"spark.yarn.submit.waitAppCompletion": "true"}).execute(context)
    assert not yarn.submitted.exists()


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
