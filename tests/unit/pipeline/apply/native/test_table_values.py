"""Values that events leave out are those of the table's row, at the version that is merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.merge import rows_for
from airflow_cdc.pipeline.apply.native.table_values import Completed, complete
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from tests.support.events import Record, numbered, sqlserver
from tests.support.natively import bytes_of, decoder_of, entries_of, merge_rows, new_table
from tests.support.stories import PLACEHOLDER


def left_out(commit: int, key: int = 1) -> Record:
    """Return an update that leaves the name out."""
    return sqlserver("u", commit=commit, after={"id": key, "name": PLACEHOLDER})


class Lake:
    """A table into which microbatches are merged, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.uri, self.microbatch = folder, str(folder / "table"), 0
        new_table(self.uri)

    def completed(self, *records: Record) -> Completed:
        self.microbatch += 1
        path = f"{self.microbatch}.jsonl"
        (self.folder / path).write_bytes(bytes_of(path, numbered(records)))
        changes = fold_natively(decoder_of({path: numbered(records)}), str(self.folder)).rows
        return complete(DeltaTable(self.uri), self.uri, changes, keys=["id"])

    def merge(self, *records: Record) -> int:
        """Merge events, and return how many rows have a value that nobody knows."""
        found, table = self.completed(*records), DeltaTable(self.uri)
        rows = rows_for(table, found.rows, ["id", "name"], microbatch=self.microbatch)
        merge_rows(self.uri, rows, ["id"], of=CommitOf(application="flow", version=self.microbatch, metadata="{}"))
        return found.unresolved

    def rows(self) -> dict[int, tuple[str | None, list[Any]]]:
        """Return the names and the positions of older values, by id."""
        found = pa.table(DeltaTable(self.uri).to_pyarrow_table()).to_pylist()
        return {row["id"]: (row["name"], entries_of(row)) for row in found}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_row_keeps_its_value_and_the_value_its_position(lake: Lake) -> None:
    made = [sqlserver("c", commit=number, after={"id": number, "name": f"name {number}"}) for number in (1, 2, 3)]
    assert lake.merge(*made) == 0
    others = [sqlserver("u", commit=11, after={"id": 2, "name": None}), sqlserver("d", commit=12, before={"id": 3, "name": "name 3"})]
    assert lake.merge(left_out(10), *others) == 0
    assert lake.rows() == {1: ("name 1", [("name", 1, True)]), 2: (None, [])}
    # Of a row that was left out before: its value's own position.
    assert lake.merge(left_out(20), left_out(21), left_out(22, key=2)) == 0
    assert lake.rows() == {1: ("name 1", [("name", 1, True)]), 2: (None, [("name", 11, True)])}


def test_a_value_of_a_row_that_is_not_there_is_null_and_counted_until_an_event_carries_it(lake: Lake) -> None:
    assert lake.merge(left_out(10)) == 1
    assert lake.rows() == {1: (None, [("name", None, False)])}
    assert lake.merge(left_out(11), left_out(12, key=2), sqlserver("c", commit=13, after={"id": 3, "name": "x"})) == 2
    assert lake.rows() == {1: (None, [("name", None, False)]), 2: (None, [("name", None, False)]), 3: ("x", [])}
    assert lake.merge(sqlserver("u", commit=14, after={"id": 1, "name": "ann"}), left_out(15)) == 0
    assert lake.rows()[1] == ("ann", [("name", 14, True)])


def test_a_table_that_is_to_be_created_has_no_values(lake: Lake, tmp_path: Path) -> None:
    changes = fold_natively(decoder_of({"1.jsonl": [left_out(10)]}), lands(tmp_path, left_out(10))).rows
    found = complete(None, str(tmp_path / "none"), changes, keys=["id"])
    assert (found.unresolved, found.of_version) == (1, -1)
    assert [(row["name"], entries_of(row)) for row in found.rows.to_pylist()] == [(None, [("name", None, False)])]


def lands(folder: Path, record: Record) -> str:
    (folder / "1.jsonl").write_bytes(bytes_of("1.jsonl", numbered([record])))
    return str(folder)


def test_a_microbatch_that_asks_nothing_reads_no_row(lake: Lake) -> None:
    found = lake.completed(sqlserver("c", commit=1, after={"id": 1, "name": "ann"}))
    assert (found.of_version, found.unresolved) == (None, 0)


def test_a_table_whose_rows_cannot_be_read_here_leaves_the_microbatch_to_spark(lake: Lake) -> None:
    lake.merge(sqlserver("c", commit=1, after={"id": 1, "name": "ann"}))
    for file in Path(lake.uri).glob("*.parquet"):
        file.write_bytes(b"no Parquet")
    with pytest.raises(HandedOver, match="the table's rows cannot be read from the driver"):
        lake.completed(left_out(10))
