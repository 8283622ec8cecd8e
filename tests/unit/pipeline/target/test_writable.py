"""The tables that are written without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_cdc.pipeline.target.writable import WRITABLE_FEATURES, why_not_written
from tests.support.natively import COLUMNS
from tests.support.small_lakes import field, write_table


def table_with(feature: str, folder: Path) -> DeltaTable:
    """Return an empty table that requires a Delta feature."""
    return DeltaTable(str(write_table(folder, [field("id", "long")], [], features=[feature])))


@pytest.mark.parametrize("feature", sorted(WRITABLE_FEATURES))
def test_a_table_of_such_a_feature_is_written_here(feature: str, tmp_path: Path) -> None:
    assert why_not_written(table_with(feature, tmp_path / "t")) is None


@pytest.mark.parametrize(
    "feature",
    ["typeWidening", "inCommitTimestamp", "rowTracking", "clustering", "columnMapping"],
)
def test_a_table_of_another_feature_is_left_to_spark(feature: str, tmp_path: Path) -> None:
    assert why_not_written(table_with(feature, tmp_path / "t")) == f"only Spark writes the table: its features {feature}"


def test_an_older_protocol_that_implies_features_is_left_to_spark(tmp_path: Path) -> None:
    properties = {"delta.minReaderVersion": "1", "delta.minWriterVersion": "4"}
    table = DeltaTable.create(str(tmp_path / "t"), COLUMNS, configuration=properties)
    assert why_not_written(table) == "only Spark writes the table: its protocol of writers is 4"


@pytest.mark.parametrize(
    ("properties", "fields", "reason"),
    [
        ({"delta.appendOnly": "true"}, COLUMNS.fields, "by its properties"),
        ({"delta.enableChangeDataFeed": "true"}, COLUMNS.fields, "writers is 4"),
        ({"delta.dataSkippingNumIndexedCols": "1"}, COLUMNS.fields, "which columns have statistics"),
        ({}, [*COLUMNS.fields[:-1], Field("must", PrimitiveType("long"), nullable=False)], "has constraints"),
    ],
)
def test_a_table_that_asks_more_of_a_writer_is_left_to_spark(
    properties: dict[str, str], fields: list[Field], reason: str, tmp_path: Path
) -> None:
    found = why_not_written(DeltaTable.create(str(tmp_path / "t"), Schema(fields), configuration=properties))
    assert found is not None
    assert found.endswith(reason)
    assert why_not_written(DeltaTable.create(str(tmp_path / "other"), COLUMNS)) is None


def test_a_partitioned_table_is_left_to_spark(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), COLUMNS, partition_by=["id"])
    assert why_not_written(table) == "only Spark writes the table: it is partitioned"
