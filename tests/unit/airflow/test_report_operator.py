"""A merge that another operator submitted: its report is taken from the lake, and ends the task as the merge operator's would."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException, BaseOperator, TaskDeferred
from airflow.sdk import DAG, Asset, AssetAlias

from airflow_cdc.assets import table_asset, tables_alias
from airflow_cdc.operators.maintain import CdcMaintainOperator
from airflow_cdc.operators.report import CdcMaintainReportOperator, CdcReportOperator
from airflow_cdc.submitters.cdc_job import CdcJob
from airflow_cdc.triggers.report import CdcReportTrigger

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
REPORT = {"ok": False, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}
DONE = {**REPORT, "ok": True}
TRANSIENT = {"type": "ConcurrentRunError", "message": "Another run was first.", "next_step": "Run again.", "transient": True}
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}


class Submitting(BaseOperator):
    """Stands for a service's operator."""

    template_fields = ("job_driver",)

    def __init__(self, *, job_driver: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job_driver = job_driver


class Service:
    """A service that runs merges by the arguments that a task renders."""

    def __init__(self, scene: Any, context: dict[str, Any]) -> None:
        self.scene = scene
        self._context = context

    def arguments(self, number: int = 1, *, task_id: str = "merge", **asked: Any) -> list[str]:
        """Return the arguments of a try's job."""
        with DAG("cdc", schedule=None):
            task = Submitting(task_id=task_id, job_driver=CdcJob(application="s3://code/apply.py", **asked).emr_serverless())
        instance = SimpleNamespace(**{**vars(self._context["ti"]), "task_id": task_id, "try_number": number})
        task.render_template_fields({**self._context, "ti": instance, "task": task, "dag": task.dag})
        found: list[str] = task.job_driver["sparkSubmit"]["entryPointArguments"]
        return found

    def run(self, number: int = 1, **asked: Any) -> None:
        """Run a try's job."""
        subprocess.run([str(self.scene.spark_submit), *self.arguments(number, **asked)], check=True, timeout=60)

    def leaves(self, document: dict[str, Any] | str, number: int = 1, **asked: Any) -> None:
        """Write this in the place of the report of a try's job."""
        arguments = self.arguments(number, **asked)
        place = Path(arguments[arguments.index("--report") + 1])
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(document if isinstance(document, str) else json.dumps(document))

    @property
    def reports(self) -> list[str]:
        """The reports in the lake."""
        return sorted(path.name for path in self.scene.lake.joinpath("_cdc", "reports").glob("*"))


@pytest.fixture
def service(scene: Any, context: Any) -> Service:
    context["ti"].task_id = "report"
    return Service(scene, context)


def report(**given: Any) -> CdcReportOperator:
    return CdcReportOperator(**{"task_id": "report", "submitted_by": "merge", "deferrable": False, **given})


def announced(operator: Any, context: dict[str, Any]) -> dict[str, Any]:
    """Execute an operator; return its result and the extras of its asset events, with the events of an alias by the assets it adds."""
    from airflow.sdk.execution_time.context import OutletEventAccessors

    context["outlet_events"] = OutletEventAccessors()
    events: dict[str, Any] = {"result": operator.execute(context)}
    for outlet in operator.outlets:
        accessor = context["outlet_events"][outlet]
        if isinstance(outlet, AssetAlias):
            events |= {f"alias {event.dest_asset_key.uri}": event.extra for event in accessor.asset_alias_events}
        else:
            events[outlet.uri] = accessor.extra
    return events


def failed(name: str, error: dict[str, Any]) -> dict[str, Any]:
    return {"flow": name, "status": "failed", "table": f"l/{name}", "batches": [], "error": error}


# As the merge operator.


def test_result_and_asset_events_are_those_of_the_merge_operator(scene: Any, service: Service, context: Any) -> None:
    outlets = [Asset("x-cdc://lake/orders"), table_asset(TOPIC), table_asset(OTHER_TOPIC), tables_alias()]
    scene.land("0000000000")
    service.run()
    ours = announced(report(outlets=list(outlets)), context)
    scene.lake.rename(scene.folder / "taken")
    theirs = announced(scene.merge(outlets=list(outlets)), context)

    assert ours == theirs
    assert list(ours) == ["result", "x-cdc://lake/orders", outlets[1].uri, f"alias {outlets[1].uri}"]
    assert ours["result"]["flows"][TOPIC]["status"] == "applied"


@pytest.mark.parametrize("error", [TRANSIENT, TERMINAL], ids=["transient", "terminal"])
def test_a_failed_flow_fails_the_task_by_the_jobs_own_cause_and_not_by_a_retry(service: Service, context: Any, error: Any) -> None:
    service.leaves({**REPORT, "flows": [failed(TOPIC, error)]})
    with pytest.raises(AirflowFailException) as ended:
        report().execute(context)
    first, cause, again = str(ended.value).splitlines()
    assert first == "1 of 1 flows failed."
    assert cause == f"{TOPIC}: {error['type']}: {error['message']} Next step: {error['next_step']}"
    assert again == "The job is run again by clearing the task merge."
    # Airflow keeps no result of a failed task.
    assert context["ti"].pushed["return_value"]["flows"][TOPIC]["error"] == error
    assert service.reports == []


def test_a_run_with_nothing_pending_is_skipped_unless_an_earlier_try_of_the_job_may_have_applied_it(service: Service, context: Any) -> None:
    service.leaves(DONE, 1)
    with pytest.raises(AirflowSkipException):
        report().execute(context)
    service.leaves(DONE, 2)
    assert report().execute(context)["flows"] == {}


def test_too_many_rejects_fail_the_task(scene: Any, service: Service, context: Any) -> None:
    scene.land("0000000000")
    service.run()
    (name,) = service.reports
    document = json.loads(scene.lake.joinpath("_cdc/reports", name).read_text())
    document["flows"][0]["batches"][0]["events"] |= {"read": 10, "merged": 9, "rejected": 1}
    service.leaves(document)
    with pytest.raises(AirflowFailException, match=r"Too many records of 1 flows were set aside"):
        report(fail_on_rejects="any").execute(context)


def test_an_outlet_of_another_lake_is_refused(service: Service, context: Any) -> None:
    service.leaves(DONE)
    with pytest.raises(AirflowFailException, match=r"Next step: Give table_asset and the task the same lake_conn_id"):
        report(outlets=[table_asset(TOPIC, lake_conn_id="other")]).execute(context)
    assert len(service.reports) == 1


def test_a_maintenances_report_ends_its_task_as_the_maintain_operator_would(scene: Any, service: Service, context: Any) -> None:
    done = {"ok": True, "lake": "l", "dry_run": False, "reports_removed": 2, "flows": [], "error": None}
    taking = {"task_id": "report", "submitted_by": "merge"}
    service.leaves(done)
    ours = CdcMaintainReportOperator(**taking).execute(context)
    scene.submit_leaves(done, exit_code=0)
    assert ours == CdcMaintainOperator(task_id="m", spark_binary=str(scene.spark_submit)).execute(context)
    assert service.reports == []

    service.leaves({**done, "ok": False, "error": TERMINAL}, 2)
    with pytest.raises(AirflowFailException, match=r"The run: SchemaChangeError: Column total shrank"):
        CdcMaintainReportOperator(**taking).execute(context)


# Which report.


def test_the_report_of_the_last_try_is_taken_and_those_of_earlier_ones_go_with_it(service: Service, context: Any) -> None:
    service.leaves({**REPORT, "error": TERMINAL}, 2)
    service.leaves(DONE, 11)
    assert report().execute(context)["flows"] == {}
    assert service.reports == []


def test_a_report_that_was_taken_is_not_taken_again(service: Service, context: Any) -> None:
    service.leaves(DONE, 2)
    report().execute(context)
    with pytest.raises(
        AirflowFailException, match=r"No report of a job of the task merge in lake .*Next step: see the log of merge .*clear merge"
    ):
        report().execute(context)


def test_other_tasks_runs_mapped_instances_and_airflows_have_reports_of_their_own(
    service: Service, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.leaves(DONE, 2, task_id="merge_more")
    for name, value in (("run_id", "manual__2"), ("dag_id", "cdc_2"), ("map_index", 0)):
        kept = getattr(context["ti"], name)
        setattr(context["ti"], name, value)
        service.leaves(DONE, 2)
        setattr(context["ti"], name, kept)
    with monkeypatch.context() as other:
        other.setenv("AIRFLOW__API__BASE_URL", "https://another.example.com")
        service.leaves(DONE, 2)
    assert len(service.reports) == 5
    with pytest.raises(AirflowFailException, match="No report of a job"):
        report().execute(context)
    assert len(service.reports) == 5


def test_the_job_and_the_report_may_have_connections_of_their_own_to_one_lake(scene: Any, service: Service, context: Any) -> None:
    scene.connect("cdc_lake_of_jobs", conn_type="cdc_lake", host=str(scene.lake))
    scene.land("0000000000")
    service.run(lake_conn_id="cdc_lake_of_jobs")
    events = announced(report(outlets=[table_asset(TOPIC)]), context)
    assert events["result"]["flows"][TOPIC]["status"] == "applied"
    assert table_asset(TOPIC).uri in events


@pytest.mark.parametrize("text", ["{", "[]", '{"flows": 1}'])
def test_an_unreadable_report_is_an_error_with_a_next_step(service: Service, context: Any, text: str) -> None:
    service.leaves(text)
    with pytest.raises(AirflowFailException, match="Next step"):
        report().execute(context)


# When it runs.


def test_it_runs_after_a_failed_task_and_not_after_a_skipped_one() -> None:
    assert report().trigger_rule == "none_skipped"


def test_parsing_it_twice_gives_the_same_dag() -> None:
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    def parsed() -> str:
        with DAG("cdc", schedule=None) as dag:
            report(outlets=[tables_alias()])
        return json.dumps(LazyDeserializedDAG.from_dag(dag).data)

    assert parsed() == parsed()


# Waiting.


def test_it_waits_for_a_job_that_goes_on(service: Service, context: Any) -> None:
    writer = threading.Timer(0.3, service.leaves, [DONE, 2])
    writer.start()
    assert report(wait_seconds=20, poke_interval=0.05).execute(context)["flows"] == {}
    writer.join()


def test_it_waits_no_longer_than_asked(service: Service, context: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"within 0.1 seconds: the job did not start, was killed before its end"):
        report(wait_seconds=0.1, poke_interval=0.05).execute(context)


def deferred(service: Service, context: Any, **given: Any) -> CdcReportTrigger:
    with pytest.raises(TaskDeferred) as raised:
        report(deferrable=True, wait_seconds=60, poke_interval=7, **given).execute(context)
    assert raised.value.method_name == "execute_complete"
    trigger = raised.value.trigger
    assert isinstance(trigger, CdcReportTrigger)
    # The triggerer is another process: it knows what is serialized, and nothing else.
    return CdcReportTrigger(**{**json.loads(json.dumps(trigger.serialize()[1])), "poke_interval": 0.02})


def event_of(trigger: CdcReportTrigger) -> dict[str, Any]:
    payload: dict[str, Any] = asyncio.run(asyncio.wait_for(anext(trigger.run()), 20)).payload
    return json.loads(json.dumps(payload))


def test_deferred_it_waits_in_the_triggerer_and_ends_the_same(service: Service, context: Any) -> None:
    trigger = deferred(service, context)
    assert time.time() < trigger.question["until"] <= time.time() + 60
    writer = threading.Timer(0.2, service.leaves, [DONE, 2])
    writer.start()
    event = event_of(trigger)
    writer.join()
    assert event["found"]["why"] == "report"
    assert report(deferrable=True).execute_complete(context, event)["flows"] == {}
    assert service.reports == []


def test_deferred_it_waits_no_longer_than_asked(service: Service, context: Any) -> None:
    trigger = deferred(service, context)
    late = CdcReportTrigger(**{**trigger.serialize()[1], "until": 1.0})
    event = event_of(late)
    assert event["found"]["why"] == "late"
    with pytest.raises(AirflowFailException, match="No report of a job"):
        report(deferrable=True).execute_complete(context, event)


def test_a_triggerer_that_cannot_look_is_no_verdict_on_the_job(service: Service, context: Any) -> None:
    deferred(service, context)
    service.leaves(DONE, 2)
    event = {"status": "error", "message": "no route", "transient": True, "found": {"why": "error"}}
    assert report(deferrable=True).execute_complete(context, event)["flows"] == {}


def test_a_report_that_is_there_is_not_waited_for(service: Service, context: Any) -> None:
    service.leaves(DONE, 2)
    assert report(deferrable=True, wait_seconds=60).execute(context)["flows"] == {}


def test_a_store_that_does_not_answer_is_tried_again(service: Service, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service.leaves(DONE, 2)
    from airflow_cdc.hooks.lake import CdcLakeHook

    class Unreachable:
        def __getattr__(self, name: str) -> Any:
            raise OSError("connection reset")

    monkeypatch.setattr(CdcLakeHook, "_reached", (Unreachable(), "/lake"))
    with pytest.raises((AirflowException, OSError)) as ended:
        report().execute(context)
    assert not isinstance(ended.value, AirflowFailException)
