"""Deletion vectors, switched on without Spark."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from deltalake import DeltaTable

from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.pipeline.target import alter_natively, alter_table
from airflow_cdc.pipeline.target.alter_natively import with_deletion_vectors_natively
from airflow_cdc.pipeline.target.commit_natively import commit_deletion_vectors
from airflow_cdc.pipeline.target.target_table import TargetTable
from tests.support.natively import COLUMNS, new_table
from tests.support.small_lakes import field, write_table

NOBODY = Mock(spec_set=())


def target(uri: str, *, size: int, has_vectors: bool = False) -> TargetTable:
    return TargetTable(uri=uri, columns={}, keys=("id",), size=size, files=1, deletion_vectors=has_vectors)


def test_a_table_that_has_grown_large_gets_deletion_vectors_and_keeps_all_else(tmp_path: Path) -> None:
    before = new_table(str(tmp_path / "a b"))
    large = target(str(tmp_path / "a b"), size=alter_table.DELETION_VECTORS_FROM_BYTES)
    assert with_deletion_vectors_natively(NOBODY, large).deletion_vectors
    table = DeltaTable(tmp_path / "a b")
    protocol = table.protocol()
    assert (protocol.min_reader_version, protocol.min_writer_version) == (3, 7)
    assert protocol.reader_features == ["deletionVectors"]
    assert sorted(protocol.writer_features or ()) == ["appendOnly", "deletionVectors", "invariants"]
    assert table.schema() == before.schema() == COLUMNS
    assert table.metadata().id == before.metadata().id
    assert table.metadata().created_time == before.metadata().created_time
    assert table.metadata().configuration == {**before.metadata().configuration, "delta.enableDeletionVectors": "true"}
    assert table.version() == 1


@pytest.mark.parametrize(("size", "has_vectors"), [(0, False), (2**40, True)])
def test_a_small_table_and_one_that_has_them_are_left_alone(size: int, has_vectors: bool, tmp_path: Path) -> None:
    new_table(str(tmp_path / "t"))
    left = target(str(tmp_path / "t"), size=size, has_vectors=has_vectors)
    assert with_deletion_vectors_natively(NOBODY, left) is left
    assert DeltaTable(tmp_path / "t").version() == 0


def test_features_of_a_table_stay(tmp_path: Path) -> None:
    write_table(tmp_path / "t", [field("id", "long")], [], features=["timestampNtz"])
    with_deletion_vectors_natively(NOBODY, target(str(tmp_path / "t"), size=2**40))
    protocol = DeltaTable(tmp_path / "t").protocol()
    assert sorted(protocol.writer_features or ()) == ["deletionVectors", "timestampNtz"]
    assert "deletionVectors" in (protocol.reader_features or ())


def test_a_table_of_an_older_protocol_is_altered_by_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DeltaTable.create(str(tmp_path / "t"), COLUMNS, configuration={"delta.minWriterVersion": "4"})
    assert DeltaTable(tmp_path / "t").protocol().min_writer_version == 4
    by_spark = Mock()
    monkeypatch.setattr(alter_natively, "with_deletion_vectors", by_spark)
    large = target(str(tmp_path / "t"), size=2**40)
    assert with_deletion_vectors_natively(NOBODY, large) is by_spark.return_value
    by_spark.assert_called_once_with(NOBODY, large)


def test_of_two_that_switch_them_on_the_second_ends_as_one_that_came_too_late(tmp_path: Path) -> None:
    new_table(str(tmp_path / "t"))
    first, second = (DeltaTable(tmp_path / "t") for _ in range(2))
    commit_deletion_vectors(str(tmp_path / "t"), first)
    with pytest.raises(ConcurrentRunError):
        commit_deletion_vectors(str(tmp_path / "t"), second)
