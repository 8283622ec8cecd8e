"""Who hears that flows need a look: once when that begins, again after a day, and in every run by its colour."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile
from airflow_cdc.model.errors import RejectReason
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.notifications.flows import CdcNotifier
from airflow_cdc.operators.health import CdcHealthOperator
from tests.unit.airflow.dag_bag import dag_bag
from tests.unit.airflow.mail_server import MailServer, text_of

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
QUARTER, DAY = 900.0, 86_400.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The task's clock, which stands at ``now``."""
    held = SimpleNamespace(now=time.time())
    monkeypatch.setattr("airflow_cdc.operators.health.time", SimpleNamespace(time=lambda: held.now))
    return held


def looked(context: Any, **arguments: Any) -> tuple[str, tuple[str, ...]]:
    """Return the error of a look, and what it found that was not said before."""
    task = CdcHealthOperator(task_id="health", **arguments)
    with pytest.raises(AirflowFailException) as failure:
        task.execute(context)
    return str(failure.value), tuple(finding.line() for finding in task.news or ())


@pytest.fixture(autouse=True)
def kept(context: Any) -> None:
    """Let the task instance keep what was pushed, as the runs of one Dag do."""
    context["ti"].xcom_pull = lambda *, key, **_: context["ti"].pushed.get(key)


def archive_state() -> ArchiveState:
    places = CdcArchiveHook().beside(CdcLakeHook())
    return ArchiveState(places["lake_fs"], places["lake_root"], places["archive"])


def test_the_shipped_dag_mails_once_what_is_behind_and_again_after_a_day_or_a_recovery(
    scene: Any, airflow_database: None, mail: MailServer, clock: SimpleNamespace
) -> None:
    dag = dag_bag(Path(__file__).parents[3] / "dags" / "cdc_watch.py").dags["cdc_watch"]
    scene.save(dag)

    def run(state: str, mails: int, after: float = QUARTER) -> None:
        clock.now += after
        assert (dag.test().state, len(mail.mails)) == (state, mails)

    scene.land("0000000000")
    scene.land("0000000001")
    run("failed", 1)
    assert mail.mails[0]["subject"] == "1 flow behind"
    said = f"{TOPIC}: never applied, or its events carry no time; pending: 2 files, 24 bytes"
    assert said in text_of(mail.mails[0])
    run("failed", 1)
    scene.land("0000000000", topic=OTHER_TOPIC)
    run("failed", 2)
    assert OTHER_TOPIC in text_of(mail.mails[1])
    assert TOPIC not in text_of(mail.mails[1])
    run("failed", 3, after=DAY)
    for file in scene.archive.rglob("*.json"):
        file.unlink()
    run("success", 3)
    scene.land("0000000002")
    run("failed", 4)


def test_a_look_that_finds_nothing_returns_no_findings(scene: Any, context: Any) -> None:
    task = CdcHealthOperator(task_id="health")
    assert task.execute(context) == {"findings": []}
    assert CdcNotifier([]).summary({"task": task}).findings == ()


def test_what_the_last_days_microbatches_did_is_found_and_what_was_before_is_not(scene: Any, context: Any) -> None:
    script = scene.spark_submit.read_text()

    def merge(number: int, days_ago: int) -> None:
        begun = int((time.time() - days_ago * DAY) * 1000)
        scene.submit_by(script.replace("table_version=batch", f"rejects={{'missing_key': 1}}, started_at={begun}, table_version=batch"))
        scene.land(f"{number:010}")
        scene.merge().execute(context)

    merge(0, days_ago=5)
    assert CdcHealthOperator(task_id="health").execute(context) == {"findings": []}
    merge(1, days_ago=0)
    error, news = looked(context)
    assert error.splitlines()[0] == "1 record rejected"
    assert news == (f"{TOPIC}: 1 of 1 records (1 missing_key)",)
    assert looked(context)[1] == ()
    assert CdcHealthOperator(task_id="health", tables=OTHER_TOPIC).execute(context) == {"findings": []}


def test_a_file_that_cannot_be_read_stops_its_flow(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    scene.merge().execute(context)
    file = SetAsideFile("server.db.orders/x.json.gz", TOPIC, UNREADABLE, "it ends too early", "2026-11-29T00:00:00+00:00")
    archive_state().write_set_aside([file])
    _, news = looked(context)
    assert any(line.startswith(f"{TOPIC}: 1 archived file cannot be read: server.db.orders/x.json.gz") for line in news)


@pytest.mark.parametrize(
    ("reason", "is_found"),
    [(RejectReason.ILLEGAL_TOPIC_NAME, True), (RejectReason.UNKNOWN_TOPIC, True), (RejectReason.UNDECLARED_TOPIC, False)],
)
def test_topics_that_no_flow_can_take_are_found_and_those_that_the_settings_hold_are_not(
    scene: Any, context: Any, reason: RejectReason, is_found: bool
) -> None:
    scene.land("0000000000")
    scene.merge().execute(context)
    held = HeldTopic("a b", reason, files=1, records=5, through=1)
    archive_state().write_held_topics({held.topic: held})
    if not is_found:
        assert CdcHealthOperator(task_id="health").execute(context) == {"findings": []}
        return
    error, news = looked(context)
    assert (error.splitlines()[0], news) == ("5 records rejected", (str(held),))
    assert CdcHealthOperator(task_id="health", tables="server.*").execute(context) == {"findings": []}
    (survey,) = scene.lake.rglob("surveys/*.json")
    os.utime(survey, (time.time() - 2 * DAY,) * 2)
    assert CdcHealthOperator(task_id="health").execute(context) == {"findings": []}


def test_a_flow_whose_state_cannot_be_read_hides_no_other(scene: Any, context: Any) -> None:
    for topic in (TOPIC, OTHER_TOPIC):
        scene.land("0000000000", topic=topic)
    scene.merge().execute(context)
    for topic in (TOPIC, OTHER_TOPIC):
        folder = FlowState(CdcLakeHook().fs, CdcLakeHook().fs_root, topic).folder
        (found,) = Path(scene.lake).rglob(f"{folder}/checkpoint.json")
        found.write_text("{")
    lines = looked(context)[0]
    assert all(f"• {topic}: " in lines for topic in (TOPIC, OTHER_TOPIC))


def break_archive(scene: Any) -> None:
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host=str(scene.archive / "gone"))


def break_lake(scene: Any) -> None:
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host="s3://bucket/lake", extra={"endpoint_url": "http://127.0.0.1:9"})


@pytest.mark.parametrize(("breaks", "what"), [(break_archive, "The lag cannot be looked at: "), (break_lake, "The lake cannot be ")])
def test_a_store_that_cannot_be_looked_at_is_said_once(scene: Any, context: Any, breaks: Callable[[Any], None], what: str) -> None:
    breaks(scene)
    error, news = looked(context)
    assert what in error
    assert news
    assert looked(context)[1] == ()


def test_each_of_two_outages_is_said_and_what_was_said_before_them_is_not_said_again(scene: Any, context: Any) -> None:
    scene.land("0000000000")
    assert len(looked(context)[1]) == 1
    break_archive(scene)
    (said,) = looked(context)[1]
    assert said.startswith("The lag ")
    break_lake(scene)
    (said,) = looked(context)[1]
    assert said.startswith("The lake ")
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host=str(scene.archive))
    scene.connect("cdc_lake_default", conn_type="cdc_lake", host=str(scene.lake))
    assert looked(context) == (looked(context)[0], ())


def test_a_name_that_renders_to_nothing_is_refused(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="names nothing"):
        CdcHealthOperator(task_id="health", tables=" ").execute(context)


def test_a_merges_report_names_the_topics_that_no_flow_can_take_where_it_added_to_them() -> None:
    def title(*held: HeldTopic) -> str:
        context: Any = {"task": SimpleNamespace(report=ApplyReport("a", "l", held_topics=held))}
        return CdcNotifier([]).summary(context).title

    held = HeldTopic("a b", RejectReason.ILLEGAL_TOPIC_NAME, files=1, records=5, added=2)
    assert title(held, replace(held, topic="new", reason=RejectReason.UNDECLARED_TOPIC)) == "2 records rejected"
    assert title(replace(held, added=0)) == ""
