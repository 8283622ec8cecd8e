"""What a lake holds, for tests: read without Spark where that is possible, as the commands do.

A query of Spark costs as much as a small merge. ``tests/stories/test_two_ways_of_looking.py`` compares both ways of reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.look.flow_rows import FlowRows, read_rows_natively
from airflow_cdc.pipeline.look.native_table import NeedsSparkError
from airflow_cdc.pipeline.look.quarantined import read_quarantine_natively
from airflow_cdc.pipeline.upkeep import inspect_lake


def read_rows(spark: SparkSession, lake: str, flow: str, limit: int | None = None, *, history: bool = False) -> FlowRows:
    """Return a flow's rows."""
    try:
        return read_rows_natively(lake, flow, limit, history=history)
    except NeedsSparkError:
        return inspect_lake.read_rows(spark, lake, flow, limit, history=history)


def read_quarantine(spark: SparkSession, lake: str, globs: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the quarantined records in archive order."""
    try:
        return [dict(record) for record in read_quarantine_natively(lake, globs)]
    except NeedsSparkError:
        return inspect_lake.read_quarantine(spark, lake, globs)
