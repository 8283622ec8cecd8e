"""Whatever the databases did, whatever the split into files and their order: each table's rows are its source's."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow import CdcFlow
from airflow_cdc.pipeline.inspect_lake import read_rows
from tests.conftest import Apply
from tests.events import Record, write_records
from tests.histories import DIALECTS, Archive, Row

TOPIC = "source.dbo.histories"
HAZARDS = {"key change", "shift", "swap", "temporary key", "born and gone", "there and back", "reborn", "rolled back", "untold value"}


def land(files: list[list[Record]], folder: Path) -> dict[str, CdcFlow]:
    """Write the files and return flows that take a few of them a microbatch."""
    sizes = [write_records(folder / f"{place:03d}.jsonl", file).stat().st_size for place, file in enumerate(files)]
    return {TOPIC: CdcFlow(TOPIC, keys=("db", "id"), max_microbatch_bytes=sum(sizes) // 4)}


def differing(found: list[Row], expected: list[Row]) -> dict[int, dict[str, Any]]:
    """Return the rows of the histories that went wrong."""
    by_history: dict[int, dict[str, list[Row]]] = defaultdict(lambda: {"found": [], "expected": []})
    for name, rows in (("found", found), ("expected", expected)):
        for row in rows:
            by_history[row["db"]][name].append(row)
    return {number: rows for number, rows in by_history.items() if rows["found"] != rows["expected"]}


def check(dialect: str, seed: int, histories: int, apply: Apply, spark: SparkSession, folder: Path) -> None:
    archive = Archive(DIALECTS[dialect], TOPIC, seed, histories)
    assert {*archive.reached} >= HAZARDS | {"incremental read", "redelivery"}
    for name, how in {"in order": {}, "shuffled": {"shuffled": True, "again": True}}.items():
        flows = land(archive.files(4, **how), folder / name / "archive")
        report = apply(folder / name / "archive", folder / name / "lake", flows=flows)
        assert len(report.flows[0].batches) > 3
        found = read_rows(spark, str(folder / name / "lake"), TOPIC, limit=10**6).rows
        wrong = differing(found, archive.rows)
        assert not wrong, (name, len(wrong), archive.story(min(wrong)), wrong[min(wrong)])


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_history_ends_with_its_source_s_rows(dialect: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(dialect, 1, 150, apply, spark, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_history_ends_with_its_source_s_rows_deep(dialect: str, seed: int, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(dialect, seed, 1_000, apply, spark, tmp_path)
