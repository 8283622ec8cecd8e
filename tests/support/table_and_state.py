"""One flow whose table and state are meddled with: the steps in which the tests of both speak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnForeignChange, WriteDisposition
from airflow_cdc.model.report.apply_report import ApplyReport
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.support.tables import read_rows

WARN = {TOPIC: CdcFlow(TOPIC, on_foreign_change=OnForeignChange.WARN)}
HISTORY = {TOPIC: CdcFlow(TOPIC, stored_as_scd_type=2)}
LOG = {TOPIC: CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND)}


class CrashError(BaseException):
    """The process ends."""


def archive_create(archive: Path, number: int) -> None:
    """Archive file ``number``, which creates the row of that key."""
    write_records(archive / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after={"id": number})], first=number))


def steps(apply: Apply, archive: Path, lake: Path, *numbers: int, flows: dict[str, CdcFlow] | None = None) -> None:
    for number in numbers:
        archive_create(archive, number)
        apply(archive, lake, flows=flows)


def ids(spark: SparkSession, lake: Path) -> list[int]:
    return [row["id"] for row in read_rows(spark, str(lake), TOPIC).rows]


def state_of(lake: Path) -> Path:
    return lake / "_cdc" / "flows" / TOPIC


def files_of(state: Path) -> dict[str, bytes]:
    return {str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*") if path.is_file()}


def failure(report: ApplyReport) -> dict[str, Any]:
    (flow,) = report.flows
    assert flow.error, flow
    assert not flow.error["transient"]
    return flow.error


def version(spark: SparkSession, lake: Path) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY delta.`{lake / TOPIC}` LIMIT 1").collect()[0]["version"])


def forget(state: Path, number: int) -> None:
    """Leave the state as it was before microbatch ``number``."""
    for path in ("checkpoint.json", f"commits/{number:08d}.json", f"intents/{number:08d}.json"):
        (state / path).unlink()


def change_delete(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM {table} WHERE id = 2")


def change_update(spark: SparkSession, table: str) -> None:
    spark.sql(f"UPDATE {table} SET id = 20 WHERE id = 2")


def change_restore(spark: SparkSession, table: str) -> None:
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")


def change_overwrite(spark: SparkSession, table: str) -> None:
    spark.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table} WHERE id = 1")


Change = Callable[[SparkSession, str], None]
