"""Whatever befell the databases' server and their topic: each table's rows are its source's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnLogWentBack, OnRepeatedOffsets
from tests.conftest import Apply
from tests.properties.test_histories import IN_ORDER, SHUFFLED, TOPIC, differing, land
from tests.support.connectors import DIALECTS
from tests.support.living_histories import LivingArchive
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

SOME = ("in part", "restored", "topic")
ALL = ("in part", "restored", "raised", "topic", "in part")
TRUNCATED = ("truncated", "restored", "truncated", "topic", "truncated")
TWICE = ("topic", "restored", "moved", "topic", "raised")
SILENT = ("log reset", "raised", "log reset")
NEW_TOPICS = ("topic", "topic")


def check(
    archive: LivingArchive, how: dict[str, Any], microbatches: int | None, apply: Apply, spark: SparkSession, folder: Path, **settings: Any
) -> None:
    assert {*archive.reached} >= {*archive.happenings}
    files = archive.files(3, **how)
    flow: CdcFlow = land(files, folder / "archive", microbatches)[TOPIC]
    report = apply(folder / "archive", folder / "lake", flows={TOPIC: replace(flow, **settings)})
    assert len(report.flows[0].batches) >= (microbatches or len(files))
    assert report.flows[0].events.rejected == 0
    wrong = differing(read_rows(spark, str(folder / "lake"), TOPIC, limit=10**6).rows, archive.rows)
    assert not wrong, (len(wrong), archive.story(min(wrong)), wrong[min(wrong)])


@pytest.mark.deep
@pytest.mark.parametrize(("happenings", "microbatches"), [(SOME, 2), (ALL, 4)], ids=["some happenings", "all"])
def test_histories_follow_a_server_and_a_topic_that_are_rebuilt(
    happenings: tuple[str, ...], microbatches: int, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    archive = LivingArchive(DIALECTS["postgresql, full identity"], TOPIC, 11, 30, happenings=happenings)
    check(archive, IN_ORDER, microbatches, apply, spark, tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("dialect", "happenings", "how", "microbatches"),
    [
        # Out of order in several microbatches: a delete may be taken to be about a row that a snapshot did not find, where one transaction
        # creates and deletes a key before the snapshot is proven
        # (docs/reference/known-differences.md#limits-of-lives-and-epochs).
        ("postgresql", ALL, SHUFFLED, 1),
        ("postgresql", TWICE, IN_ORDER, 1),
        ("postgresql, full identity", ALL, IN_ORDER, 5),
        ("postgresql, full identity", TRUNCATED, IN_ORDER, 5),
        ("postgresql, full identity", TWICE, SHUFFLED, 5),
        ("sqlserver", ALL, IN_ORDER, 5),
        ("sqlserver", TWICE, SHUFFLED, 5),
        ("db2", ALL, SHUFFLED, 5),
        ("oracle", ALL, IN_ORDER, 5),
        ("oracle", TRUNCATED, IN_ORDER, 5),
        ("mariadb", ALL, IN_ORDER, 5),
        ("mariadb", TRUNCATED, SHUFFLED, 5),
        ("huawei cdl", NEW_TOPICS, IN_ORDER, 5),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value).replace(" ", "_") if isinstance(value, tuple) else None,
)
def test_a_thousand_histories_follow_a_server_and_a_topic_that_are_rebuilt(
    dialect: str,
    happenings: tuple[str, ...],
    how: dict[str, Any],
    microbatches: int,
    apply: Apply,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    archive = LivingArchive(DIALECTS[dialect], TOPIC, 12, 1_000, plain=microbatches > 1 and how == SHUFFLED, happenings=happenings)
    settings: dict[str, Any] = {"table_column": "t"} if archive.is_shared else {}
    if not archive.dialect.says_again:
        # Its records carry no time of the connector's own.
        settings["on_repeated_offsets"] = OnRepeatedOffsets.NEW_LIFE
    check(archive, how, microbatches, apply, spark, tmp_path, **settings)


@pytest.mark.deep
@pytest.mark.parametrize("dialect", ["postgresql", "sqlserver", "oracle", "mariadb"])
def test_histories_follow_a_log_that_was_reset_without_a_snapshot_where_the_flow_accepts_it(
    dialect: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    archive = LivingArchive(DIALECTS[dialect], TOPIC, 13, 1_000, happenings=SILENT)
    check(archive, IN_ORDER, 4, apply, spark, tmp_path, on_log_went_back=OnLogWentBack.ACCEPT)


@pytest.mark.deep
@pytest.mark.parametrize("dialect", ["postgresql, full identity", "sqlserver", "mariadb"])
def test_every_file_a_microbatch_follows_a_server_and_a_topic_that_are_rebuilt(
    dialect: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    archive = LivingArchive(DIALECTS[dialect], TOPIC, 14, 60, plain=True, happenings=ALL)
    check(archive, SHUFFLED, None, apply, spark, tmp_path)
