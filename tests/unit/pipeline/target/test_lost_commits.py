"""Which of Spark's errors say that another writer committed first; with two real writers: tests/stories/test_overtaken_runs.py."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.target.lost_commits import lost_commit, unless_lost


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("(io.delta.exceptions.ConcurrentAppendException) [DELTA_CONCURRENT_APPEND] Files were added", "ConcurrentAppendException"),
        ("io.delta.exceptions.ConcurrentDeleteReadException: files were deleted", "ConcurrentDeleteReadException"),
        ("[DELTA_CONCURRENT_WRITE] A concurrent transaction has written new data", "DELTA_CONCURRENT_WRITE"),
        ("[DELTA_METADATA_CHANGED] The metadata was changed", "DELTA_METADATA_CHANGED"),
        ("io.delta.exceptions.ProtocolChangedException: The protocol version", "ProtocolChangedException"),
        ("[DELTA_DUPLICATE_COLUMNS_FOUND] Found duplicate columns", None),
        ("[TABLE_OR_VIEW_NOT_FOUND] io.delta.tables", None),
    ],
)
def test_delta_s_names_of_a_conflict_are_known_by_class_and_by_condition(text: str, name: str | None) -> None:
    assert lost_commit(PySparkException(text)) == name
    assert lost_commit(ValueError(text)) is None


def test_any_other_error_passes(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException), unless_lost("orders", "lake/orders", "repaired", next_step="Run again."):
        spark.sql("SELECT * FROM nothing_of_that_name")
