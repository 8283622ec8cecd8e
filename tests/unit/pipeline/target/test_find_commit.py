"""A microbatch's commit is found in the log's own files, and by Spark where these do not hold it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.target.find_commit import MergeCommit, find_commit
from airflow_cdc.pipeline.target.read_commits import commits_behind
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records


class _NoSpark:
    def sql(self, statement: str) -> Any:
        raise AssertionError(f"Spark is asked: {statement}")


def test_a_commit_is_found_without_spark_as_spark_finds_it(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=number, after={"id": number}) for number in (1, 2, 3)]))
    apply(archive, lake)
    write_records(archive / "2.jsonl", numbered([sqlserver("d", commit=4, before={"id": 1})], first=3))
    # Somebody else's commit stands between.
    spark.sql(f"ALTER TABLE delta.`{lake / TOPIC}` SET TBLPROPERTIES ('mine' = '1')")
    first = apply(archive, lake).flows[0].batches[0]
    flow = json.loads((lake / "_cdc" / "flows" / TOPIC / "flow.json").read_text())
    asked = {"application": f"{TOPIC}:{flow['incarnation']}", "microbatch": 2, "after": 1}

    read = find_commit(_NoSpark(), str(lake / TOPIC), **asked, may_read_log=True)  # type: ignore[arg-type]
    by_spark = find_commit(spark, str(lake / TOPIC), **asked)

    assert isinstance(read, MergeCommit)
    assert read == by_spark
    assert (read.version, read.rows) == (first.table_version, first.rows)


@pytest.mark.deep
def test_spark_is_asked_where_the_log_does_not_go_on_behind_the_known_version(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after={"id": 1})]))
    merged = apply(archive, lake).flows[0].batches[0]
    flow = json.loads((lake / "_cdc" / "flows" / TOPIC / "flow.json").read_text())
    application = f"{TOPIC}:{flow['incarnation']}"

    assert list(commits_behind(str(lake / TOPIC), 5)) == []
    found = find_commit(spark, str(lake / TOPIC), application=application, microbatch=1, after=5, may_read_log=True)

    assert found
    assert found.version == merged.table_version
