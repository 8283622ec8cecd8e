"""The live files of a table, as its log has them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cdc.pipeline.target import add_actions
from airflow_cdc.pipeline.target.add_actions import UnreadableLogError, read_adds, statistics_of
from tests.support.small_lakes import field, write_table

FILES = [pa.table({"id": [first, first + 1]}) for first in (0, 10, 20)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table of six versions: appends, of which each changes nothing of what was there."""
    for number in range(6):
        write_deltalake(tmp_path / "a b", pa.table({"id": [number], "name": [f"n{number}"]}), mode="append")
    return tmp_path / "a b"


def read(folder: Path) -> dict[str, Any]:
    return read_adds(str(folder), DeltaTable(folder))


def facts(action: dict[str, Any]) -> dict[str, Any]:
    return {**action, "stats": statistics_of(action)}


def last_checkpoint(folder: Path, **changes: Any) -> None:
    path = folder / "_delta_log" / "_last_checkpoint"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_same_files_come_from_a_checkpoint_and_from_the_commits(folder: Path) -> None:
    of_commits = read(folder)
    DeltaTable(folder, version=3).create_checkpoint()
    # A checkpoint may spell the statistics anew.
    assert {path: facts(action) for path, action in read(folder).items()} == {path: facts(action) for path, action in of_commits.items()}
    assert len(of_commits) == 6
    for path, action in of_commits.items():
        assert (folder / path).stat().st_size == action["size"]
        assert action["partitionValues"] == {}
        assert statistics_of(action)["numRecords"] == 1


def test_removed_files_are_gone_and_the_vectors_of_others_stay(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "t", [field("id", "long")], FILES, features=["deletionVectors"], deleted={0: [1]})
    (marked,) = [action for action in read(uri).values() if "deletionVector" in action]
    DeltaTable(uri).create_checkpoint()
    (again,) = [action for action in read(uri).values() if "deletionVector" in action]
    assert again == marked
    DeltaTable(uri).delete("id >= 20")
    assert sorted(statistics_of(action).get("numRecords", 2) for action in read(uri).values()) == [2, 2]


@pytest.mark.parametrize("kind", [{"parts": 2}, {"v2Checkpoint": {"path": "x"}}, {"version": 9}])
def test_a_checkpoint_of_another_kind_is_not_read(kind: dict[str, Any], folder: Path) -> None:
    DeltaTable(folder).create_checkpoint()
    last_checkpoint(folder, **kind)
    with pytest.raises(UnreadableLogError, match="last checkpoint"):
        read_adds(str(folder), DeltaTable(folder, version=5))


def test_a_checkpoint_without_statistics_as_json_is_not_read(folder: Path) -> None:
    DeltaTable(folder).create_checkpoint()
    table = DeltaTable(folder)
    path = folder / "_delta_log" / f"{5:020d}.checkpoint.parquet"
    rows = [
        {"add": None if row["add"] is None else {**row["add"], "stats": None}} for row in pq.read_table(path, columns=["add"]).to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    with pytest.raises(UnreadableLogError, match="no statistics"):
        read_adds(str(folder), table)


def test_a_commit_that_is_gone_is_named(folder: Path) -> None:
    table = DeltaTable(folder)
    (folder / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(UnreadableLogError, match="lacks version 2"):
        read_adds(str(folder), table)


def test_a_log_that_delta_rs_reads_otherwise_is_not_trusted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable(folder)
    known = add_actions.live_files(table)
    monkeypatch.setattr(add_actions, "live_files", lambda _table: known[1:])
    with pytest.raises(UnreadableLogError, match="shows 6 files, and delta-rs 5"):
        read_adds(str(folder), table)


def test_numbers_of_statistics_keep_their_digits() -> None:
    assert statistics_of({"stats": '{"minValues":{"a":0.10000000000000000001}}'}) == {"minValues": {"a": Decimal("0.10000000000000000001")}}
    assert statistics_of({}) == {}
