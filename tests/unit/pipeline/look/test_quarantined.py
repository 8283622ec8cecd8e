"""Quarantined records are read in archive order, and grouped by cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.pipeline.look import quarantined
from airflow_cdc.pipeline.look.native_table import NeedsSparkError
from airflow_cdc.pipeline.look.quarantined import groups_of, read_quarantine_natively, records_of_natively
from tests.support.small_lakes import FLOW, write_flow, write_quarantine

MISFIT = RejectReason.VALUE_DOES_NOT_FIT_COLUMN.value


def record(
    line: int, reason: str = "missing_key", detail: str | None = None, *, microbatch: int = 1, file: str = "1.jsonl"
) -> dict[str, Any]:
    place = {"topic": FLOW, "partition": 0, "offset": line, "file": file, "line": line}
    return {"microbatch": microbatch, "reason": reason, "detail": detail, **place, "raw": f"line {line}", "raw_key": None}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    write_flow(tmp_path)
    write_flow(tmp_path, "another")
    misfits = [
        record(10, MISFIT, "column price is DECIMAL(10,2), seen: x", file="10.jsonl"),
        record(9, MISFIT, "column a, is b is INT, seen: 'y'"),
        record(3, microbatch=2),
    ]
    write_quarantine(tmp_path, [*misfits, record(2), record(1, MISFIT, "column price is DECIMAL(10,2), seen: z")])
    write_quarantine(tmp_path, [{**record(1), "topic": "another"}], "another")
    return str(tmp_path)


def test_records_are_in_archive_order_flow_by_flow(lake: str) -> None:
    found = read_quarantine_natively(lake)
    assert [(item["flow"], item["microbatch"], item["file"], item["line"]) for item in found] == [
        ("another", 1, "1.jsonl", 1),
        (FLOW, 1, "1.jsonl", 1),
        (FLOW, 1, "1.jsonl", 2),
        (FLOW, 1, "1.jsonl", 9),
        (FLOW, 1, "10.jsonl", 10),
        (FLOW, 2, "1.jsonl", 3),
    ]
    assert list(found[1]) == ["flow", *record(1)]
    assert [item["flow"] for item in read_quarantine_natively(lake, ["ano*"])] == ["another"]


def test_groups_are_the_largest_first_with_the_column_and_the_first_record(lake: str) -> None:
    groups = groups_of(read_quarantine_natively(lake, [FLOW]))
    assert [(group.reason, group.column, group.records, group.example["line"]) for group in groups] == [
        ("missing_key", None, 2, 2),
        (MISFIT, "price", 2, 1),
        (MISFIT, "a, is b", 1, 9),
    ]
    assert list(groups[0].example) == list(record(1))


def test_a_misfit_whose_detail_names_no_column_is_grouped_as_spark_does() -> None:
    records = [{"flow": FLOW, **record(line, MISFIT, detail)} for line, detail in ((1, None), (2, "what is it"))]
    assert {group.example["line"]: group.column for group in groups_of(records)} == {1: None, 2: ""}


def test_one_flows_records_are_counted_beyond_the_limit(lake: str) -> None:
    records, total = records_of_natively(lake, FLOW, 2)
    assert ([item["line"] for item in records], total) == ([1, 2], 5)
    assert records_of_natively(lake, FLOW)[1] == len(records_of_natively(lake, FLOW)[0])


def test_a_flow_without_a_quarantine_has_no_records_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    write_flow(tmp_path)
    assert records_of_natively(str(tmp_path), FLOW) == ([], 0)
    with pytest.raises(ConfigurationError, match=f"knows no flow other; it knows {FLOW}"):
        records_of_natively(str(tmp_path), "other")


def test_a_large_quarantine_is_left_to_spark(lake: str) -> None:
    with mock.patch.object(quarantined, "_READ_UP_TO_BYTES", 100), pytest.raises(NeedsSparkError, match="larger than"):
        read_quarantine_natively(lake)
