"""What a table's log records of its files, without a look at them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from airflow_cdc.pipeline.target.table_history import Commit, TableHistory

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
WEEK = str(7 * 86_400_000)


def day(number: int) -> datetime:
    return START + timedelta(days=number)


def history(*commits: tuple[int, str, dict[str, str]]) -> TableHistory:
    """Return a table of such versions, by day, operation and facts; a map is of parameters for appends and vacuums, else of metrics."""
    ascending = [
        Commit(version, day(at), operation, facts if operation in ("WRITE", "VACUUM START") else {}, facts)
        for version, (at, operation, facts) in enumerate(commits)
    ]
    return TableHistory(tuple(reversed(ascending)))


APPENDED = (1, "WRITE", {"mode": "Append"})
MERGED = (2, "MERGE", {})


def test_what_left_the_table_before_a_moment_is_to_be_vacuumed_once() -> None:
    table = history((0, "CREATE TABLE", {}), APPENDED, MERGED)
    assert not history(APPENDED, APPENDED).leaves_to_vacuum(day(30))
    assert not table.leaves_to_vacuum(day(2))
    assert table.leaves_to_vacuum(day(3))
    vacuumed = history((0, "CREATE TABLE", {}), APPENDED, MERGED, (10, "VACUUM START", {"defaultRetentionMillis": WEEK}))
    assert vacuumed.vacuumed_before == day(3)
    assert not vacuumed.leaves_to_vacuum(day(30))
    # An overwrite leaves files as a merge does.
    assert history(APPENDED, (2, "WRITE", {"mode": "Overwrite"})).leaves_to_vacuum(day(3))


def test_a_version_is_readable_until_a_vacuum_took_what_a_later_one_dropped() -> None:
    specified = {"defaultRetentionMillis": WEEK, "specifiedRetentionMillis": str(86_400_000)}
    table = history(APPENDED, MERGED, (8, "MERGE", {}), (9, "VACUUM START", {"defaultRetentionMillis": WEEK}))
    # It kept what was dropped on day 2 and later.
    assert [table.is_readable(version) for version in (0, 1, 2)] == [True, True, True]
    table = history(APPENDED, MERGED, (8, "MERGE", {}), (9, "VACUUM START", specified))
    assert [table.is_readable(version) for version in (0, 1, 2)] == [False, True, True]


def test_hidden_rows_are_those_of_commits_with_deletion_vectors_since_the_last_rewrite() -> None:
    merged = {"numTargetDeletionVectorsAdded": "2", "numTargetRowsUpdated": "30", "numTargetRowsDeleted": "4"}
    deleted = {"numDeletionVectorsUpdated": "1", "numDeletedRows": "5"}
    without = {"numTargetDeletionVectorsAdded": "0", "numTargetRowsUpdated": "1000"}
    assert history((1, "MERGE", merged), (2, "DELETE", deleted), (3, "MERGE", without)).hidden_rows == 39
    assert history((1, "MERGE", merged), (2, "REORG", {}), (3, "DELETE", deleted)).hidden_rows == 5
    assert history((1, "MERGE", merged), (2, "OPTIMIZE", {})).hidden_rows == 0


def test_a_table_is_rewritten_until_rows_come() -> None:
    assert history(APPENDED, (2, "OPTIMIZE", {}), (3, "SET TBLPROPERTIES", {}), (4, "VACUUM START", {})).is_rewritten
    assert not history(APPENDED, (2, "OPTIMIZE", {}), APPENDED).is_rewritten
    assert not history((2, "OPTIMIZE", {}), (3, "MERGE", {})).is_rewritten
