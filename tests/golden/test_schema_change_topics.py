"""Captures whose events carry no schema, typed by the connector's schema-change topic and judged by the rows with schemas."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.compare_tables import compare_lakes
from tests.conftest import Apply

CAPTURE = Path(__file__).parent / "captures/maria_types_precise"


def test_bare(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    reports = {side: apply(CAPTURE / form, tmp_path / side, may_fail=True) for side, form in (("bare", "archive/bare"), ("schema", "archive/schema"))}
    for f in reports["bare"].flows:
        print(f.flow, f.status, f.error, f.events.rejected)
    found = compare_lakes(spark, str(tmp_path / "bare"), str(tmp_path / "schema"))
    for t in found.tables:
        print(t.flow, t.equal, t.schema, t.only_left, t.only_right, t.values)
    assert 0
