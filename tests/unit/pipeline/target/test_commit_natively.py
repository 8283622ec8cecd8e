"""Commits of our own into a table's log."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.pipeline.target import commit_natively
from airflow_cdc.pipeline.target.commit_natively import CommitOf, commit_rows
from airflow_cdc.pipeline.target.read_commits import commits_behind, read_commit
from tests.support.natively import new_table

OF = CommitOf(application="flow ü:1", version=7, metadata='{"application": "flow ü:1"}')


def commit(folder: Path, *, microbatch: int = OF.version, **metrics: int) -> None:
    commit_rows(str(folder), DeltaTable(folder), [], of=replace(OF, version=microbatch), metrics=metrics)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    new_table(str(tmp_path / "a b"))
    return tmp_path / "a b"


def test_a_commit_carries_the_microbatch_and_delta_s_counts(table: Path) -> None:
    commit(table, numTargetRowsInserted=3)
    assert list(commits_behind(str(table), 0)) == [
        {"version": 1, "userMetadata": OF.metadata, "operationMetrics": {"numTargetRowsInserted": "3"}}
    ]
    found = read_commit(str(table), 1)
    assert found is not None
    assert (found.operation, found.by) == ("MERGE", "airflow-cdc/0.1.0")
    assert DeltaTable(table).transaction_version(OF.application) == OF.version
    first, second = (table / "_delta_log" / f"{1:020d}.json").read_text(encoding="utf-8").splitlines()
    assert json.loads(first)["commitInfo"]["readVersion"] == 0
    assert json.loads(second)["txn"]["appId"] == OF.application


def test_only_one_of_two_makes_a_version_and_nothing_else_is_left(table: Path) -> None:
    opened = DeltaTable(table)
    commit(table)
    with pytest.raises(ConcurrentRunError, match="committed version 1"):
        commit_rows(str(table), opened, [], of=OF, metrics={})
    assert sorted(path.name for path in (table / "_delta_log").glob("*")) == [f"{number:020d}.json" for number in (0, 1)]


def test_a_microbatch_that_the_table_holds_is_not_committed_again_by_one_that_sees_it(table: Path) -> None:
    commit(table)
    with pytest.raises(ConcurrentRunError, match=r"committed microbatch 7 of flow ü:1 .* holds microbatch 7 \(version 1\)"):
        commit(table)
    commit(table, microbatch=8)
    assert DeltaTable(table).version() == 2


def test_a_checkpoint_is_written_where_it_is_due_and_its_failure_is_none_of_the_commit(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_natively, "_USUAL_INTERVAL", 2)
    for number in range(3):
        commit(table, microbatch=number)
    assert [path.name[:20] for path in (table / "_delta_log").glob("*.checkpoint.parquet")] == [f"{2:020d}"]

    def fail(*_: object) -> None:
        raise DeltaError("the store is full")

    monkeypatch.setattr(DeltaTable, "create_checkpoint", fail)
    commit(table)
    assert DeltaTable(table).version() == 4
