"""A source that is restored, a topic that is made anew or raised, a snapshot that reads a part: the table is the source's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.properties.test_order_independence import land
from tests.support.crashes import apply_through_crashes
from tests.support.lives import Life, LivesHistory, lives_histories
from tests.support.oracle import Statement
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

TOPIC = "source.dbo.table"
ONE_FILE_A_BATCH = {TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)}


def check_lives(history: LivesHistory, apply: Apply, spark: SparkSession, folder: Path) -> None:
    """Apply an archive as one microbatch, and file by file, each file twice."""
    shutil.rmtree(folder, ignore_errors=True)
    database, files = history.play(TOPIC)
    expected = [database.rows[key] for key in sorted(database.rows)]

    land([[record for file in files for record in file]], folder / "whole")
    report = apply(folder / "whole", folder / "one")
    assert read_rows(spark, str(folder / "one"), TOPIC).rows == expected
    assert report.flows[0].events.rejected == 0

    land([*files, *files], folder / "twice", list(range(2 * len(files))))
    apply(folder / "twice", folder / "other", flows=ONE_FILE_A_BATCH)
    assert read_rows(spark, str(folder / "other"), TOPIC).rows == expected


def put(key: int, value: int) -> Statement:
    return Statement("put", key, value=value)


EVENTFUL = LivesHistory(
    dialect="postgresql",
    partitions=1,
    keys=(1, 2, 3, 4, 5, 6),
    lives=(
        Life((((put(1, 10), Statement("delete", 2)),),), "in part", (put(3, 0), put(4, 0)), 0),
        Life((((put(4, 11),),),), "restored", (Statement("delete", 5), put(7, 12)), 2),
        Life((((Statement("move", 6, 8),),),), "partitions", (), 0),
        Life((((put(8, 13), Statement("delete", 4)),),), "topic", (Statement("delete", 8), put(2, 14)), 3),
    ),
)


RAISED_ANEW = LivesHistory(
    dialect="postgresql",
    partitions=1,
    keys=(1, 2, 3, 4),
    lives=(
        Life((((put(1, 10),),),), "topic", (put(2, 11),), 0),
        Life((((put(4, 12),),),), "partitions", (), 0),
        Life((((put(3, 13),),),), "restored", (Statement("delete", 4),), 0),
    ),
)
"""Found by the property below: the partitions that were added count their lives from 0, and the snapshot was never proven in them."""


@pytest.mark.deep
@pytest.mark.parametrize("history", [EVENTFUL, RAISED_ANEW], ids=["many", "a topic made anew, then raised"])
def test_a_source_with_many_lives_is_followed(history: LivesHistory, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check_lives(history, apply, spark, tmp_path / "example")


REBUILT = LivesHistory(
    dialect="postgresql",
    partitions=1,
    keys=(1, 2, 3, 4),
    lives=(
        Life((((put(1, 10), Statement("move", 2, 5)),),), "restored", (Statement("delete", 3), put(6, 11)), 0),
        Life((((put(6, 12), Statement("delete", 1)),),), "topic", (Statement("delete", 4), put(1, 13)), 2),
    ),
)


@pytest.mark.deep
def test_a_crash_after_every_single_effect_between_lives_loses_and_doubles_nothing(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    database, files = REBUILT.play(TOPIC)
    land(files, tmp_path / "archive")

    report, crashed = apply_through_crashes(apply, tmp_path / "archive", tmp_path / "lake", ONE_FILE_A_BATCH[TOPIC])

    assert report.ok
    assert crashed >= {"survey", "intent", "stage", "delete_markers", "target", "merge", "commit"}
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [database.rows[key] for key in sorted(database.rows)]
    merges = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'lake' / TOPIC}`").filter("operation = 'MERGE'").count()
    assert merges == len(files) == 3


@pytest.mark.deep
@settings(max_examples=40, deadline=None, phases=(Phase.generate, Phase.reuse), suppress_health_check=list(HealthCheck))
@given(history=lives_histories())
def test_any_lives_of_a_source_give_its_rows(history: LivesHistory, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check_lives(history, apply, spark, tmp_path / "example")
