"""Names of topics that are no topic's: they become no path, and stop nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import ApplyReport
from tests.conftest import Apply
from tests.support.events import TOPIC, Record, numbered, postgresql, sqlserver, write_records
from tests.support.tables import read_quarantine, read_rows

NAMES = (
    "..",
    ".",
    "../x",
    "../../outside",
    "/tmp/cdc-names-outside",
    "a/../../x",
    "_cdc",
    "_CDC",
    "_cdc/flows",
    "_delta_log",
    f"_cdc/flows/{TOPIC}",
    "line\nFAILED: another\r\x1b[2J",
    "nul\x00name",
    "file:///tmp/cdc-names-outside",
    "s3://bucket/x",
    "%2E%2E",
    "ein Größe",
    "x" * 250,
    "  ",
)
GOOD = ("_internal", ".hidden", "...", "server1.testDB.dbo.my-table_1")


def snapshot(folder: Path, lake: Path) -> dict[str, float]:
    """Return what lies in a folder outside of a lake, with its times."""
    return {
        str(path): path.lstat().st_mtime_ns for path in folder.rglob("*") if path != lake and lake not in path.parents and path.is_file()
    }


def of_topic(name: str, number: int) -> Record:
    return sqlserver("c", commit=10 + number, after={"id": number}, topic=name, offset=number)


def held(report: ApplyReport) -> dict[str, tuple[str, int]]:
    return {topic.topic: (topic.reason.value, topic.records) for topic in report.held_topics}


def test_no_name_writes_outside_of_the_lake_or_over_its_state(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    home = tmp_path / "home"
    archive, lake = home / "data" / "archive", home / "data" / "lakes" / "lake"
    write_records(archive / "good.jsonl", numbered([sqlserver("c", commit=1, after={"id": 1})]))
    apply(archive, lake)
    state = {path: path.read_bytes() for path in (lake / "_cdc" / "flows").rglob("*.json") if path.is_file()}
    before, lines = snapshot(home, lake), list[str]()
    write_records(archive / "stray.jsonl", [of_topic(name, number) for number, name in enumerate([*NAMES, *GOOD])])
    write_records(archive / "good2.jsonl", numbered([sqlserver("c", commit=2, after={"id": 2})], first=1))
    report = apply(archive, lake, progress=lines.append)

    after = snapshot(home, lake)
    assert after.keys() - before.keys() == {str(archive / "stray.jsonl"), str(archive / "good2.jsonl")}
    assert {path: after[path] for path in before} == before
    assert not Path("/tmp/cdc-names-outside").exists()
    # Nothing of the flow's state that was written before changed, but for where it stands.
    assert all(path.read_bytes() == text for path, text in state.items() if path.name != "checkpoint.json")
    assert {path.name for path in lake.iterdir()} == {"_cdc", TOPIC, *GOOD}
    assert {path.name for path in (lake / "_cdc").iterdir()} == {"archives", "flows", "leases"}
    assert {path.name for path in (lake / "_cdc" / "flows").iterdir()} == {TOPIC, *GOOD}

    # The good ones are merged, and the others reported, each record of them with its place.
    assert [row["id"] for row in read_rows(spark, str(lake), TOPIC).rows] == [1, 2]
    assert {flow.flow for flow in report.flows} == {TOPIC, *GOOD}
    assert held(report) == dict.fromkeys(NAMES, ("illegal_topic_name", 1))
    found = [record for record in read_quarantine(spark, str(lake)) if record["reason"] == "illegal_topic_name"]
    assert {(record["topic"], record["file"], record["line"]) for record in found} == {
        (name, "stray.jsonl", number + 1) for number, name in enumerate(NAMES)
    }
    assert {json.loads(record["raw"])["topic"] for record in found} == {*NAMES}
    assert not [line for line in report.set_aside_lines() if {"\n", "\r", "\x1b"} & set(line)]

    # A second run does nothing once more, and the records stand there once.
    again = apply(archive, lake)
    assert held(again) == held(report)
    assert not [topic for topic in again.held_topics if topic.added]
    assert len(read_quarantine(spark, str(lake))) == len(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def cdl(name: str) -> dict[str, Any]:
    value = {"OPERATION": "INSERT", "PRIMARY_KEY": "id", "DATA": {"id": 1}, "HEARTBEAT_IDENTIFIER": "x"}
    return {"topic": name, "partition": 0, "offset": 0, "key": None, "value": value}


@pytest.mark.deep
def test_records_of_any_shape_go_by_the_same_gate(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    flattened = {"topic": "../flat", "partition": 0, "offset": 0, "key": {"id": 1}, "value": {"id": 1, "__op": "c", "__lsn": 5}}
    mongodb = {**flattened, "topic": "../mongo", "value": {"op": "c", "after": '{"_id": 1}', "source": {"connector": "mongodb"}}}
    write_records(archive / "mixed.jsonl", [cdl("../cdl"), flattened, mongodb, postgresql("c", commit=1, change=2, after={"id": 1})])
    # By the name of a file or folder too.
    write_records(archive / "my table.jsonl", [postgresql("c", commit=1, change=2, after={"id": 1})["value"]])
    write_records(archive / "_cdc" / "partition=0" / "part.jsonl", [postgresql("c", commit=1, change=2, after={"id": 1})["value"]])
    report = apply(archive, lake)
    assert [flow.flow for flow in report.flows] == ["pg.public.customers"]
    assert {*held(report)} == {"../cdl", "../flat", "../mongo", "my table", "_cdc"}
    assert {path.name for path in lake.iterdir()} == {"_cdc", "pg.public.customers"}

    # The settings may spell such a name out: then it is a flow's, from its first record on.
    declared = {"my table": CdcFlow("my table", keys=("id",)), "_cdc": CdcFlow("_cdc", table="cdc", keys=("id",))}
    report = apply(archive, lake, flows=declared)
    assert {*held(report)} == {"../cdl", "../flat", "../mongo"}
    assert [row["id"] for row in read_rows(spark, str(lake), "my table").rows] == [1]
    assert (lake / "cdc" / "_delta_log").is_dir()
    assert {record["topic"] for record in read_quarantine(spark, str(lake))} == {"../cdl", "../flat", "../mongo"}
    # A lake that has such a flow goes on with it, also without the settings.
    write_records(archive / "my table.2+0+5.json", [])
    assert "my table" in {flow.flow for flow in apply(archive, lake).flows}
