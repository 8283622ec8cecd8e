"""Target tables as earlier versions of the package wrote them, file by file.

    tables/before_scd_columns/     a table of versions (commit 9830acb): it records no names of its columns

A table of an earlier version is never written again: it proves that what users have is read.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.target.overlapping_versions import overlapping_versions
from airflow_cdc.pipeline.target.table_properties import SCD_COLUMNS_PROPERTY
from airflow_cdc.pipeline.target.target_table import columns_of, read_target
from tests.support.stories import milliseconds

TABLES = Path(__file__).parent / "tables"


def test_a_table_of_versions_that_records_no_names_has_the_default_ones(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(shutil.copytree(TABLES / "before_scd_columns", tmp_path / "table"))
    created = (tmp_path / "table" / "_delta_log" / f"{0:020d}.json").read_text(encoding="utf-8").splitlines()
    properties = next(json.loads(line)["metaData"]["configuration"] for line in created if '"metaData"' in line)
    assert SCD_COLUMNS_PROPERTY not in properties

    target = read_target(spark, uri)

    assert target
    assert (target.mode, target.keys, target.scd_columns) == (TableMode.VERSIONS, ("id",), ScdColumns())
    assert target.columns == columns_of(spark, uri) == {"id": "BIGINT", "name": "STRING"}
    versions = target.with_default_names(spark.read.format("delta").load(uri)).orderBy("__cdc_position")
    assert overlapping_versions(versions, target.keys).isEmpty()
    told = versions.select("name", "__cdc_valid_from", "__cdc_valid_to", "__cdc_is_current", "__cdc_previous_key").collect()
    assert [(name, milliseconds(start), milliseconds(end), *more) for name, start, end, *more in told] == [
        ("ann", 1, 2, False, None),
        ("ann b.", 2, None, True, None),
    ]
