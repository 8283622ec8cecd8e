"""Topics made anew, and logs that go back: behind where they begin, both engines give the same, and the rows are the source's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.lives import life_of_lane
from tests.conftest import Apply
from tests.properties.test_histories import TOPIC, differing
from tests.properties.test_two_engines import compare_flow
from tests.support.connectors import DIALECTS
from tests.support.events import write_records
from tests.support.living_histories import LivingArchive
from tests.support.tables import read_rows

pytest.importorskip("duckdb")

DIALECTS_OF_LIVES = ("sqlserver", "db2", "oracle", "mariadb", "postgresql, full identity")
HAPPENINGS = ("topic", "moved")


def land(archive: LivingArchive, folder: Path, *, parts: int) -> None:
    """Write the records of each era, in order, as so many files."""
    number = 0
    for era in archive.eras:
        size = -(-len(era) // parts)
        for start in range(0, len(era), size):
            write_records(folder / f"{number:03d}.jsonl", [archive.records[place] for place in era[start : start + size]])
            number += 1


@pytest.mark.deep
@pytest.mark.parametrize("dialect", DIALECTS_OF_LIVES)
def test_both_engines_give_the_same_behind_a_new_topic_and_a_log_that_went_back(
    dialect: str, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    archive = LivingArchive(DIALECTS[dialect], TOPIC, 21, 60, happenings=HAPPENINGS)
    land(archive, tmp_path / "archive", parts=5)
    natively = compare_flow(spark, apply, tmp_path, CdcFlow(TOPIC, keys=("db", "id"), max_microbatch_bytes=1))
    assert not differing(read_rows(spark, str(tmp_path / "native"), TOPIC, limit=10**6).rows, archive.rows)
    behind = [batch for batch in natively if any(life_of_lane(int(lane)) for lane in batch.reach.partitions)]
    reasons = [(batch.engine, batch.engine_reason) for batch in behind]
    # Oracle's events leave out large values, so that Spark merges, or folds too.
    expected = "mixed" if dialect == "oracle" else "native"
    assert expected in {engine for engine, _ in reasons}, reasons
