"""Maintenance and verification as tasks: what they submit, what they hand on, how they fail, and where a password does not go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.model.job_argument import read_argument
from airflow_cdc.operators.maintain import CdcMaintainOperator
from airflow_cdc.operators.verify import CdcVerifyOperator

TOPIC = "server.db.orders"
PASSWORD = "hunter2-§"
TRANSIENT = {"type": "ConcurrentRunError", "message": "Others were first.", "next_step": "Run again.", "transient": True}
TERMINAL = {"type": "ConfigurationError", "message": "No such column.", "next_step": "Correct it.", "transient": False}
TABLE = {
    "kind": "target",
    "table": f"l/{TOPIC}",
    "actions": ["compact"],
    "files_before": 12,
    "files_after": 1,
    "bytes_before": 9,
    "bytes_after": 8,
    "version_before": 3,
    "version_after": 4,
}
COMPARED = {
    "flow": TOPIC,
    "stands": {"table": "t", "version": 3, "microbatch": 2, "applied_through": {"0": "7/7/1"}},
    "other_stands": None,
    "rows": 3,
    "other_rows": 3,
    "checksum": None,
    "other_checksum": None,
    "schema": [],
    "columns": [],
    "sample": [],
}


def maintained(**flow: Any) -> dict[str, Any]:
    known = {"flow": TOPIC, "tables": [TABLE, {**TABLE, "kind": "quarantine", "actions": []}], "staging_removed": 0, "error": None}
    return {"ok": True, "lake": "l", "dry_run": False, "flows": [{**known, **flow}], "error": None, "reports_removed": 3}


def verified(**table: Any) -> dict[str, Any]:
    return {"lake": "l", "other": None, "tables": [{**COMPARED, **table}], "only_left": [], "only_right": [], "error": None}


def maintain(scene: Any, **arguments: Any) -> CdcMaintainOperator:
    return CdcMaintainOperator(**{"task_id": "maintain", "spark_binary": str(scene.spark_submit), **arguments})


def verify(scene: Any, **arguments: Any) -> CdcVerifyOperator:
    return CdcVerifyOperator(**{"task_id": "verify", "spark_binary": str(scene.spark_submit), **arguments})


# Maintenance.


def test_maintenance_hands_on_what_was_done_and_logs_it(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.submit_leaves(maintained(), exit_code=0)
    result = maintain(scene, tables="server.*", flows_file="/flows.yaml", expire_after_days="60").execute(context)
    assert [(table["kind"], table["actions"]) for table in result["flows"][TOPIC]] == [("target", ["compact"])]
    assert (json.loads(json.dumps(result)), result["reports_removed"]) == (result, 3)
    assert f"{TOPIC}: target: compact (12 → 1 files)" in capsys.readouterr().out
    job = next(number for number, argument in enumerate(scene.arguments) if argument.endswith("jobs/maintain.py"))
    given = dict(zip(scene.arguments[job + 1 :: 2], scene.arguments[job + 2 :: 2], strict=True))
    assert (given["--lake"], given["--flows"], given["--table"]) == (str(scene.lake), "/flows.yaml", "server.*")
    assert json.loads(read_argument(given["--settings"]))["expire_after_days"] == 60


@pytest.mark.parametrize(("error", "kind"), [(TRANSIENT, AirflowException), (TERMINAL, AirflowFailException)])
def test_a_flow_that_failed_fails_the_task_and_only_passing_causes_are_tried_again(
    scene: Any, context: Any, error: dict[str, Any], kind: type[Exception]
) -> None:
    scene.submit_leaves(maintained(error=error), exit_code=1)
    with pytest.raises(AirflowException, match=f"{TOPIC}: {error['type']}") as failed:
        maintain(scene).execute(context)
    assert type(failed.value) is kind


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"vacuum_after_days": 1}, "less than 7 days"),
        ({"purge_from": "much"}, "purge_from is 'much'"),
        ({"only_plan": "perhaps"}, "dry_run is 'perhaps'"),
    ],
)
def test_wrong_settings_stop_the_task_before_anything_is_submitted(scene: Any, context: Any, settings: dict[str, Any], error: str) -> None:
    scene.submit_by("#!/bin/sh\necho submitted; exit 3\n")
    with pytest.raises(AirflowFailException, match=error):
        maintain(scene, **settings).execute(context)


# Verification.


def test_two_lakes_are_compared_and_a_difference_fails_the_task_without_retries(scene: Any, context: Any) -> None:
    scene.connect("other", conn_type="cdc_lake", host="/other/lake")
    operator = {"other_lake_conn_id": "other", "tables": "server.*"}
    scene.submit_leaves(verified(), exit_code=0)
    assert verify(scene, **operator).execute(context)["equal"] is True
    assert {("--other", "/other/lake"), ("--table", "server.*")} <= scene.pairs

    scene.submit_leaves(verified(rows=2), exit_code=0)
    with pytest.raises(AirflowFailException, match="2 rows against 3; the table stands at version 3, microbatch 2, partition 0 through 7"):
        verify(scene, **operator).execute(context)
    assert verify(scene, **operator, fail_if_different=False).execute(context)["equal"] is False
    scene.submit_leaves({**verified(), "tables": []}, exit_code=0)
    with pytest.raises(AirflowFailException, match="Nothing was compared"):
        verify(scene, **operator).execute(context)


def test_versions_that_overlap_fail_the_task_without_retries(scene: Any, context: Any) -> None:
    scene.submit_leaves(verified(overlapping=0), exit_code=0)
    assert verify(scene, history=True, tables="server.*").execute(context)["equal"] is True
    assert ("--table", "server.*") in scene.pairs
    assert "--history" in scene.arguments
    scene.submit_leaves(verified(overlapping=2), exit_code=0)
    with pytest.raises(AirflowFailException, match=r"Versions overlap\.\n.*of 3 versions 2 OVERLAP"):
        verify(scene, history=True).execute(context)


def test_keys_that_have_several_rows_fail_the_task_without_retries(scene: Any, context: Any) -> None:
    scene.submit_leaves(verified(doubled=0), exit_code=0)
    assert verify(scene, tables="server.*").execute(context)["equal"] is True
    assert ("--table", "server.*") in scene.pairs
    assert not {"--history", "--other", "--jdbc"} & set(scene.arguments)
    scene.submit_leaves(verified(doubled=2), exit_code=0)
    with pytest.raises(AirflowFailException, match=r"Keys have several rows\.\n.*2 KEYS HAVE SEVERAL ROWS of 3(.|\n)*airflow-cdc rebuild"):
        verify(scene).execute(context)


def test_a_sources_password_reaches_the_job_and_nothing_else(scene: Any, context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.connect("shop", conn_type="jdbc", host="jdbc:postgresql://db/shop", login="cdc", password=PASSWORD)
    scene.submit_leaves(verified(), exit_code=0)
    operator = verify(scene, jdbc_conn_id="shop", query="SELECT * FROM orders", driver="org.postgresql.Driver", tables=TOPIC)
    result = operator.execute(context)

    handed = scene.secrets
    assert handed["mode"] == 0o600
    assert handed["document"] == {
        "url": "jdbc:postgresql://db/shop",
        "query": "SELECT * FROM orders",
        "user": "cdc",
        "password": PASSWORD,
        "driver": "org.postgresql.Driver",
    }
    assert not Path(handed["path"]).exists()
    inherited = {name: value for name, value in scene.environment.items() if not name.startswith("AIRFLOW_CONN_")}
    rendered = {name: getattr(operator, name, None) for name in operator.template_fields}
    for seen in (scene.arguments, inherited, result, rendered, capsys.readouterr().out):
        assert PASSWORD not in str(seen)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"jdbc_conn_id": "shop", "other_lake_conn_id": "cdc_lake_default"}, "at most one other side"),
        ({"history": True, "other_lake_conn_id": "cdc_lake_default"}, "at most one other side"),
        ({"jdbc_conn_id": "shop", "tables": TOPIC}, "unless a query is given"),
        ({"jdbc_conn_id": "shop", "query": "q", "tables": "a,b"}, "tables name one flow"),
        ({"jdbc_conn_id": "cdc_lake_default", "query": "q", "tables": TOPIC}, "begins with jdbc:"),
        ({"jdbc_conn_id": "none", "query": "q", "tables": TOPIC}, "none"),
        # The file with the password is on this machine.
        ({"jdbc_conn_id": "shop", "query": "q", "tables": TOPIC, "conn_id": "yarn"}, "deploy mode client"),
    ],
)
def test_what_cannot_be_compared_stops_the_task_without_retries(scene: Any, context: Any, arguments: dict[str, Any], error: str) -> None:
    scene.connect("shop", conn_type="jdbc", host="jdbc:postgresql://db/shop", password=PASSWORD)
    scene.connect("yarn", conn_type="spark", host="yarn", extra={"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=error):
        verify(scene, **arguments).execute(context)


def test_a_comparison_that_failed_is_tried_again_where_that_may_help(scene: Any, context: Any) -> None:
    scene.connect("other", conn_type="cdc_lake", host="/other/lake")
    scene.submit_leaves({**verified(), "tables": [], "error": TRANSIENT}, exit_code=1)
    with pytest.raises(AirflowException, match="Others were first") as failed:
        verify(scene, other_lake_conn_id="other").execute(context)
    assert not isinstance(failed.value, AirflowFailException)
