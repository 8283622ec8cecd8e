"""Statistics that delta-rs rounds are corrected in the log, once, and no file is written."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_cdc.model.columns import OP
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.pipeline.apply.native.merge import append_rows
from airflow_cdc.pipeline.target import correct_statistics as module
from airflow_cdc.pipeline.target.add_actions import read_adds, statistics_of
from airflow_cdc.pipeline.target.alter_natively import set_properties_natively
from airflow_cdc.pipeline.target.commit_natively import CommitOf, commit_deletion_vectors
from airflow_cdc.pipeline.target.correct_statistics import correct_statistics
from airflow_cdc.pipeline.target.read_commits import read_commit
from tests.support.natively import merge_rows
from tests.support.small_lakes import field, write_table

AMOUNTS = [Decimal("9999999999999.9999"), Decimal("-1.0001"), Decimal("0.1000")]
IDS = [9007199254740993, 12345678901234567891, -9007199254740993]


def rows_of(ids: list[int], amounts: list[Decimal], half: list[float], op: str = "u") -> pa.Table:
    return pa.table(
        {
            "id": pa.array(map(Decimal, ids), pa.decimal128(20, 0)),
            "amount": pa.array(amounts, pa.decimal128(20, 4)),
            "half": pa.array(half, pa.float64()),
            "name": ["x" * 40] * len(ids),
            OP: [op] * len(ids),
        }
    )


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A table with one file of delta-rs, and one of ours."""
    uri = str(tmp_path / "a b")
    write_deltalake(uri, rows_of(IDS, AMOUNTS, [1.0, float("nan"), -0.0]))
    append_rows(DeltaTable(uri), uri, rows_of([1], [Decimal(1)], [7.0]), of=None)
    return uri


def found(uri: str, where: str) -> int:
    """Return how many rows delta-rs finds."""
    counted = QueryBuilder().register("t", DeltaTable(uri)).execute(f"SELECT count(*) AS n FROM t WHERE {where}")
    return int(pa.table(counted).column("n")[0].as_py())


def all_found(uri: str) -> bool:
    wanted = [f"id = CAST('{key}' AS DECIMAL(20, 0))" for key in IDS] + [
        f"amount = CAST('{amount}' AS DECIMAL(20, 4))" for amount in AMOUNTS
    ]
    return all(found(uri, each) == 1 for each in [*wanted, "half = 0.0 OR half = -0.0"])


def files_of(uri: str) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_size) for path in Path(uri).glob("*.parquet")}


def test_each_value_is_found_afterwards_and_no_file_is_written(uri: str) -> None:
    assert not all_found(uri)
    before, version = files_of(uri), DeltaTable(uri).version()
    assert correct_statistics(uri) == 1
    assert all_found(uri)
    assert files_of(uri) == before
    commit = read_commit(uri, version + 1)
    assert commit is not None
    assert (commit.operation, commit.has_new_data, commit.changes_rows) == ("COMPUTE STATS", False, False)
    by_delta_rs, ours = (statistics_of(action) for action in read_adds(uri, DeltaTable(uri)).values())
    # Its footer leaves NaN out too.
    assert ("half" in by_delta_rs["maxValues"], ours["maxValues"]["half"]) == (False, 7)
    # Once.
    assert correct_statistics(uri) == 0
    assert DeltaTable(uri).version() == version + 1


def test_what_was_corrected_survives_a_checkpoint(uri: str) -> None:
    correct_statistics(uri)
    DeltaTable(uri).create_checkpoint()
    assert all_found(uri)
    assert correct_statistics(uri) == 0


def test_a_dry_run_counts_alone(uri: str) -> None:
    version = DeltaTable(uri).version()
    assert correct_statistics(uri, dry_run=True) == 1
    assert DeltaTable(uri).version() == version


def test_a_file_keeps_its_deletion_vector(uri: str) -> None:
    """The range is wide where an earlier version marked rows of a file that delta-rs wrote."""
    commit_deletion_vectors(uri, DeltaTable(uri))
    merge_rows(uri, rows_of(IDS[:1], AMOUNTS[:1], [0.0], "d"), ["id"], of=CommitOf(application="flow:1", version=1, metadata="{}"))
    assert correct_statistics(uri) == 1
    (marked,) = [action for action in read_adds(uri, DeltaTable(uri)).values() if "deletionVector" in action]
    assert statistics_of(marked)["tightBounds"] is False
    assert statistics_of(marked)["numRecords"] == 3
    assert statistics_of(marked)["maxValues"]["id"] == IDS[1]
    assert found(uri, "true") == 3
    assert found(uri, f"id = CAST('{IDS[1]}' AS DECIMAL(20, 0))") == 1


def test_files_of_spark_and_of_ours_are_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "t")
    write_deltalake(uri, rows_of(IDS, AMOUNTS, [1.0, 2.0, 3.0]))
    monkeypatch.setattr(module, "is_logged_rightly", lambda metadata: True)
    assert correct_statistics(uri) == 0


def test_a_column_with_another_name_in_the_files_is_told_under_that(tmp_path: Path) -> None:
    rows = pa.table({"col-1": pa.array([AMOUNTS[0]], pa.decimal128(20, 4))})
    mapped = field("amount of it", "decimal(20,4)", "col-1")
    properties = {"delta.columnMapping.mode": "name"}
    uri = str(write_table(tmp_path / "t", [mapped], [rows], properties=properties, features=["columnMapping"]))
    assert correct_statistics(uri) == 1
    (action,) = read_adds(uri, DeltaTable(uri)).values()
    assert statistics_of(action)["maxValues"] == {"col-1": AMOUNTS[0]}


def test_a_table_whose_commits_say_more_is_left_as_it_is(tmp_path: Path) -> None:
    rows = pa.table({"amount": pa.array([AMOUNTS[0]], pa.decimal128(20, 4))})
    uri = str(write_table(tmp_path / "t", [field("amount", "decimal(20,4)")], [rows], features=["inCommitTimestamp"]))
    assert correct_statistics(uri) is None


def test_a_run_that_commits_first_is_waited_for_and_not_for_ever(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def lose(*arguments: Any) -> None:
        asked.append(arguments)
        raise ConcurrentRunError("another", next_step="again")

    monkeypatch.setattr(module, "commit_statistics", lose)
    with pytest.raises(ConcurrentRunError):
        correct_statistics(uri)
    assert len(asked) == 3


def test_a_property_is_set_and_nothing_else_changes(uri: str) -> None:
    before = DeltaTable(uri)
    set_properties_natively(None, uri, {"airflow_cdc.statistics": "exact"})  # type: ignore[arg-type]
    after = DeltaTable(uri)
    assert after.metadata().configuration == {**before.metadata().configuration, "airflow_cdc.statistics": "exact"}
    assert json.loads(after.schema().to_json()) == json.loads(before.schema().to_json())
    assert (after.metadata().id, after.protocol()) == (before.metadata().id, before.protocol())
