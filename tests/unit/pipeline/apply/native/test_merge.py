"""The features of tables into which the native engine merges, against delta-rs itself."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from airflow_cdc.model.columns import OP
from airflow_cdc.pipeline.apply.native.merge import WRITABLE_FEATURES, may_write, merge_rows
from tests.support.small_lakes import field, write_table


def table_with(feature: str, folder: Path) -> DeltaTable:
    """Return an empty table that requires a Delta feature."""
    return DeltaTable(str(write_table(folder, [field("id", "long"), field(OP, "string")], [], features=[feature])))


def merge_into(table: DeltaTable) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), OP: ["c"]})
    merge_rows(table, rows, ["id"], application="flow:1", version=1, metadata="{}")


@pytest.mark.parametrize("feature", sorted(WRITABLE_FEATURES))
def test_delta_rs_commits_a_merge_into_a_table_of_each_feature(feature: str, tmp_path: Path) -> None:
    table = table_with(feature, tmp_path / "t")
    assert may_write(table)
    merge_into(table)
    opened = DeltaTable(str(tmp_path / "t"))
    assert [row["num_records"] for row in pa.table(opened.get_add_actions(flatten=True)).to_pylist()] == [1]


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview", "inCommitTimestamp", "rowTracking", "clustering"])
def test_a_table_that_delta_rs_opens_and_does_not_commit_to_is_left_to_spark(feature: str, tmp_path: Path) -> None:
    table = table_with(feature, tmp_path / "t")
    assert not may_write(table)
    # Why; where this fails, delta-rs has learned to write the feature.
    with pytest.raises(CommitFailedError, match="Unsupported table features"):
        merge_into(table)
