"""Every operator that submits leaves its job to the cluster, by its own setting or Airflow's, and goes on from the report."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred

from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.maintenance import FlowMaintenance, MaintenanceReport
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.model.report.retyping import FlowRetype, Retyped, RetypeReport
from airflow_cdc.model.report.verification import VerifyReport
from airflow_cdc.operators.maintain import CdcMaintainOperator
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.operators.rebuild import CdcRebuildOperator
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.operators.reprocess import CdcReprocessOperator
from airflow_cdc.operators.retype import CdcRetypeOperator
from airflow_cdc.operators.survey import CdcSurveyOperator
from airflow_cdc.operators.verify import CdcVerifyOperator
from airflow_cdc.triggers.report import CdcReportTrigger
from tests.support.spark_provider import follows_jobs
from tests.unit.airflow.resource_manager import JOB, ResourceManager

TOPIC = "server.db.orders"
ERROR = {"type": "ConfigurationError", "message": "No.", "next_step": "Mend it.", "transient": False}
APPLIED = ApplyReport("a", "l", (FlowOutcome(TOPIC, FlowStatus.UP_TO_DATE),))
AGAIN = ReprocessReport("a", "l", flows=(FlowReprocess(TOPIC),))
RETYPED = RetypeReport("a", "l", flows=(FlowRetype(TOPIC, Retyped(TOPIC, {"total": ("STRING", None)}, (2, 2), (1, 0), is_done=True)),))
KEPT = MaintenanceReport("l", flows=(FlowMaintenance(TOPIC),))
OPERATORS = [
    (CdcMergeOperator, {"skip_if_nothing_pending": False}, APPLIED, ApplyReport("a", "l", error=ERROR)),
    (CdcSurveyOperator, {}, APPLIED, ApplyReport("a", "l", error=ERROR)),
    (CdcRebuildOperator, {}, APPLIED, ApplyReport("a", "l", error=ERROR)),
    (CdcReprocessOperator, {}, AGAIN, ReprocessReport("a", "l", error=ERROR)),
    (CdcReplayOperator, {}, AGAIN, ReprocessReport("a", "l", error=ERROR)),
    (CdcRetypeOperator, {}, RETYPED, RetypeReport("a", "l", error=ERROR)),
    (CdcMaintainOperator, {}, KEPT, MaintenanceReport("l", error=ERROR)),
    (CdcVerifyOperator, {"other_lake_conn_id": "cdc_lake_default", "fail_if_different": False}, VerifyReport("l", "o"), None),
]
of_every_operator = pytest.mark.parametrize(("kind", "given", "report", "failed"), OPERATORS, ids=lambda value: getattr(value, "job", ""))


def _operator(kind: type[Any], scene: Any, given: dict[str, Any], **arguments: Any) -> Any:
    return kind(**{"task_id": "t", "spark_binary": str(scene.spark_submit), "deferrable": True, **given, **arguments})


def _defer(operator: Any, context: Any) -> CdcReportTrigger:
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    assert deferred.value.method_name == "execute_complete"
    return CdcReportTrigger(**{**deferred.value.trigger.serialize()[1], "poke_interval": 0.01})  # type: ignore[union-attr]


def _event(trigger: CdcReportTrigger) -> dict[str, Any]:
    return json.loads(json.dumps(asyncio.run(asyncio.wait_for(anext(trigger.run()), 20)).payload))  # type: ignore[no-any-return]


@follows_jobs
@of_every_operator
def test_the_report_comes_by_the_lake_and_makes_the_same_outcome(
    yarn: Any, context: Any, kind: type[Any], given: dict[str, Any], report: Any, failed: Any
) -> None:
    trigger = _defer(_operator(kind, yarn, given), context)
    path = yarn.lake / trigger.question["report"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(report.to_json()))
    yarn.submit_leaves(report.to_json(), exit_code=0)
    assert trigger.question["job"] == JOB
    result = _operator(kind, yarn, given).execute_complete(context, _event(trigger))
    assert not path.exists()
    yarn.connect("spark_default", conn_type="spark", host="local[2]")
    assert result == _operator(kind, yarn, given, deferrable=False).execute(context)


@follows_jobs
@of_every_operator
def test_a_failure_comes_the_same_way_with_what_was_done_as_its_xcom(
    yarn: Any, context: Any, kind: type[Any], given: dict[str, Any], report: Any, failed: Any
) -> None:
    failed = failed or VerifyReport("l", "o", error=ERROR)
    trigger = _defer(_operator(kind, yarn, given), context)
    path = yarn.lake / trigger.question["report"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(failed.to_json()))
    with pytest.raises(AirflowFailException, match=r"ConfigurationError: No\. Next step: Mend it\."):
        _operator(kind, yarn, given).execute_complete(context, _event(trigger))
    assert "No." in json.dumps(context["ti"].pushed["return_value"])
    assert not path.exists()


@pytest.mark.slow
def test_airflows_default_makes_every_operator_deferrable() -> None:
    # Read once, when the operators are imported.
    names = [(kind.__module__, kind.__name__) for kind, *_ in OPERATORS]
    script = f"import importlib\nfor m, k in {names}: assert getattr(importlib.import_module(m), k)(task_id='t').deferrable, k"
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True"}, check=True)


# Killed from the triggerer.


class Login(requests.auth.HTTPBasicAuth):
    """As an authentication that a site writes: made without arguments."""

    def __init__(self) -> None:
        super().__init__("robot", "pw")


def _kerberos() -> Any:
    return requests.auth.HTTPBasicAuth("kerberos", "ticket")


@follows_jobs
def test_a_kill_from_the_triggerer_logs_in_as_the_operator_does(
    yarn: Any, context: Any, manager: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "site_login.Login"
    monkeypatch.setitem(sys.modules, "site_login", SimpleNamespace(Login=Login))
    trigger = _defer(_operator(CdcMergeOperator, yarn, {}, yarn_rm_auth=path), context)
    assert trigger.serialize()[1]["rm_auth"] == path
    asyncio.run(trigger.on_kill())
    assert manager.asked == [(f"/ws/v1/cluster/apps/{JOB}/state", {"state": "KILLED"})]
    basic = requests.auth._basic_auth_str("robot", "pw")
    assert [login for login in manager.logins if login != basic] == []
    assert manager.logins


@follows_jobs
def test_a_kill_from_the_triggerer_asks_by_kerberos_where_the_operator_has_a_keytab(
    yarn: Any, context: Any, manager: ResourceManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "requests_kerberos", SimpleNamespace(HTTPKerberosAuth=_kerberos))
    trigger = _defer(_operator(CdcMergeOperator, yarn, {}, keytab="/etc/robot.keytab", principal="robot@X"), context)
    manager.logins.clear()
    asyncio.run(trigger.on_kill())
    assert manager.logins == [requests.auth._basic_auth_str("kerberos", "ticket")]


@follows_jobs
def test_an_authentication_that_cannot_travel_is_reported_and_not_left_out(
    yarn: Any, context: Any, manager: ResourceManager, capsys: pytest.CaptureFixture[str]
) -> None:
    trigger = _defer(_operator(CdcMergeOperator, yarn, {}, yarn_rm_auth=Login()), context)
    assert "yarn_rm_auth is no import path" in capsys.readouterr().out
    assert (trigger.question["rm_auth"], trigger.question["spark_conn_id"]) == (None, None)
    assert "pw" not in json.dumps(trigger.serialize())
    asyncio.run(trigger.on_kill())
    assert manager.asked == []
    assert f"Job {JOB} goes on" in capsys.readouterr().out


@pytest.mark.parametrize("path", ["nowhere.Auth", "requests.auth.NoSuch", "requests.auth.HTTPBasicAuth", "Auth"])
def test_an_import_path_that_makes_no_authentication_is_refused(path: str, yarn: Any, context: Any) -> None:
    with pytest.raises(AirflowException, match=r"makes no authentication.*Next step: Name a class"):
        _operator(CdcMergeOperator, yarn, {}, yarn_rm_auth=path).execute(context)
