"""Stories of archives from which something is missing: named, waited for, or a reason to stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.completeness import OffsetGap
from airflow_cdc.model.errors import OffsetGapError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnGap
from airflow_cdc.model.report.apply_report import FlowStatus
from airflow_cdc.pipeline.survey import find_holes
from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, tombstone, write_records
from tests.support.tables import read_rows


def creates(first: int, last: int, *, partition: int = 0) -> list[dict[str, Any]]:
    """Return one create for each offset; key, position and offset are the same number, apart by partition."""
    shift = 1000 * partition
    return [
        sqlserver("c", commit=shift + number + 1, after={"id": shift + number, "v": "x"}, offset=number, partition=partition)
        for number in range(first, last + 1)
    ]


def ids(spark: SparkSession, lake: Path) -> list[int]:
    return [row["id"] for row in read_rows(spark, str(lake), TOPIC).rows]


def test_by_default_a_gap_is_reported_until_a_late_file_fills_it(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "a.jsonl", creates(5, 9))
    write_records(archive / "c.jsonl", creates(20, 24))
    (flow,) = apply(archive, lake).flows
    gap = OffsetGap(TOPIC, 0, 10, 19, "a.jsonl", "c.jsonl")
    assert flow.batches[0].offsets.gaps == (gap,)
    assert (flow.batches[0].offsets.missing, flow.batches[0].offsets.begins) == (10, {"0": 5})
    assert ids(spark, lake) == [*range(5, 10), *range(20, 25)]

    # The late file overlaps what was applied, and leaves an offset out inside.
    write_records(archive / "b.jsonl", [record for record in creates(9, 19) if record["offset"] != 12])
    (flow,) = apply(archive, lake).flows
    assert flow.batches[0].offsets.gaps == (OffsetGap(TOPIC, 0, 12, 12, "b.jsonl", "b.jsonl"),)
    assert [(item.first, item.last, item.file) for item in flow.batches[0].offsets.overlaps] == [(9, 9, "b.jsonl")]
    assert flow.events.redelivered + flow.events.stale == 1

    write_records(archive / "d.jsonl", creates(12, 12))
    (flow,) = apply(archive, lake).flows
    assert (flow.batches[0].offsets.gaps, flow.batches[0].offsets.missing, flow.batches[0].offsets.repeated) == ((), 0, 0)
    assert ids(spark, lake) == list(range(5, 25))


@pytest.mark.deep
def test_a_flow_that_waits_leaves_the_files_behind_the_gap_alone_until_the_range_has_come(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = {TOPIC: CdcFlow(TOPIC, on_gap=OnGap.WAIT)}
    write_records(archive / "a.jsonl", creates(0, 4))
    write_records(archive / "c.jsonl", creates(10, 14))
    write_records(archive / "d.jsonl", creates(0, 2, partition=1))
    (flow,) = apply(archive, lake, flows=flows).flows
    gap = OffsetGap(TOPIC, 0, 5, 9, "a.jsonl", "c.jsonl")
    assert (flow.status, flow.waiting_for, flow.waiting_files) == (FlowStatus.APPLIED, (gap,), 1)
    # The other partition does not wait.
    assert ids(spark, lake) == [*range(5), 1000, 1001, 1002]

    # What is behind waits too; nothing is done, and nothing has failed.
    write_records(archive / "e.jsonl", creates(15, 19))
    report = apply(archive, lake, flows=flows)
    (flow,) = report.flows
    assert (report.ok, flow.status, flow.waiting_for, flow.waiting_files) == (True, FlowStatus.WAITING, (gap,), 2)
    assert summarize_flows(spark, str(lake))[0].pending_files == 2

    write_records(archive / "b.jsonl", creates(5, 9))
    (flow,) = apply(archive, lake, flows=flows).flows
    assert (flow.status, flow.waiting_for, flow.waiting_files) == (FlowStatus.APPLIED, (), 0)
    assert ids(spark, lake) == [*range(20), 1000, 1001, 1002]
    assert summarize_flows(spark, str(lake))[0].pending_files == 0


@pytest.mark.deep
def test_a_flow_that_stops_names_the_range_and_merges_nothing_until_it_has_come(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = {TOPIC: CdcFlow(TOPIC, on_gap=OnGap.STOP)}
    write_records(archive / "a.jsonl", creates(0, 4))
    apply(archive, lake, flows=flows)
    write_records(archive / "c.jsonl", creates(6, 8))
    (flow,) = apply(archive, lake, flows=flows, may_fail=True).flows
    assert flow.error
    assert (flow.error["type"], flow.error["transient"]) == (OffsetGapError.__name__, False)
    assert "partition 0: offsets 5–5 are missing, between a.jsonl and c.jsonl" in flow.error["message"]
    assert ids(spark, lake) == list(range(5))

    write_records(archive / "b.jsonl", creates(5, 5))
    apply(archive, lake, flows=flows)
    assert ids(spark, lake) == list(range(9))


@pytest.mark.deep
def test_files_in_no_order_and_microbatches_of_one_file_are_no_gaps(apply: Apply, archive: Path, lake: Path) -> None:
    for name, first in (("a", 10), ("b", 0), ("c", 5)):
        write_records(archive / f"{name}.jsonl", creates(first, first + 4))
    flows = {TOPIC: CdcFlow(TOPIC, on_gap=OnGap.STOP, max_microbatch_bytes=1)}
    (flow,) = apply(archive, lake, flows=flows).flows
    assert len(flow.batches) == 3
    assert [batch.offsets.missing for batch in flow.batches] == [0, 0, 0]


def test_an_archive_without_tombstones_is_complete_all_the_same(apply: Apply, archive: Path, lake: Path) -> None:
    events = [*creates(0, 2), *(event for number in range(3) for event in (delete(number), tombstone({"id": number}))), *creates(9, 11)]
    kept = [event for event in numbered(events) if event["value"] is not None]
    write_records(archive / "a.jsonl", kept)
    (flow,) = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, on_gap=OnGap.STOP)}).flows
    assert flow.batches[0].offsets.missing == 0


def delete(number: int) -> dict[str, Any]:
    return sqlserver("d", commit=4 + number, before={"id": number, "v": "x"})


def test_of_very_many_holes_in_a_file_the_largest_are_named_and_all_are_counted(
    apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_holes, "MOST_RUNS", 2)
    write_records(archive / "a.jsonl", [record for record in creates(0, 30) if record["offset"] not in (3, 7, 8, 9, 20, 25, 26)])
    (flow,) = apply(archive, lake).flows
    assert [(gap.first, gap.last) for gap in flow.batches[0].offsets.gaps] == [(7, 9), (25, 26)]
    assert flow.batches[0].offsets.missing == 7
