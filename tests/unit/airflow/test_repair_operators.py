"""Reprocess, replay, retype and rebuild as tasks: what they submit and hand on, how they fail, what they refuse before Spark starts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.model.report.retyping import FlowRetype, Retyped, RetypeReport
from airflow_cdc.operators.rebuild import CdcRebuildOperator
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.operators.reprocess import CdcReprocessOperator
from airflow_cdc.operators.retype import CdcRetypeOperator

TOPIC = "server.db.orders"
LARGE = str(2**70)
TRANSIENT = {"type": "ConcurrentRunError", "message": "Others were first.", "next_step": "Run again.", "transient": True}
TERMINAL = {"type": "ConfigurationError", "message": "It keeps history.", "next_step": "Rebuild it.", "transient": False}
UNFIT = "value_does_not_fit_column"
FOUND = BatchReport(TOPIC, 8, 2, 99, EventCounts(read=4, merged=1, stale=1, rejected=2), RowCounts(inserted=1), {UNFIT: 2})
DONE = FlowReprocess(TOPIC, FOUND, (BatchReport(**{**vars(FOUND), "table_version": 7}),))
REBUILT = {"ok": True, "archive": "a", "lake": "/new", "flows": [], "control_topics": [], "ignored_files": [], "error": None}


def report(*flows: FlowReprocess, error: dict[str, Any] | None = None) -> dict[str, Any]:
    return ReprocessReport("a", "l", flows=flows, error=error).to_json()


def operator(kind: type[Any], scene: Any, **arguments: Any) -> Any:
    return kind(**{"task_id": "repair", "spark_binary": str(scene.spark_submit), **arguments})


def test_what_was_read_again_is_handed_on_and_logged(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.submit_leaves(report(DONE, FlowReprocess("other")), exit_code=0)
    result = operator(CdcReplayOperator, scene, tables="server.*,other", flows_file="/f.yaml", reasons=[UNFIT]).execute(context)
    assert result["flows"][TOPIC] == {
        "files": 2,
        "events": {**vars(EventCounts()), "read": 4, "merged": 1, "stale": 1, "rejected": 2},
        "rows": {"inserted": 1, "updated": 0, "deleted": 0},
        "rejects": {UNFIT: 2},
        "microbatches": [8],
        "table_version": 7,
    }
    assert (result["flows"]["other"]["files"], result["flows"]["other"]["microbatches"]) == (0, [])
    assert json.loads(json.dumps(result)) == result
    log = capsys.readouterr().out
    assert f"{TOPIC}: 1 inserts, 0 updates, 0 deletes, 1 older than the row (4 records in 2 files)" in log
    assert f"{TOPIC}: done by microbatch 8" in log
    assert f"{TOPIC}: cannot be merged: 2 {UNFIT}" in log
    assert "other: nothing to read again" in log
    assert {("--flows", "/f.yaml"), ("--table", "server.*"), ("--table", "other"), ("--reason", UNFIT)} <= scene.pairs
    assert "--dry-run" not in scene.arguments


def test_a_range_goes_to_the_job_as_it_is_spelled(scene: Any, context: Any) -> None:
    scene.submit_leaves(report(DONE), exit_code=0)
    # A data interval, as Airflow renders it.
    span = {"from_position": LARGE, "to_position": "2026-11-01 10:20:00+00:00", "only_plan": "True"}
    operator(CdcReprocessOperator, scene, **span).execute(context)
    assert {("--from-position", LARGE), ("--to-position", "2026-11-01 10:20:00+00:00")} <= scene.pairs
    assert "--dry-run" in scene.arguments
    operator(CdcReprocessOperator, scene, from_position="", only_plan="False").execute(context)
    assert not {"--from-position", "--to-position", "--dry-run"} & set(scene.arguments)


@pytest.mark.parametrize("tables", ["", " ", ",", [], [" "], [","]])
@pytest.mark.parametrize("kind", [CdcReprocessOperator, CdcReplayOperator, CdcRetypeOperator, CdcRebuildOperator])
def test_tables_that_render_to_nothing_repair_nothing(kind: type[Any], tables: Any, scene: Any, context: Any) -> None:
    scene.submit_leaves(report(DONE), exit_code=0)
    with pytest.raises(AirflowFailException, match=r"names nothing\. Next step: Write a name"):
        operator(kind, scene, tables=tables).execute(context)
    with pytest.raises(FileNotFoundError):
        _ = scene.arguments


@pytest.mark.parametrize(
    ("errors", "kind"),
    [([TRANSIENT, TRANSIENT], AirflowException), ([TRANSIENT, TERMINAL], AirflowFailException)],
    ids=["passing", "staying"],
)
def test_flows_that_failed_fail_the_task_and_only_passing_causes_are_tried_again(
    scene: Any, context: Any, errors: list[dict[str, Any]], kind: type[Exception]
) -> None:
    failed = [FlowReprocess(f"flow{number}", error=error) for number, error in enumerate(errors)]
    scene.submit_leaves(report(DONE, *failed), exit_code=1)
    with pytest.raises(AirflowException, match=r"2 of 3 flows failed.\nflow0: ConcurrentRunError: Others were first. Next") as raised:
        operator(CdcReprocessOperator, scene).execute(context)
    assert type(raised.value) is kind
    scene.submit_leaves(report(error=TERMINAL), exit_code=1)
    with pytest.raises(AirflowFailException, match="The job stopped before"):
        operator(CdcReprocessOperator, scene).execute(context)


def test_what_was_retyped_is_handed_on_and_logged(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    done = Retyped(TOPIC, {"total": ("STRING", "DECIMAL(12,2)"), "gone": ("INT", None)}, (5, 6), (2, 1), is_done=True)
    left = RetypeReport("a", "l", flows=(FlowRetype(TOPIC, done), FlowRetype("other", error=TERMINAL)))
    scene.submit_leaves(left.to_json(), exit_code=1)
    with pytest.raises(AirflowFailException, match=r"1 of 2 flows failed.\nother: ConfigurationError: It keeps history. Next"):
        operator(CdcRetypeOperator, scene, tables=[TOPIC, "other"], flows_file="/f.yaml").execute(context)
    result = context["ti"].pushed["return_value"]
    assert result["flows"][TOPIC] == {
        "done": True,
        "columns": {"total": {"before": "STRING", "now": "DECIMAL(12,2)"}, "gone": {"before": "INT", "now": None}},
        "rows": {"before": 5, "now": 6},
        "rejects": {"before": 2, "now": 1},
    }
    assert json.loads(json.dumps(result)) == result
    log = capsys.readouterr().out
    assert f"{TOPIC}: column total: STRING -> DECIMAL(12,2)" in log
    assert f"{TOPIC}: the table was replaced" in log
    assert {("--flows", "/f.yaml"), ("--table", TOPIC), ("--table", "other")} <= scene.pairs
    assert "--dry-run" not in scene.arguments


def test_a_retyping_that_is_only_planned_reports_that_nothing_was_changed(
    scene: Any, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.submit_leaves(RetypeReport("a", "l", True, (FlowRetype(TOPIC, Retyped(TOPIC)),)).to_json(), exit_code=0)
    result = operator(CdcRetypeOperator, scene, only_plan="True").execute(context)
    assert (result["dry_run"], result["flows"][TOPIC]["done"]) == (True, False)
    assert f"{TOPIC}: nothing was changed" in capsys.readouterr().out
    assert "--dry-run" in scene.arguments


def test_a_rebuild_goes_into_the_other_lake_or_a_folder_that_a_retry_finds_again(scene: Any, context: Any) -> None:
    scene.connect("other", conn_type="cdc_lake", host="/other/lake")
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host=str(scene.archive), extra={"layout": "sink"})
    scene.submit_leaves(REBUILT, exit_code=0)
    rebuild = {"tables": [TOPIC], "as_of": LARGE}
    assert operator(CdcRebuildOperator, scene, **rebuild, into_lake_conn_id="other").execute(context)["lake"] == "/new"
    assert {
        ("--into", "/other/lake"),
        ("--lake", str(scene.lake)),
        ("--as-of", LARGE),
        ("--table", TOPIC),
        ("--layout", "sink"),
    } <= scene.pairs
    folders = []
    for try_number, run_id in ((1, "a"), (2, "a"), (1, "b")):
        context["ti"].try_number, context["ti"].run_id = try_number, run_id
        operator(CdcRebuildOperator, scene, **rebuild, into_lake_conn_id="").execute(context)
        folders.append(dict(scene.pairs)["--into"])
    assert folders[0] == folders[1] != folders[2]
    assert folders[0].startswith(f"{scene.lake}/_cdc/rebuilds/")


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (CdcReprocessOperator, {"from_position": "first"}, "'first' is neither a position nor a time"),
        (CdcReprocessOperator, {"from_position": "2026-11-02", "to_position": "2026-11-01"}, "from 2026-11-02 to 2026-11-01 is empty"),
        (CdcReprocessOperator, {"only_plan": "perhaps"}, "only_plan is 'perhaps'"),
        (CdcReplayOperator, {"reasons": "missing_keys"}, "No record is set aside for"),
        (CdcRebuildOperator, {"as_of": "yesterday"}, "'yesterday' is neither a position nor a time"),
        (CdcRebuildOperator, {"into_lake_conn_id": "same"}, "leaves the live tables alone"),
        (CdcRebuildOperator, {"into_lake_conn_id": "none"}, "none"),
    ],
)
def test_what_is_wrong_stops_the_task_without_retries_before_anything_is_submitted(
    scene: Any, context: Any, kind: type[Any], arguments: dict[str, Any], message: str
) -> None:
    scene.connect("same", conn_type="cdc_lake", host=f"{scene.lake}/")
    scene.submit_by("#!/bin/sh\necho submitted; exit 3\n")
    with pytest.raises(AirflowFailException, match=message):
        operator(kind, scene, **arguments).execute(context)
