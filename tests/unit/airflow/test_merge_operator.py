"""What the merge task makes of the job's report: its result, its assets, its failures."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.sdk import Asset

from tests.support.spark_provider import follows_jobs

TOPIC = "server.db.orders"
REPORT = {"ok": False, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
TRANSIENT = {"type": "ConcurrentRunError", "message": "Another run was first.", "next_step": "Run again.", "transient": True}


def _failed(name: str, error: dict[str, Any] | None) -> dict[str, Any]:
    return {"flow": name, "status": "failed", "table": f"l/{name}", "batches": [], "error": error}


# What it hands on.


def test_applies_what_waits_and_hands_on_a_small_summary(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000001")
    result = scene.merge().execute(context)
    events = {"read": 2, "merged": 2, "superseded": 0, "redelivered": 0, "stale": 0, "tombstones": 0, "control": 0, "rejected": 0}
    rows = {"inserted": 2, "updated": 0, "deleted": 0}
    table = {
        "status": "applied",
        "table": f"{scene.lake}/{TOPIC}",
        "table_version": 0,
        "engines": ["spark"],
        "events": events,
        "rows": rows,
    }
    assert result == {"archive": str(scene.archive), "lake": str(scene.lake), "events": events, "rows": rows, "flows": {TOPIC: table}}
    assert json.loads(json.dumps(result)) == result


def test_a_second_run_finds_everything_applied(scene: Any, context: Any) -> None:
    # Also: the job and the sensor's question share the lake's state, because the hook hands both the same URI.
    scene.land("0000000000")
    scene.merge().execute(context)
    assert scene.merge().execute(context)["flows"] == {TOPIC: {"status": "up_to_date", "table": f"{scene.lake}/{TOPIC}"}}


def test_announces_the_changed_tables_to_its_outlet_assets(scene: Any, context: Any) -> None:
    asset = Asset("x-cdc://lake/orders")
    scene.land("0000000000")
    scene.merge(outlets=[asset]).execute(context)
    extra = context["outlet_events"][asset].extra
    assert extra["tables"] == {TOPIC: {"table": f"{scene.lake}/{TOPIC}", "table_version": 0}}
    assert extra["rows"] == {"inserted": 1, "updated": 0, "deleted": 0}
    assert json.loads(json.dumps(extra)) == extra


def test_reports_where_the_tables_end_together_and_what_waits_there(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asset = Asset("x-cdc://lake/orders")
    cut = {"prefix": "server", "is_proven": True, "before": str(2**80), "waits_for": [{"transaction": "7", "has_end": True}], "awaited": 1}
    flow = {"flow": TOPIC, "status": "waiting", "table": "l/t", "batches": [], "error": None, "cut_files": 1, "cut_records": 3}
    scene.submit_leaves({**REPORT, "ok": True, "flows": [flow], "cuts": [cut]}, exit_code=0)
    cuts = {"server": {"before": str(2**80), "is_proven": True, "awaited": 1}}
    assert scene.merge(consistent=True, outlets=[asset]).execute(context)["cuts"] == cuts
    assert context["outlet_events"][asset].extra["cuts"] == cuts
    log = capsys.readouterr().out
    assert f"{TOPIC}: 3 records in 1 files wait behind the cut" in log
    assert f"server: cut before commit position {2**80}; what stands there waits for transaction 7 (lacks events)" in log


def test_logs_a_line_a_flow_that_adds_up(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land("0000000000")
    scene.merge().execute(context)
    log = capsys.readouterr().out
    assert f"{TOPIC}: applied, 1 events read = 1 merged; rows inserted 1, updated 0, deleted 0; {scene.lake}/{TOPIC}" in log
    assert "[airflow-cdc] applying" in log


def test_globs_that_match_nothing_are_reported(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land("0000000000")
    assert scene.merge(tables="*.odrers").execute(context)["flows"] == {}
    assert "No table of the archive matches *.odrers" in capsys.readouterr().out


# What goes wrong.


@pytest.mark.parametrize(
    ("flows", "kind"),
    [
        ([_failed("a", TRANSIENT), _failed("b", TRANSIENT)], AirflowException),
        ([_failed("a", TRANSIENT), _failed("b", TERMINAL)], AirflowFailException),
        ([_failed("a", None)], AirflowFailException),
    ],
)
@pytest.mark.parametrize("exit_code", [0, 1])
def test_failed_flows_fail_the_task_and_only_passing_causes_are_tried_again(
    scene: Any, context: Any, flows: list[dict[str, Any]], kind: type[Exception], exit_code: int
) -> None:
    # Exit code 0: in cluster mode nobody hands the job's exit code on.
    scene.submit_leaves({**REPORT, "flows": flows}, exit_code=exit_code)
    with pytest.raises(AirflowException) as failed:
        scene.merge().execute(context)
    assert type(failed.value) is kind
    assert str(failed.value).startswith(f"{len(flows)} of {len(flows)} flows failed.\na: ")


def test_the_message_is_the_jobs_own_cause_with_its_next_step(scene: Any, context: Any) -> None:
    scene.submit_leaves({**REPORT, "flows": [_failed("a.b", TERMINAL)]}, exit_code=1)
    with pytest.raises(AirflowFailException) as failed:
        scene.merge().execute(context)
    assert str(failed.value) == "1 of 1 flows failed.\na.b: SchemaChangeError: Column total shrank. Next step: Widen it."


def test_a_run_that_stopped_before_any_flow_reports_why(scene: Any, context: Any) -> None:
    scene.submit_leaves({**REPORT, "error": TRANSIENT}, exit_code=1)
    with pytest.raises(
        AirflowException, match=r"The job stopped.*\nThe run: ConcurrentRunError: Another run was first. Next step: Run again."
    ):
        scene.merge().execute(context)


def test_hundreds_of_failures_make_no_endless_message(scene: Any, context: Any) -> None:
    flows = [_failed(f"t{number}", TERMINAL) for number in range(300)]
    scene.submit_leaves({**REPORT, "flows": flows}, exit_code=1)
    with pytest.raises(AirflowFailException, match="… and 290 more") as failed:
        scene.merge().execute(context)
    assert len(str(failed.value)) < 2000


@follows_jobs
def test_a_job_that_left_no_report_is_tried_again_with_sparks_last_lines(scene: Any, context: Any) -> None:
    scene.submit_by("#!/bin/sh\necho 'Exception in thread \"main\" java.lang.OutOfMemoryError'\nexit 1\n")
    with pytest.raises(AirflowException, match="OutOfMemoryError") as failed:
        scene.merge().execute(context)
    assert not isinstance(failed.value, AirflowFailException)


def test_another_job_that_writes_no_report_is_named(scene: Any, context: Any) -> None:
    scene.submit_by("#!/bin/sh\nexit 0\n")
    with pytest.raises(AirflowException, match=r"no report is at .*is /my/job.py the right job"):
        scene.merge(application="/my/job.py").execute(context)


@pytest.mark.parametrize("text", ["{", "[]", '{"flows": 1}'])
def test_an_unreadable_report_is_an_error_with_a_next_step(scene: Any, context: Any, text: str) -> None:
    scene.submit_leaves(text, exit_code=0)
    with pytest.raises(AirflowFailException, match="Next step"):
        scene.merge().execute(context)


def test_a_report_of_a_newer_job_is_read_without_what_it_added(scene: Any, context: Any) -> None:
    scene.submit_leaves({**REPORT, "format": 1, "ok": True, "added_later": {"x": 1}}, exit_code=0)
    assert scene.merge().execute(context)["flows"] == {}


def test_a_report_in_a_newer_format_is_refused_by_what_to_upgrade(scene: Any, context: Any) -> None:
    scene.submit_leaves({**REPORT, "format": 2, "ok": True}, exit_code=0)
    with pytest.raises(AirflowFailException, match=r"The report of the job .* format 2; .* up to 1\..*Next step: Upgrade airflow-cdc"):
        scene.merge().execute(context)


def test_an_exit_code_is_not_ignored_when_the_report_is_ok(scene: Any, context: Any) -> None:
    scene.submit_leaves({**REPORT, "ok": True}, exit_code=1)
    with pytest.raises(AirflowException, match="Error code is: 1"):
        scene.merge().execute(context)


def test_the_report_is_gone_afterwards(scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = scene.folder / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    scene.merge().execute(context)
    scene.submit_leaves({**REPORT, "flows": [_failed("a", TERMINAL)]}, exit_code=1)
    with pytest.raises(AirflowFailException):
        scene.merge().execute(context)
    assert list(temporary.iterdir()) == []


def test_in_cluster_mode_the_report_lies_in_the_lake_until_it_is_read(scene: Any, context: Any) -> None:
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    scene.land("0000000000")
    result = scene.merge(durable=False).execute(context)
    report = Path(dict(scene.pairs)["--report"])
    assert report.parent == scene.lake / "_cdc" / "reports"
    assert result["rows"]["inserted"] == 1
    assert not report.exists()
    # Neither this machine's Python nor its log settings mean anything there.
    assert not {"spark.pyspark.driver.python", "spark.driver.extraJavaOptions"} & set(scene.conf)


def test_in_cluster_mode_no_two_submissions_share_a_report(scene: Any, context: Any) -> None:
    # What an earlier try's job may still write, or the task of the same ids of another Airflow, is no report of this one.
    scene.connect("spark_default", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    reports = set()
    for _ in range(2):
        scene.merge(durable=False).execute(context)
        reports.add(dict(scene.pairs)["--report"])
    assert len(reports) == 2
    scene.submit_by("#!/bin/sh\nexit 0\n")
    for left in reports:
        Path(left).write_text(json.dumps({**REPORT, "ok": True}))
    with pytest.raises(AirflowException, match="no report is at"):
        scene.merge(durable=False).execute(context)
