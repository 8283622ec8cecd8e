"""Keys and amounts of more digits than a 64-bit float holds: each has one row, whatever becomes of its table's files."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.policies import WriteDisposition
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.pipeline.run.apply_archive import ArchiveRun, apply_archive
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.pipeline.target import alter_table
from airflow_cdc.pipeline.target.table_properties import has_exact_statistics
from tests.support.events import TOPIC, Record, numbered, sqlserver, write_records
from tests.support.rounded import as_of_delta_rs

pytest.importorskip("duckdb")

KEYS: dict[str, list[Any]] = {
    "DECIMAL(20,0)": ["9007199254740993", "9007199254740995", "12345678901234567891", "-9007199254740993", "7"],
    "DECIMAL(38,10)": ["1234567890123456789012345678.0123456789", "-9007199254740993.0000000001", "0.0000000001", "12.5"],
    "DECIMAL(38,38)": ["0.00000000000000000000000000000000000001", f"-0.{'9' * 38}", f"0.{'1' * 38}"],
    "BIGINT": [2**53 + 1, 2**63 - 1, -(2**63)],
    "STRING": ["a" * 40, "\U0010ffff" * 40, "\U0010fffe" * 33, "\u00e9" * 40, "\ud7ff", "\uffff", ""],
    "DATE": ["0001-01-01", "1969-12-31", "9999-12-31"],
}
AMOUNT = Decimal("9999999999999.9999")


def no_session() -> SparkSession:
    raise AssertionError("Spark was asked for")


class Lake:
    """A lake into which the native engine applies files, one after the other."""

    def __init__(self, folder: Path, flow: CdcFlow) -> None:
        self.folder, self.flow, self.table = folder, flow, folder / "lake" / TOPIC
        (folder / "archive").mkdir()
        self.files = self.events = 0

    def apply(self, *events: Record) -> ApplyReport:
        write_records(self.folder / "archive" / f"{self.files}.jsonl", numbered(events, first=self.events))
        self.files, self.events = self.files + 1, self.events + len(events)
        run = ArchiveRun(
            late_session(no_session),
            str(self.folder / "archive"),
            str(self.folder / "lake"),
            {TOPIC: self.flow},
            engine=Engine.NATIVE,
            progress=print,
        )
        report = apply_archive(run)
        assert report.ok, [flow.error for flow in report.flows]
        return report

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        """Return rows as delta-rs's own query engine finds them, by file statistics and by those in the files."""
        found = QueryBuilder().register("t", DeltaTable(str(self.table))).execute(f"SELECT * FROM t WHERE {where}")
        return [{name: value for name, value in row.items() if not name.startswith("__cdc_")} for row in pa.table(found).to_pylist()]


def flow_of(kind: str, **settings: Any) -> CdcFlow:
    return CdcFlow(TOPIC, columns={"id": kind, "amount": "DECIMAL(20,4)", "name": "STRING"}, **settings)


def change(op: str, key: Any, commit: int, name: str = "") -> Record:
    image = {"id": key, "amount": str(AMOUNT), "name": name}
    return sqlserver(op, commit=commit, **({"before": image} if op == "d" else {"after": image}))


@pytest.fixture(params=[0, 16 * 1024**2], ids=["marked", "copied"])
def growth(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size from which rows are marked by deletion vectors."""
    monkeypatch.setattr(alter_table, "DELETION_VECTORS_FROM_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize(("kind", "keys"), KEYS.items(), ids=KEYS)
def test_each_key_is_changed_and_removed_in_place(kind: str, keys: Sequence[Any], growth: int, tmp_path: Path) -> None:
    lake = Lake(tmp_path, flow_of(kind))
    first, *others = keys
    lake.apply(change("c", first, 1, "a"))
    lake.apply(*[change("c", key, 2 + number, "a") for number, key in enumerate(others)])
    lake.apply(*[change("u", key, 100 + number, "b") for number, key in enumerate(keys)])
    assert [row["name"] for row in lake.rows()] == ["b"] * len(keys)
    lake.apply(change("d", keys[0], 200))
    assert len(lake.rows()) == len(others)
    lake.apply(*[change("d", key, 201 + number) for number, key in enumerate(others)])
    assert lake.rows() == []


def test_an_amount_that_is_no_key_is_found_by_its_digits(growth: int, tmp_path: Path) -> None:
    lake = Lake(tmp_path, flow_of("BIGINT"))
    for number in range(3):
        lake.apply(change("c", number, 1 + number))
        assert len(lake.rows(f"amount = CAST('{AMOUNT}' AS DECIMAL(20, 4))")) == number + 1


def test_so_it_is_in_a_change_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path, flow_of("DECIMAL(20,0)", write_disposition=WriteDisposition.APPEND))
    for number, key in enumerate(KEYS["DECIMAL(20,0)"]):
        lake.apply(change("c", key, 1 + number))
        assert len(lake.rows(f"amount = CAST('{AMOUNT}' AS DECIMAL(20, 4))")) == number + 1
        assert len(lake.rows(f"id = CAST('{key}' AS DECIMAL(20, 0))")) == 1


def test_a_table_of_an_earlier_version_is_changed_in_place_and_its_statistics_are_corrected_once(growth: int, tmp_path: Path) -> None:
    lake, keys = Lake(tmp_path, flow_of("DECIMAL(20,0)")), KEYS["DECIMAL(20,0)"]
    for number, key in enumerate(keys):
        lake.apply(change("c", key, 1 + number, "a"))
    assert as_of_delta_rs(lake.table) == len(keys)
    assert len(lake.rows(f"amount = CAST('{AMOUNT}' AS DECIMAL(20, 4))")) == 0
    lake.apply(change("u", keys[0], 100, "b"), change("d", keys[2], 101))
    assert sorted(row["name"] for row in lake.rows()) == ["a", "a", "a", "b"]
    assert len(lake.rows(f"amount = CAST('{AMOUNT}' AS DECIMAL(20, 4))")) == len(keys) - 1
    assert all(len(lake.rows(f"id = CAST('{key}' AS DECIMAL(20, 0))")) == (key != keys[2]) for key in keys)
    assert has_exact_statistics(DeltaTable(str(lake.table)).metadata().configuration)
    version = DeltaTable(str(lake.table)).version()
    lake.apply(change("u", keys[1], 102, "c"))
    assert DeltaTable(str(lake.table)).version() == version + 1
