"""Topics that nobody declared: they get a table, or wait in the archive's quarantine, or stop, as the settings say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.new_topics import OnNewTopic
from airflow_cdc.model.flow.routes import Route, RoutedFlows
from airflow_cdc.model.look.pending import PendingFiles, pending_files
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.pipeline.repair.replay_quarantine import replay_quarantine
from airflow_cdc.pipeline.repair.reprocess import Reprocessing
from airflow_cdc.pipeline.repair.reprocess_flows import FlowsAgain, replay_flows
from tests.conftest import Apply
from tests.support.events import sqlserver, write_records
from tests.support.surveys import FS
from tests.support.tables import read_quarantine, read_rows

KNOWN, OTHER, STRAY = (f"server1.testDB.dbo.{name}" for name in ("known", "other", "stray"))


def declared(policy: OnNewTopic, *topics: str) -> RoutedFlows:
    return RoutedFlows({topic: CdcFlow(topic) for topic in topics}, on_new_topic=policy)


def land(archive: Path, number: int, *topics: str) -> None:
    records = [sqlserver("c", commit=10 * number, after={"id": number}, topic=topic, offset=number) for topic in topics]
    write_records(archive / f"{number}.jsonl", records)


def statuses(report: ApplyReport) -> dict[str, str]:
    return {flow.flow: flow.status.value for flow in report.flows}


def ids(spark: SparkSession, lake: Path, topic: str) -> list[int]:
    return [row["id"] for row in read_rows(spark, str(lake), topic).rows]


def waiting(archive: Path, lake: Path) -> PendingFiles:
    return pending_files(archive_fs=FS, archive_root=str(archive), archive=str(archive), lake_fs=FS, lake_root=str(lake))


def set_aside(spark: SparkSession, lake: Path) -> list[tuple[str, str, str, int]]:
    return [(item["flow"], item["reason"], item["file"], item["line"]) for item in read_quarantine(spark, str(lake))]


def test_every_new_table_is_reported_and_no_other(apply: Apply, archive: Path, lake: Path) -> None:
    land(archive, 1, KNOWN)
    lines: list[str] = []
    assert [flow.is_new_table for flow in apply(archive, lake, progress=lines.append).flows] == [True]
    land(archive, 2, KNOWN, STRAY)
    report = ApplyReport.from_json(json.loads(json.dumps(apply(archive, lake, progress=lines.append).to_json())))
    assert {flow.flow: flow.is_new_table for flow in report.flows} == {KNOWN: False, STRAY: True}
    assert [list(flow.gap_lines()) for flow in report.flows] == [[], [f"{STRAY}: new table {lake}/{STRAY}"]]


def test_a_topic_that_nobody_declared_waits_in_quarantine_and_is_merged_from_its_first_record_once_it_is(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = declared(OnNewTopic.QUARANTINE, KNOWN)
    land(archive, 1, KNOWN, STRAY)
    land(archive, 2, STRAY, OTHER)
    report = apply(archive, lake, flows=flows)
    assert statuses(report) == {KNOWN: "applied"}
    held = {topic.topic: (topic.reason.value, topic.files, topic.records, topic.added) for topic in report.held_topics}
    assert held == {OTHER: ("undeclared_topic", 1, 1, 1), STRAY: ("undeclared_topic", 2, 2, 2)}
    assert set_aside(spark, lake) == [
        (STRAY, "undeclared_topic", "1.jsonl", 2),
        (STRAY, "undeclared_topic", "2.jsonl", 1),
        (OTHER, "undeclared_topic", "2.jsonl", 2),
    ]
    assert not (lake / STRAY).exists()
    assert {path.name for path in (lake / "_cdc" / "flows").iterdir()} == {KNOWN}
    # No sensor calls for it.
    assert not waiting(archive, lake)

    land(archive, 3, STRAY)
    report = apply(archive, lake, flows=flows)
    assert [topic.added for topic in report.held_topics if topic.topic == STRAY] == [1]
    assert len(set_aside(spark, lake)) == 4
    # Another archive's, or a run of other tables, takes nothing out.
    report = apply(archive, lake, flows=declared(OnNewTopic.QUARANTINE, KNOWN, STRAY), tables=(KNOWN,))
    assert len(set_aside(spark, lake)) == 4

    routed = RoutedFlows({KNOWN: CdcFlow(KNOWN)}, [Route(r".*\.(stray)", r"gold/\1")], OnNewTopic.QUARANTINE)
    report = apply(archive, lake, flows=routed)
    assert {flow.flow: (flow.status.value, flow.events.merged, flow.is_new_table) for flow in report.flows} == {
        KNOWN: ("up_to_date", 0, False),
        STRAY: ("applied", 3, True),
    }
    assert ids(spark, lake, STRAY) == [1, 2, 3]
    assert set_aside(spark, lake) == [(OTHER, "undeclared_topic", "2.jsonl", 2)]
    # The lake has a table of it now.
    land(archive, 4, STRAY)
    assert statuses(apply(archive, lake, flows=routed)) == {KNOWN: "up_to_date", STRAY: "applied"}


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["current", "versions"])
def test_a_replay_merges_a_topic_once_it_is_declared(mode: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    flows = declared(OnNewTopic.QUARANTINE, KNOWN)
    land(archive, 1, KNOWN, STRAY)
    land(archive, 2, STRAY)
    apply(archive, lake, flows=flows)
    with pytest.raises(ConfigurationError, match=f"topic {STRAY}: 2 records in 2 files are in the archive's quarantine.*Declare the topic"):
        replay_quarantine(Reprocessing(spark, str(archive), str(lake), STRAY, flows=flows))
    settings = CdcFlow(STRAY, stored_as_scd_type=2 if mode == "versions" else 1)
    now = RoutedFlows({KNOWN: CdcFlow(KNOWN), STRAY: settings}, on_new_topic=OnNewTopic.QUARANTINE)
    dry = replay_quarantine(Reprocessing(spark, str(archive), str(lake), STRAY, flows=now, dry_run=True))
    assert dry.files == 2
    assert len(set_aside(spark, lake)) == 2
    report = replay_flows(FlowsAgain(spark, str(archive), str(lake), (STRAY,), flows=now))
    assert [(flow.flow, flow.error, sum(batch.rows.inserted for batch in flow.done)) for flow in report.flows] == [(STRAY, None, 2)]
    assert (ids(spark, lake, STRAY), set_aside(spark, lake)) == ([1, 2], [])


@pytest.mark.deep
def test_a_crash_between_quarantine_and_state_leaves_each_record_there_once(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = declared(OnNewTopic.QUARANTINE, KNOWN)
    land(archive, 1, KNOWN, STRAY)
    apply(archive, lake, flows=flows)
    (state,) = (lake / "_cdc" / "archives").glob("*/held_topics.json")
    before = state.read_bytes()
    land(archive, 2, STRAY)
    apply(archive, lake, flows=flows)
    # As if the run had died before it wrote down what it did; and the next finds more.
    state.write_bytes(before)
    land(archive, 3, STRAY)
    apply(archive, lake, flows=flows)
    assert [(file, line) for _, _, file, line in set_aside(spark, lake)] == [("1.jsonl", 2), ("2.jsonl", 1), ("3.jsonl", 1)]


def test_a_new_topic_stops_its_own_flow_alone_where_the_settings_declare_it(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = declared(OnNewTopic.STOP, KNOWN)
    land(archive, 1, KNOWN, STRAY)
    land(archive, 2, STRAY)
    report = apply(archive, lake, flows=flows, may_fail=True)
    assert statuses(report) == {KNOWN: "applied", STRAY: FlowStatus.FAILED.value}
    (error,) = [flow.error for flow in report.flows if flow.error]
    assert (error["type"], error["transient"]) == ("NewTopicError", False)
    assert f"Topic {STRAY}: 2 records in 2 files, the first of them 1.jsonl, are of no flow and no route" in error["message"]
    assert "on_new_topic" in error["next_step"]
    assert not (lake / STRAY).exists()
    assert not (lake / "_cdc" / "flows" / STRAY).exists()
    # A run that is not asked for it is green.
    assert apply(archive, lake, flows=flows, tables=(KNOWN,)).ok
    assert statuses(apply(archive, lake, flows=declared(OnNewTopic.STOP, KNOWN, STRAY))) == {KNOWN: "up_to_date", STRAY: "applied"}
    assert ids(spark, lake, STRAY) == [1, 2]
