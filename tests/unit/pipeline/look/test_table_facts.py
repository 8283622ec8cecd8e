"""A table's facts are those of its log; rows are counted in files only where these are small."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_cdc.model.columns import DELETED
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look import table_facts
from airflow_cdc.pipeline.look.native_table import open_table
from airflow_cdc.pipeline.look.table_facts import TableDetails, changes_of, details_of
from tests.support.small_lakes import field, our_properties, write_table

HIDING = ["deletionVectors"]


def details(folder: Path) -> TableDetails:
    table = open_table(str(folder))
    assert table is not None
    return details_of(table)


def test_rows_that_deletion_vectors_hide_are_counted_apart(tmp_path: Path) -> None:
    files = [pa.table({"id": [1, 2, 3]}), pa.table({"id": [4]})]
    write_table(tmp_path / "t", [field("id", "long")], files, properties=our_properties(["id"]), features=HIDING, deleted={0: [1]})
    found = details(tmp_path / "t")
    assert (found.rows, found.stored_rows, found.hidden_rows, found.files) == (3, 4, 1, 2)
    assert [(column.name, column.type, column.is_key, column.is_ours) for column in found.columns] == [("id", "bigint", True, False)]


def test_flagged_deletes_are_stored_and_no_rows_of_the_source(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], DELETED: [False, True]})
    fields = [field("id", "long"), field(DELETED, "boolean")]
    write_table(tmp_path / "t", fields, [rows], properties=our_properties(["id"], TableMode.FLAGGED))
    found = details(tmp_path / "t")
    assert (found.rows, found.stored_rows, found.hidden_rows) == (1, 2, 0)
    assert [column.is_ours for column in found.columns] == [False, True]


def test_a_large_tables_rows_are_counted_by_its_log_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_facts, "_COUNTED_UP_TO_BYTES", 1)
    plain = write_table(tmp_path / "plain", [field("id", "long")], [pa.table({"id": [1, 2]})])
    hiding = write_table(tmp_path / "hiding", [field("id", "long")], [pa.table({"id": [1, 2]})], features=HIDING, deleted={0: [1]})
    assert details(plain).rows == 2
    assert (details(hiding).rows, details(hiding).hidden_rows, details(hiding).stored_rows) == (None, None, 2)


def test_a_commit_that_is_not_ours_is_of_others(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    folder = write_table(tmp_path / "t", [field("id", "long")], [pa.table({"id": [1, 2]})])
    write_deltalake(str(folder), pa.table({"id": [3]}), mode="append")
    DeltaTable(str(folder)).optimize.compact()
    table = open_table(str(folder))
    assert table is not None
    assert [(change.version, change.by) for change in changes_of(table, 2)] == [(2, "maintenance"), (1, "others")]
