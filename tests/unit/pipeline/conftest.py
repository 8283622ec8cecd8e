"""Where a story's archive and lake lie, and the sessions that read values."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.spark.session import session_for_batch


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(scope="module", params=["interpreted", "compiled"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """The sessions of a small and of a large batch: Spark evaluates their expressions with different code."""
    return session_for_batch(spark, batch_bytes=1 if request.param == "interpreted" else 2**20)
