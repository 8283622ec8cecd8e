"""Lines that break off: each goes to the quarantine of the topic that it names, or of the file's; else to the archive's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnAllRejected
from airflow_cdc.pipeline.repair.replay_quarantine import replay_quarantine
from airflow_cdc.pipeline.repair.reprocess import Reprocessing
from tests.conftest import Apply
from tests.support.events import numbered, postgresql, record, write_records
from tests.support.tables import read_quarantine, read_rows

A, B, C = "pg.public.a", "pg.public.b", "pg.public.c"


def event(topic: str, offset: int) -> str:
    row = {"id": offset, "topic": "of the row", "text": 'the "topic": "x" and \\ more'}
    return json.dumps(postgresql("c", commit=10 + offset, change=11 + offset, after=row, topic=topic, offset=offset))


def land(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def quarantined(spark: SparkSession, lake: Path) -> dict[tuple[str | None, str], list[int]]:
    """Return the lines by flow and reason."""
    found: dict[tuple[str | None, str], list[int]] = {}
    for item in read_quarantine(spark, str(lake)):
        found.setdefault((item["flow"], item["reason"]), []).append(item["line"])
    return {place: sorted(lines) for place, lines in found.items()}


@pytest.mark.deep
def test_a_line_that_breaks_off_goes_to_the_topic_that_it_names(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    whole = event(B, 7)
    # Cut behind the name, in the key, in the image, before the last brace; and one whose members come in another order.
    cuts = [whole[: whole.index(B) + len(B) + 1], whole[:60], whole[: whole.index("of the row") + 4], whole[:-1]]
    turned = '{"partition": 0, "key": {"topic": 1}, "offset": 9, "topic" : "' + B + '", "val'
    unnamed = '{"offset": 8, "value": {"after": {"topic": "' + A + '"'
    in_name = '{"topic": "pg.pub'
    land(archive / "mixed.jsonl", event(A, 0), event(B, 0), *cuts, turned, unnamed, in_name, "no json", event(A, 1))
    report = apply(archive, lake)
    read = {flow.flow: (flow.events.read, flow.events.merged, flow.events.rejected) for flow in report.flows}
    assert read == {A: (2, 2, 0), B: (6, 1, 5)}
    assert quarantined(spark, lake) == {(B, "malformed_json"): [3, 4, 5, 6, 7], (None, "malformed_json"): [8, 9, 10]}
    assert [(topic.topic, topic.reason.value, topic.records, topic.added) for topic in report.held_topics] == [("", "unknown_topic", 3, 3)]
    assert not apply(archive, lake).held_topics[0].added


def test_a_line_that_names_none_goes_to_the_files_topic_where_it_has_one(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    # One topic only; several, of which one is the sink's; several beside a name that is none.
    land(archive / "one.jsonl", event(A, 0), "{half")
    land(archive / f"{B}+0+0.json", event(A, 1), event(B, 0), "{half", json.dumps({"no": "record"}))
    land(archive / "stray.jsonl", event(C, 0), event("../x", 0), "{half")
    apply(archive, lake)
    assert quarantined(spark, lake) == {
        (A, "malformed_json"): [2],
        (B, "malformed_json"): [3],
        (B, "not_a_change_event"): [4],
        (C, "malformed_json"): [3],
        ("../x", "illegal_topic_name"): [2],
    }


@pytest.mark.deep
def test_a_column_called_topic_makes_no_record_of_a_row(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    values = [json.dumps(json.loads(event(A, number))["value"]) for number in range(2)]
    row = '{"id": 3, "topic": "news", "partition": 4, "value": "x'
    land(archive / f"{A}+0+0.json", values[0], row, values[1])
    land(archive / "topics" / B / "partition=0" / f"{B}+0+0.json", row)
    write_records(archive / "whole.jsonl", [record(A, {"id": 9}, json.loads(event(A, 9))["value"], 9, 0)])
    write_records(archive / f"{A}+0+0.keys.json", [{"id": 0}, {"id": 5}, {"id": 1}])
    apply(archive, lake, flows={B: CdcFlow(B, on_all_rejected=OnAllRejected.QUARANTINE)}, may_fail=True)
    assert quarantined(spark, lake) == {(A, "malformed_json"): [2], (B, "malformed_json"): [1]}
    assert [found["id"] for found in read_rows(spark, str(lake), A).rows] == [0, 1, 9]


@pytest.mark.deep
def test_lines_of_a_survey_of_an_older_version_stay_where_it_counted_them(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    land(archive / "mixed.jsonl", event(A, 0), event(B, 0), event(B, 1)[:60])
    apply(archive, lake, only_survey=True)
    (survey,) = (lake / "_cdc" / "archives").rglob("00000001.json")
    document = json.loads(survey.read_text())
    for shape in document["shapes"]:
        # It knew no better than the first topic of the file.
        shape.pop("reads_beginnings")
        if shape["kind"] == "malformed":
            shape |= {"topic": A, "has_topic": False}
    survey.write_text(json.dumps(document))
    (survey.parent.parent / "ledger.json").unlink()
    apply(archive, lake)
    assert quarantined(spark, lake) == {(A, "malformed_json"): [3]}
    # And so it is read again.
    assert replay_quarantine(Reprocessing(spark, str(archive), str(lake), A)).files == 1
    assert quarantined(spark, lake) == {(A, "malformed_json"): [3]}


@pytest.mark.deep
@pytest.mark.parametrize("consistent", [True])
def test_a_cut_through_a_file_leaves_its_lines_where_they_belong(
    consistent: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    land(archive / "mixed.jsonl", event(A, 0), event(A, 5), event(B, 3), event(B, 9)[:60], "{half")
    report = apply(archive, lake, consistent=consistent)
    assert sum(flow.cut_records for flow in report.flows) == 1
    land(archive / "later.jsonl", *(json.dumps(item) for item in numbered([json.loads(event(B, 20))], first=20)))
    apply(archive, lake, consistent=consistent)
    assert quarantined(spark, lake) == {(B, "malformed_json"): [4], (None, "malformed_json"): [5]}
