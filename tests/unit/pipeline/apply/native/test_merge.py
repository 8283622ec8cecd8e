"""The features of tables into which the native engine merges, against delta-rs itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from airflow_cdc.model.columns import OP
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.pipeline.apply.native.merge import WRITABLE_FEATURES, append_rows, may_write, merge_rows
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from tests.support.small_lakes import field, write_table


def table_with(feature: str, folder: Path) -> DeltaTable:
    """Return an empty table that requires a Delta feature."""
    return DeltaTable(str(write_table(folder, [field("id", "long"), field(OP, "string")], [], features=[feature])))


def records_of(folder: Path) -> list[int]:
    """Return the number of records in each file of a table."""
    return [row["num_records"] for row in pa.table(DeltaTable(str(folder)).get_add_actions(flatten=True)).to_pylist()]


def merge_into(table: DeltaTable) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), OP: ["c"]})
    merge_rows(table, rows, ["id"], of=CommitOf(application="flow:1", version=1, metadata="{}"))


@pytest.mark.parametrize("feature", sorted(WRITABLE_FEATURES))
def test_delta_rs_commits_a_merge_into_a_table_of_each_feature(feature: str, tmp_path: Path) -> None:
    table = table_with(feature, tmp_path / "t")
    assert may_write(table)
    merge_into(table)
    assert records_of(tmp_path / "t") == [1]


@pytest.mark.parametrize("feature", sorted(WRITABLE_FEATURES))
def test_delta_rs_appends_to_a_table_of_each_feature(feature: str, tmp_path: Path) -> None:
    table = table_with(feature, tmp_path / "t")
    append_rows(
        table, pa.table({"id": pa.array([1, 2], pa.int64()), OP: ["c", "u"]}), of=CommitOf(application="flow:1", version=1, metadata="{}")
    )
    assert records_of(tmp_path / "t") == [2]


def test_of_two_appends_to_one_version_the_second_ends_as_one_that_came_too_late(tmp_path: Path) -> None:
    first, second = table_with("appendOnly", tmp_path / "t"), DeltaTable(str(tmp_path / "t"))
    rows = pa.table({"id": pa.array([1], pa.int64()), OP: ["c"]})
    append_rows(first, rows, of=CommitOf(application="flow:1", version=1, metadata="{}"))
    with pytest.raises(ConcurrentRunError):
        append_rows(second, rows, of=CommitOf(application="flow:1", version=1, metadata="{}"))
    assert records_of(tmp_path / "t") == [1]


@pytest.mark.parametrize(
    "write", [lambda table, rows, of: append_rows(table, rows, of=of), lambda table, rows, of: merge_rows(table, rows, ["id"], of=of)]
)
def test_a_microbatch_that_the_table_holds_is_not_committed_again_by_one_that_sees_it(write: Callable[..., None], tmp_path: Path) -> None:
    table, rows = table_with("appendOnly", tmp_path / "t"), pa.table({"id": pa.array([1], pa.int64()), OP: ["c"]})
    for number in (1, 2):
        write(DeltaTable(str(tmp_path / "t")), rows, CommitOf(application="flow:1", version=number, metadata="{}"))
    table.update_incremental()
    for number in (1, 2):
        with pytest.raises(ConcurrentRunError, match=rf"committed microbatch {number} of flow:1 .* holds microbatch 2 \(version 2\)"):
            write(table, rows, CommitOf(application="flow:1", version=number, metadata="{}"))
    assert DeltaTable(str(tmp_path / "t")).version() == 2
    write(table, rows, CommitOf(application="flow:2", version=1, metadata="{}"))


@pytest.mark.parametrize("feature", ["typeWidening", "typeWidening-preview", "inCommitTimestamp", "rowTracking", "clustering"])
def test_a_table_that_delta_rs_opens_and_does_not_commit_to_is_left_to_spark(feature: str, tmp_path: Path) -> None:
    table = table_with(feature, tmp_path / "t")
    assert not may_write(table)
    # Why; where this fails, delta-rs has learned to write the feature.
    with pytest.raises(CommitFailedError, match="Unsupported table features"):
        merge_into(table)
