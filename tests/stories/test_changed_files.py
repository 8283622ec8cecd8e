"""A file that changes after it was surveyed is named, surveyed anew and read once more; what was added to it is not lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.places import delete_markers_uri, expired_markers_uri
from airflow_cdc.model.report.apply_report import FlowStatus
from airflow_cdc.pipeline.upkeep.expire_markers import expire_markers
from tests.conftest import Apply
from tests.support.events import TOPIC, sqlserver, write_records
from tests.support.tables import read_rows

OTHER = "server1.testDB.dbo.other"


def created(number: int, topic: str = TOPIC) -> dict[str, Any]:
    return sqlserver("c", commit=number, after={"id": number}, topic=topic, offset=number)


def rows(spark: SparkSession, lake: Path, topic: str = TOPIC) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), topic).rows


def ids(spark: SparkSession, lake: Path, topic: str = TOPIC) -> list[int]:
    return [row["id"] for row in rows(spark, lake, topic)]


def look_at_all(lake: Path) -> None:
    """Let an hour pass: the next look lists everything."""
    for file in lake.glob("_cdc/archives/*/looked.json"):
        file.unlink()


def test_a_file_that_grows_between_survey_and_merge_is_named_and_the_next_run_goes_on(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    path = archive / "1.jsonl"
    write_records(path, [created(1)])
    write_records(archive / "2.jsonl", [created(3)])
    apply(archive, lake, only_survey=True)
    size = path.stat().st_size
    write_records(path, [created(1), created(2)])

    (flow,) = apply(archive, lake, may_fail=True).flows
    assert flow.error
    assert (flow.error["type"], flow.error["transient"]) == ("ArchivedFileChangedError", True)
    assert f"1.jsonl ({size} bytes when it was surveyed, {path.stat().st_size} now)" in flow.error["message"]

    # The way out: run again.
    (flow,) = apply(archive, lake).flows
    assert (flow.status, flow.events.read, flow.events.merged) == (FlowStatus.APPLIED, 3, 3)
    assert ids(spark, lake) == [1, 2, 3]
    assert apply(archive, lake).flows[0].status is FlowStatus.UP_TO_DATE


@pytest.mark.deep
def test_what_is_added_to_an_applied_file_comes_with_the_next_whole_look(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    path = archive / "1.jsonl"
    write_records(path, [created(1), created(2)])
    apply(archive, lake)
    write_records(archive / "2.jsonl", [sqlserver("d", commit=5, before={"id": 1}, offset=5)])
    apply(archive, lake)
    write_records(path, [created(1), created(2), created(3)])
    look_at_all(lake)

    (flow,) = apply(archive, lake).flows
    # What was applied before is stale: the deleted row does not come back.
    assert (flow.events.read, flow.events.merged, flow.events.stale) == (3, 1, 2)
    assert ids(spark, lake) == [2, 3]
    look_at_all(lake)
    assert apply(archive, lake).flows[0].status is FlowStatus.UP_TO_DATE


@pytest.mark.parametrize("way", [pytest.param("grown", marks=pytest.mark.deep), "copy"])
def test_what_is_applied_again_brings_no_deleted_row_back_though_its_marker_has_expired(
    way: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    first = [created(1), created(2)]
    write_records(archive / "1.jsonl", first)
    apply(archive, lake)
    write_records(archive / "2.jsonl", [sqlserver("d", commit=5, before={"id": 1}, offset=5)])
    apply(archive, lake)
    places = (delete_markers_uri(str(lake), TOPIC), expired_markers_uri(str(lake), TOPIC))
    assert expire_markers(spark, *places, 2, dry_run=False) == 1
    write_records(archive / ("1.jsonl" if way == "grown" else "3.jsonl"), [*first, created(3)])
    look_at_all(lake)

    (flow,) = apply(archive, lake).flows

    assert (flow.events.read, flow.events.merged, flow.events.stale) == (3, 1, 2)
    assert ids(spark, lake) == [2, 3]


@pytest.mark.deep
def test_a_file_of_two_topics_that_changed_is_read_once_more_by_both(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    path = archive / "1.jsonl"
    write_records(path, [created(1), created(1, OTHER)])
    apply(archive, lake, tables=(TOPIC,))
    write_records(path, [created(1), created(1, OTHER), created(2), created(2, OTHER)])

    kinds = {flow.flow: flow.error and flow.error["type"] for flow in apply(archive, lake, may_fail=True).flows}
    assert kinds == {TOPIC: None, OTHER: "ArchivedFileChangedError"}
    apply(archive, lake)
    assert (ids(spark, lake), ids(spark, lake, OTHER)) == ([1, 2], [1, 2])


@pytest.mark.deep
def test_the_rest_of_a_transaction_that_is_added_to_its_file_is_put_together(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    ann, ben = ({"id": number, "name": name} for number, name in ((1, "ann"), (2, "ben")))
    write_records(
        archive / "0.jsonl", [sqlserver("c", commit=number, after=row, offset=number) for number, row in enumerate((ann, ben), 1)]
    )
    apply(archive, lake)
    # UPDATE t SET id = id + 1
    shift = [
        sqlserver("d", commit=10, serial=1, before=ann, offset=3),
        sqlserver("c", commit=10, serial=2, after={**ann, "id": 2}, offset=4),
        sqlserver("d", commit=10, serial=3, before=ben, offset=5),
        sqlserver("c", commit=10, serial=4, after={**ben, "id": 3}, offset=6),
    ]
    write_records(archive / "1.jsonl", shift[:2])
    apply(archive, lake)
    write_records(archive / "1.jsonl", shift)
    look_at_all(lake)
    apply(archive, lake)
    assert rows(spark, lake) == [{"id": 2, "name": "ann"}, {"id": 3, "name": "ben"}]


@pytest.mark.deep
def test_a_file_that_changes_at_every_run_stops_its_flow_and_no_other(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [created(1)])
    write_records(archive / "2.jsonl", [created(1, OTHER)])
    count = [1]

    def grow(effect: str) -> None:
        if effect == "survey":
            count[0] += 1
            write_records(archive / "1.jsonl", [created(number) for number in range(1, count[0] + 1)])

    for _ in range(2):
        report = apply(archive, lake, may_fail=True, after_effect=grow)
        assert {flow.flow: flow.status.value for flow in report.flows}[TOPIC] == "failed"
        assert ids(spark, lake, OTHER) == [1]
    apply(archive, lake)
    assert ids(spark, lake) == list(range(1, count[0] + 1))


@pytest.mark.deep
def test_microbatches_of_one_file_go_on_behind_a_withdrawn_one(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    flows = {TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)}
    for number in (1, 2, 3):
        write_records(archive / f"{number}.jsonl", [created(number)])
    apply(archive, lake, flows=flows, only_survey=True)
    write_records(archive / "2.jsonl", [created(2), created(4)])
    (flow,) = apply(archive, lake, flows=flows, may_fail=True).flows
    assert (flow.status, [batch.microbatch for batch in flow.batches]) == (FlowStatus.FAILED, [1])
    (flow,) = apply(archive, lake, flows=flows).flows
    assert [batch.microbatch for batch in flow.batches] == [3, 4]
    assert ids(spark, lake) == [1, 2, 3, 4]
