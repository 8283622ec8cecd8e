"""Which commits of a table's log are changes by others that are still in effect."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.report.foreign_change import ForeignChange, TableCommit, foreign_changes

OURS = {"application": "a:b:0123", "microbatch": 7}


def commit(version: int, operation: str, **more: Any) -> TableCommit:
    return TableCommit(version, operation, **more)


def restore(version: int, to: int | str | None) -> TableCommit:
    return commit(version, "RESTORE", parameters={"version": to, "timestamp": None})


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        pytest.param([], [], id="none"),
        pytest.param([commit(11, "OPTIMIZE"), commit(12, "SET TBLPROPERTIES"), commit(13, "VACUUM END")], [], id="upkeep"),
        pytest.param([commit(11, "WRITE", has_new_data=False)], [], id="a rewrite that is marked as one"),
        pytest.param([commit(11, "MERGE", metadata=OURS), commit(12, "UPDATE", metadata={"upkeep": "a:b:0123"})], [], id="our own"),
        pytest.param([commit(11, "MERGE", metadata={"application": "a:0123"})], [11], id="another flow's"),
        pytest.param([commit(11, "DELETE"), commit(12, "WRITE")], [11, 12], id="several"),
        pytest.param([commit(11, "DROP COLUMNS", has_new_data=False)], [11], id="values that go without a file"),
        pytest.param([commit(11, "RENAME COLUMN", has_new_data=False)], [11], id="values that go to another name"),
        pytest.param([commit(11, "RENAME COLUMN", has_new_data=False, is_recorded=True)], [], id="a name that the flow had recorded"),
        pytest.param([commit(11, "SET TBLPROPERTIES", has_new_data=False, unfreezes=True)], [11], id="the table's keys"),
        pytest.param([commit(11, "unknown operation")], [11], id="who knows"),
        pytest.param([commit(11, "UPDATE SCHEMA", has_new_data=False, has_new_metadata=True)], [11], id="an unknown change of the schema"),
        pytest.param([commit(11, "UPDATE SCHEMA", has_new_data=False)], [], id="an operation that did nothing"),
        pytest.param([commit(11, "DELETE", is_intended=True)], [], id="vouched for"),
        pytest.param([commit(11, "DELETE"), restore(12, 10)], [], id="taken back"),
        pytest.param([commit(11, "DELETE"), commit(12, "UPDATE"), restore(13, "11")], [11], id="taken back in part"),
        pytest.param([restore(11, 9)], [11], id="restored below what was merged"),
        pytest.param([commit(11, "MERGE", metadata=OURS), restore(12, 10)], [12], id="restored below our newest merge"),
        pytest.param([commit(11, "DELETE"), restore(12, None)], [11, 12], id="restored by a time"),
        pytest.param(
            [commit(11, "DELETE"), commit(12, "WRITE", parameters={"mode": "Overwrite"}, is_intended=True)],
            [],
            id="all replaced",
        ),
        pytest.param(
            [commit(11, "DELETE"), commit(12, "WRITE", parameters={"mode": "Append"}, is_intended=True)], [11], id="appended, vouched for"
        ),
    ],
)
def test_changes_by_others_count_until_they_are_taken_back(commits: list[TableCommit], found: list[int]) -> None:
    assert [change.version for change in foreign_changes(commits, "a:b", known=10).standing] == found


def test_a_change_is_named_by_version_operation_time_and_user() -> None:
    change = commit(3, "DELETE", at_millis=1_700_000_000_000, by="ann").as_change()
    assert str(change) == "version 3: DELETE at 2023-11-14T22:13:20+00:00 by ann"
    assert str(ForeignChange(4, "UPDATE")) == "version 4: UPDATE"
    assert restore(5, 2).as_change().operation == "RESTORE to version 2"
