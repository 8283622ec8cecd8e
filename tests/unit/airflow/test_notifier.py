"""Who hears of a flow that is behind, stopped, rejects records or keeps unconfirmed rows: through Airflow's callbacks, to a mail server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier

from airflow_cdc.dag_factory import cdc_dags
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.warn_above import WarnAbove
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.notifications.flows import CdcNotifier
from airflow_cdc.sensors.lag import CdcLagSensor
from tests.unit.airflow.mail_server import MailServer, text_of

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.<customers>"
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
REJECTING = BatchReport(TOPIC, 1, 1, 9, EventCounts(read=1000, merged=997, rejected=3), rejects={"missing_key": 1, "malformed_json": 2})
UNCONFIRMED = BatchReport(OTHER_TOPIC, 1, 1, 9, EventCounts(read=1, merged=1), rows_unconfirmed=12)
MAIL = {"from_email": "a@example.com", "to": "b@example.com", "subject": "{{ cdc.title }}", "html_content": "{{ cdc.html }}"}


def applied(*batches: BatchReport) -> ApplyReport:
    return ApplyReport("a", "l", tuple(FlowOutcome(batch.flow, FlowStatus.APPLIED, "l/t", (batch,)) for batch in batches))


STOPPED = ApplyReport("a", "l", (FlowOutcome(TOPIC, FlowStatus.FAILED, "l/t", (), TERMINAL),))


def run(scene: Any, make: Callable[[], Any]) -> str:
    from airflow.sdk import DAG

    with DAG("cdc_notified", schedule=None) as dag:
        make()
    scene.save(dag)
    return str(dag.test().state)


def merging(scene: Any, notifier: Any, **arguments: Any) -> Callable[[], Any]:
    return lambda: scene.merge(on_failure_callback=notifier, on_success_callback=notifier, **arguments)


def summary(report: Any, **bounds: Any) -> Any:
    notifier = CdcNotifier([], **bounds)
    return notifier.summary({"task": SimpleNamespace(report=report, lake_conn_id="lake_a")})  # type: ignore[typeddict-item]


# Through Airflow.


@pytest.mark.parametrize(
    ("report", "exit_code", "state", "title", "said"),
    [
        (STOPPED, 1, "failed", "1 flow stopped", f"{TOPIC}: SchemaChangeError: Column total shrank. Next step: Widen it."),
        (applied(REJECTING), 0, "success", "3 records rejected", f"{TOPIC}: 3 of 1,000 records (2 malformed_json, 1 missing_key)"),
        (applied(UNCONFIRMED), 0, "success", "12 rows unconfirmed", "server.db.&lt;customers&gt;: 12 rows."),
    ],
    ids=["stopped", "rejected", "unconfirmed"],
)
def test_a_run_of_a_dag_mails_what_its_report_shows(
    scene: Any, airflow_database: None, mail: MailServer, report: ApplyReport, exit_code: int, state: str, title: str, said: str
) -> None:
    scene.submit_leaves(report.to_json(), exit_code=exit_code)
    assert run(scene, merging(scene, CdcNotifier(SmtpNotifier(**MAIL)))) == state
    (sent,) = mail.mails
    assert (sent["subject"], sent["to"]) == (title, "b@example.com")
    assert said in text_of(sent)
    assert "Dag cdc_notified, task merge, run " in text_of(sent)


def test_a_run_in_which_all_is_well_mails_nothing(scene: Any, airflow_database: None, mail: MailServer) -> None:
    scene.land("0000000000")
    assert run(scene, merging(scene, CdcNotifier(SmtpNotifier(**MAIL), behind_seconds=1))) == "success"
    assert mail.mails == []


def test_a_job_that_left_no_report_is_mailed_by_the_tasks_error(scene: Any, airflow_database: None, mail: MailServer) -> None:
    scene.submit_by("#!/bin/sh\necho 'java.lang.OutOfMemoryError'\nexit 1\n")
    assert run(scene, merging(scene, CdcNotifier(SmtpNotifier(**MAIL)))) == "failed"
    assert "java.lang.OutOfMemoryError" in text_of(mail.mails[0])


# What is said of what.


def test_bounds_decide_what_is_worth_a_message() -> None:
    both = applied(REJECTING, UNCONFIRMED)
    assert summary(both).title == "3 records rejected, 12 rows unconfirmed"
    tolerant = replace(REJECTING, warn_above=WarnAbove(rejected=0.003))
    assert summary(applied(tolerant, UNCONFIRMED)).title == "12 rows unconfirmed"
    assert summary(both, attention=False).findings == ()
    assert summary(STOPPED, stopped=False).findings == ()


def test_a_table_is_behind_by_the_notifiers_bound_or_by_the_sensors(scene: Any, context: Any) -> None:
    commits = "committed_through=int((__import__('time').time() - 7500) * 1000), table_version=batch.number"
    scene.submit_by(scene.spark_submit.read_text().replace("table_version=batch.number", commits))
    scene.land("0000000000")
    scene.merge().execute(context)
    scene.land("0000000001")
    sensor = CdcLagSensor(task_id="lag", max_seconds=3600)
    asked = {"task": sensor, "ti": context["ti"]}
    (finding,) = CdcNotifier([]).summary(asked).findings  # type: ignore[typeddict-item]
    assert finding.line() == f"{TOPIC}: 2 h 5 min behind the source; pending: 1 file, 12 bytes"
    assert CdcNotifier([], behind_seconds=8000).summary(asked).findings == ()  # type: ignore[typeddict-item]
    assert CdcNotifier([]).summary({"task": scene.merge(task_id="other")}).findings == ()  # type: ignore[typeddict-item]


def test_the_text_names_each_kind_once_and_at_most_ten_flows() -> None:
    flows = tuple(FlowOutcome(f"t{number:02}", FlowStatus.FAILED, None, (), TERMINAL) for number in range(12))
    found = summary(ApplyReport("a", "l", (*flows, *applied(REJECTING).flows)))
    lines = found.text.splitlines()
    assert found.title == "12 flows stopped, 3 records rejected"
    assert lines[:4] == ["lake lake_a", "", "Stopped", "• t00: SchemaChangeError: Column total shrank. Next step: Widen it."]
    assert lines[13:16] == ["• … and 2 more", "", "Rejected records, now in the quarantine"]
    assert [each["flow"] for each in found.to_json()["findings"]] == [*(flow.flow for flow in flows), TOPIC]


def test_a_notifier_says_something_else_of_the_next_run_and_one_that_fails_keeps_none_from_being_called() -> None:
    class Slack(SmtpNotifier):
        """Renders as Slack's does, and keeps the text."""

        said: list[Any] = []  # noqa: RUF012

        def notify(self, context: Any) -> None:
            self.said.append(self.subject)
            if self.to == "nobody":
                raise OSError("no such channel")

    notifier = CdcNotifier([Slack(to="nobody", subject="{{ cdc.title }}"), Slack(to="all", subject="again {{ cdc.title }}")])
    for report in (STOPPED, applied(REJECTING)):
        with pytest.raises(OSError, match="no such channel"):
            notifier({"task": SimpleNamespace(report=report)})
    assert Slack.said == ["1 flow stopped", "again 1 flow stopped", "3 records rejected", "again 3 records rejected"]


# By airflow_cdc.yaml.

YAML = """\
defaults:
  retries: 0
  notify:
  - by: airflow.providers.smtp.notifications.smtp.SmtpNotifier
    arguments: {{from_email: a@example.com, to: b@example.com, subject: "{{{{ cdc.title }}}}", html_content: "{{{{ cdc.text }}}}"}}
    attention: {attention}
dags:
- dag_id: cdc_by_file
  tables: ["*"]
"""


@pytest.mark.parametrize(("attention", "titles"), [("true", ["3 records rejected"]), ("false", [])])
def test_a_dag_of_the_file_notifies_by_what_the_file_says(
    scene: Any, airflow_database: None, mail: MailServer, attention: str, titles: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "airflow_cdc.yaml"
    file.write_text(YAML.format(attention=attention))
    dag = cdc_dags(file)["cdc_by_file"]
    scene.land("0000000000")
    scene.submit_leaves(applied(REJECTING).to_json(), exit_code=0)
    dag.task_dict["merge"]._spark_binary = str(scene.spark_submit)
    scene.save(dag)
    assert dag.test().state == "success"
    assert [sent["subject"] for sent in mail.mails] == titles


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"SmtpNotifier\n": "NoNotifier\n"}, "notify is .*NoNotifier', which cannot be imported"),
        ({"to: b": "whom: b"}, "notify by .*SmtpNotifier with .*'whom'"),
        ({"attention: true": "attention: -1"}, "defaults.notify.0..attention is -1, expected"),
        ({"attention: true": "rejects: 0"}, "rejects is no setting; known are arguments, attention, behind_seconds, by,"),
    ],
)
def test_a_notifier_that_cannot_be_made_is_the_files_error(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    text = YAML.format(attention="true")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "airflow_cdc.yaml"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=said):
        cdc_dags(file)
