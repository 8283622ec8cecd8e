"""How a merge ends that failed, had nothing to do, or set too much aside: state, XCom, log and assets."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

from airflow_cdc.assets import table_asset
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.operators.survey import CdcSurveyOperator

TOPIC = "server.db.orders"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""Earlier versions of Airflow colour the log whatever it is written to."""
ERROR = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
LOST = {"type": "SparkFailedError", "message": "A worker is lost.", "next_step": "Run again.", "transient": True}


def flow(name: str, *, read: int = 10, rejected: int = 0, version: int = 3) -> FlowOutcome:
    events = EventCounts(read=read, merged=read - rejected, rejected=rejected)
    rejects = {"malformed_json": rejected} if rejected else {}
    batch = BatchReport(name, 4, 1, 99, events, RowCounts(inserted=read - rejected), rejects, table_version=version)
    return FlowOutcome(name, FlowStatus.APPLIED, f"l/{name}", (batch,), table_version=version)


def leaves(scene: Any, *flows: FlowOutcome, error: dict[str, Any] | None = None) -> None:
    report = ApplyReport("a", "l", flows, error=error)
    scene.submit_leaves(report.to_json(), exit_code=0 if report.ok else 1)


# Failed.


def test_a_failed_merge_hands_on_what_was_merged_and_what_failed_why(scene: Any, context: Any) -> None:
    leaves(scene, flow("good"), FlowOutcome("bad", FlowStatus.FAILED, "l/bad", error=ERROR))
    with pytest.raises(AirflowFailException):
        scene.merge().execute(context)
    result = context["ti"].pushed["return_value"]
    assert (result["events"]["merged"], result["rows"]["inserted"]) == (10, 10)
    assert (result["flows"]["good"]["status"], result["flows"]["good"]["table_version"]) == ("applied", 3)
    assert result["flows"]["bad"] == {"status": "failed", "table": "l/bad", "error": ERROR}
    assert json.loads(json.dumps(result)) == result
    leaves(scene, error=LOST)
    with pytest.raises(AirflowException):
        scene.merge().execute(context)
    assert (context["ti"].pushed["return_value"]["flows"], context["ti"].pushed["return_value"]["error"]) == ({}, LOST)


def test_a_task_that_pushes_nothing_pushes_no_failure(scene: Any, context: Any) -> None:
    leaves(scene, error=LOST)
    with pytest.raises(AirflowException):
        scene.merge(do_xcom_push=False).execute(context)
    assert context["ti"].pushed == {}


def test_a_failed_flow_is_an_error_in_the_log_and_the_others_are_none(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    leaves(scene, flow("good"), FlowOutcome("bad", FlowStatus.FAILED, "l/bad", error=ERROR))
    with pytest.raises(AirflowFailException):
        scene.merge().execute(context)
    log = COLOUR.sub("", capsys.readouterr().out).splitlines()
    (failed,) = (line for line in log if "bad: failed: SchemaChangeError: Column total shrank. Next step: Widen it." in line)
    (good,) = (line for line in log if "good: applied" in line)
    assert "[error" in failed
    assert "[info" in good


# Nothing to do.


def test_a_merge_with_nothing_pending_ends_skipped_and_announces_nothing(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    merge = {"skip_if_nothing_pending": True, "outlets": [table_asset(TOPIC)]}
    assert scene.merge(**merge).execute(context)["rows"]["inserted"] == 1
    context["ti"].run_id = "next"
    operator = scene.merge(**merge)
    context["outlet_events"] = type(context["outlet_events"])()
    with pytest.raises(AirflowSkipException, match="Nothing was pending"):
        operator.execute(context)
    assert len(context["outlet_events"]) == 0
    assert context["ti"].pushed["return_value"]["flows"][TOPIC]["status"] == "up_to_date"
    assert scene.merge(**{**merge, "skip_if_nothing_pending": False}).execute(context)["flows"][TOPIC]["status"] == "up_to_date"


def test_a_retry_is_never_skipped(scene: Any, context: Any) -> None:
    # The try before may have applied what this one finds done, and what stands downstream waits for it.
    scene.land("0000000000")
    scene.merge().execute(context)
    context["ti"].try_number = 2
    assert scene.merge(skip_if_nothing_pending=True).execute(context)["flows"][TOPIC]["status"] == "up_to_date"


def test_a_merge_that_has_a_change_to_announce_is_not_skipped(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.merge(outlets=[table_asset(TOPIC)]).execute(context)
    scene.land("0000000001")
    # The run that made the change died before it could announce it.
    scene.merge().execute(context)
    context["ti"].run_id = "next"
    result = scene.merge(skip_if_nothing_pending=True, outlets=[table_asset(TOPIC)]).execute(context)
    assert result["flows"][TOPIC]["status"] == "up_to_date"
    assert context["outlet_events"][table_asset(TOPIC)].extra["table_version"] == 1


@pytest.mark.parametrize(
    ("waits", "nothing"),
    [({}, True), ({"outside_files": 2}, True), ({"waiting_files": 1}, False), ({"cut_files": 1, "cut_records": 3}, False)],
)
def test_what_waits_for_more_is_pending_and_what_another_interval_takes_is_not(waits: dict[str, Any], nothing: bool) -> None:
    status = FlowStatus.WAITING if waits else FlowStatus.UP_TO_DATE
    report = ApplyReport("a", "l", (FlowOutcome("a", status, **waits),))
    assert report.nothing_pending is nothing
    assert report.to_json()["nothing_pending"] is nothing


def test_nothing_is_pending_in_no_run_that_failed_or_changed_something() -> None:
    assert ApplyReport("a", "l").nothing_pending
    assert not ApplyReport("a", "l", (flow("a"),)).nothing_pending
    assert not ApplyReport("a", "l", error=LOST).nothing_pending
    assert not ApplyReport("a", "l", (FlowOutcome("a", FlowStatus.FAILED, error=ERROR),)).nothing_pending


def test_a_survey_is_not_skipped_for_it_reports_no_flow(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    leaves(scene)
    assert CdcSurveyOperator(task_id="survey", spark_binary=str(scene.spark_submit)).execute(context)["flows"] == {}


# Too many rejects.


@pytest.mark.parametrize(
    ("limit", "rejected", "is_red"),
    [("never", 10, False), ("any", 0, False), ("any", 1, True), ("0.1", 1, False), (0.1, 2, True), (1, 10, False), ("0", 1, True)],
)
def test_more_rejects_than_allowed_of_one_flow_turn_the_run_red(
    scene: Any, context: Any, limit: str | float, rejected: int, is_red: bool
) -> None:
    leaves(scene, flow("large", read=10_000), flow("small", read=10, rejected=rejected))
    operator = scene.merge(fail_on_rejects=limit)
    if not is_red:
        assert operator.execute(context)["events"]["rejected"] == rejected
        return
    with pytest.raises(
        AirflowFailException, match=rf"Too many records of 1 flows.*\nsmall: {rejected} of 10 records are in the quarantine"
    ):
        operator.execute(context)
    result = context["ti"].pushed["return_value"]
    assert (result["events"]["merged"], result["flows"]["large"]["status"]) == (10_010 - rejected, "applied")


def test_what_a_red_run_changed_is_announced_by_the_next_that_ends_well(scene: Any, context: Any) -> None:
    # Airflow records no events of a task that failed.
    asset = table_asset("small")
    leaves(scene, flow("small", rejected=1))
    with pytest.raises(AirflowFailException):
        scene.merge(fail_on_rejects="any", outlets=[asset]).execute(context)
    leaves(scene, FlowOutcome("small", FlowStatus.UP_TO_DATE, "l/small", table_version=3))
    context["ti"].run_id = "next"
    scene.merge(fail_on_rejects="any", outlets=[asset], skip_if_nothing_pending=True).execute(context)
    assert context["outlet_events"][asset].extra["table_version"] == 3


@pytest.mark.parametrize("limit", ["sometimes", "1.5", -0.1, True, "nan", ""])
def test_another_limit_is_refused_before_anything_is_submitted(scene: Any, context: Any, limit: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"fail_on_rejects is .* expected 'never', 'any' or a share"):
        scene.merge(fail_on_rejects=limit).execute(context)
    assert not (scene.folder / "seen.json").exists()
