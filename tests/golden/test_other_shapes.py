"""Captures in other shapes than Debezium's envelope, judged like those (:mod:`.test_captures`)."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES

pytestmark = pytest.mark.both_engines

Record = dict[str, Any]


def records_of(folder: Path, *, tables: tuple[str, ...]) -> list[Record]:
    """Return the records of a capture's tables."""
    paths = [path for path in sorted(folder.iterdir()) if path.name.split(".")[2] in tables]
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def write(archive: Path, records: list[Record], shape: Callable[[Record], Any]) -> Path:
    """Write records as lines, each as ``shape`` returns it; with the values in another shape."""
    archive.mkdir()
    (archive / "events.jsonl").write_text("".join(json.dumps({**item, "value": shape(item)}) + "\n" for item in records))
    return archive


@pytest.fixture(scope="module")
def finals(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Return the lake of a capture's final rows, made once."""
    root = tmp_path_factory.mktemp("finals")

    def lake(capture: str, final: str) -> Path:
        if not (root / capture / final).exists():
            apply(CAPTURES / capture / final, root / capture / final, tables=("*.acct", "*.pair", "*.ring"))
        return root / capture / final

    return lake


def assert_equal(spark: SparkSession, lake: Path, final: Path, tables: int) -> None:
    found = compare_lakes(spark, str(lake), str(final))
    equal = [table for table in found.tables if table.equal]
    assert len(equal) == tables, [table for table in found.tables if not table.equal]


@pytest.mark.deep
@pytest.mark.parametrize(("capture", "tables"), [("pg_pk", 3), ("maria_types_precise", 2)])
def test_flattened_records_give_the_database_s_final_rows(
    capture: str, tables: int, apply: Apply, spark: SparkSession, finals: Callable[[str, str], Path], tmp_path: Path
) -> None:
    report = apply(CAPTURES / capture / "archive/unwrap", tmp_path / "lake")

    assert_equal(spark, tmp_path / "lake", finals(capture, "final/plain"), tables)
    assert sum(flow.events.rejected for flow in report.flows) == 0


def flat_with_schema(item: Record) -> Any:
    """Return the value of a flattened record of ``acct`` as ``{schema, payload}``."""
    value = item["value"]
    integers = {"id", "n", "__source_ts_ms", "__source_lsn", "__source_txId", "__ts_ms"}
    fields = [{"field": name, "type": "int32" if name in integers else "string", "optional": True} for name in value]
    return {"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": value}


def cloud_event(item: Record) -> Any:
    """Return an event as Debezium's CloudEvents converter writes it."""
    value = item["value"]
    if value is None:
        return None
    attributes = {f"iodebezium{name.lower().replace('_', '')}": member for name, member in value["source"].items()}
    return {
        "id": f"name:pgpk;lsn:{value['source']['lsn']};txId:{value['source']['txId']}",
        "source": "/debezium/postgresql/pgpk",
        "specversion": "1.0",
        "type": "io.debezium.connector.postgresql.DataChangeEvent",
        "time": "2026-11-20T13:55:39.738Z",
        "datacontenttype": "application/json",
        "iodebeziumop": value["op"],
        **{name: member if member is None else str(member) for name, member in attributes.items()},
        "data": {"before": value["before"], "after": value["after"]},
    }


@pytest.mark.parametrize(
    ("folder", "shape", "final", "tables"),
    [
        pytest.param("archive/plain", cloud_event, "final/plain", ("pair",), id="cloud events", marks=pytest.mark.deep),
        pytest.param("archive/unwrap", flat_with_schema, "final/schema", ("acct",), id="flattened with schema", marks=pytest.mark.deep),
    ],
)
def test_a_capture_in_another_shape_gives_the_same_tables(
    folder: str,
    shape: Callable[[Record], Any],
    final: str,
    tables: tuple[str, ...],
    apply: Apply,
    spark: SparkSession,
    finals: Callable[[str, str], Path],
    tmp_path: Path,
) -> None:
    records = records_of(CAPTURES / "pg_pk" / folder, tables=tables)
    report = apply(write(tmp_path / "archive", records, shape), tmp_path / "lake")

    assert_equal(spark, tmp_path / "lake", finals("pg_pk", final), len(tables))
    assert sum(flow.events.rejected for flow in report.flows) == 0
