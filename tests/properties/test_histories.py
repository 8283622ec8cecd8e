"""Whatever the databases did, whatever the split into files and their order: each table's rows are its source's."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.support.connectors import DIALECTS, Row
from tests.support.events import Record, write_records
from tests.support.histories import Archive
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

TOPIC = "source.dbo.histories"
HAZARDS = {
    "key change",
    "shift",
    "swap",
    "temporary key",
    "born and gone",
    "there and back",
    "reborn",
    "rolled back",
    "left-out value",
    "incremental read",
}


def land(files: list[list[Record]], folder: Path, microbatches: int | None) -> dict[str, CdcFlow]:
    """Write the files and return the flow that takes them in about so many microbatches, or in one for each file."""
    sizes = [write_records(folder / f"{place:03d}.jsonl", file).stat().st_size for place, file in enumerate(files)]
    return {TOPIC: CdcFlow(TOPIC, keys=("db", "id"), max_microbatch_bytes=sum(sizes) // microbatches if microbatches else 1)}


def differing(found: list[Row], expected: list[Row]) -> dict[int, dict[str, Any]]:
    """Return the rows of the histories that went wrong."""
    by_history: dict[int, dict[str, list[Row]]] = defaultdict(lambda: {"found": [], "expected": []})
    for name, rows in (("found", found), ("expected", expected)):
        for row in rows:
            by_history[row["db"]][name].append(row)
    return {number: rows for number, rows in by_history.items() if rows["found"] != rows["expected"]}


IN_ORDER: dict[str, Any] = {}
SHUFFLED = {"shuffled": True, "again": True}


def check(archive: Archive, files: list[list[Record]], microbatches: int | None, apply: Apply, spark: SparkSession, folder: Path) -> None:
    unreachable = set() if archive.dialect.deferrable else {"rolled back"}
    unreachable |= set() if archive.dialect.says_again else {"incremental read"}
    assert {*archive.reached} >= HAZARDS - unreachable
    flows = land(files, folder / "archive", microbatches)
    report = apply(folder / "archive", folder / "lake", flows=flows)
    assert len(report.flows[0].batches) >= (microbatches or len(files))
    wrong = differing(read_rows(spark, str(folder / "lake"), TOPIC, limit=10**6).rows, archive.rows)
    assert not wrong, (len(wrong), archive.story(min(wrong)), wrong[min(wrong)])


def test_every_history_ends_with_its_source_s_rows(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(DIALECTS["postgresql"], TOPIC, 1, 30)
    check(archive, archive.files(4, **SHUFFLED), 1, apply, spark, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize(("seed", "how"), [(2, IN_ORDER), (3, SHUFFLED)], ids=["in order", "shuffled and repeated"])
@pytest.mark.parametrize("dialect", ["postgresql", "postgresql, full identity", "sqlserver", "db2", "oracle", "mariadb", "huawei cdl"])
def test_every_history_ends_with_its_source_s_rows_deep(
    dialect: str, seed: int, how: dict[str, Any], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    archive = Archive(DIALECTS[dialect], TOPIC, seed, 1_000)
    check(archive, archive.files(4, **how), 4, apply, spark, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("dialect", ["postgresql", "oracle", "huawei cdl"])
def test_many_microbatches_divide_transactions_anywhere(dialect: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """One file a microbatch."""
    archive = Archive(DIALECTS[dialect], TOPIC, 5, 60)
    files = archive.files(5, **SHUFFLED)
    assert len(files) >= 12
    check(archive, files, None, apply, spark, tmp_path)


@pytest.mark.deep
def test_values_left_out_by_key_changes_are_found_in_one_batch_deep(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = Archive(DIALECTS["postgresql, large values"], TOPIC, 4, 500)
    check(archive, archive.files(4), 1, apply, spark, tmp_path)
