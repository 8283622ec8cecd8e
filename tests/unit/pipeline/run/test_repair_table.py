"""``on_foreign_change: repair``: a table that others changed becomes what it would be if nobody had touched it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, OnForeignChange, OnTruncate, WriteDisposition
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.target.overlapping_versions import overlapping_versions
from airflow_cdc.pipeline.target.target_table import read_target
from tests.conftest import Apply
from tests.support.events import TOPIC, Record, numbered, sqlserver, write_records
from tests.support.stories import CHOSEN
from tests.support.table_and_state import CrashError, failure, version

ROWS = CdcFlow(TOPIC, on_foreign_change=OnForeignChange.REPAIR)
MODES = {
    "rows": ROWS,
    "versions": replace(ROWS, stored_as_scd_type=2, scd_columns=CHOSEN),
    "flagged": replace(ROWS, on_delete=OnDelete.FLAG),
    "change log": replace(ROWS, write_disposition=WriteDisposition.APPEND),
}
REPAIRED_BY_RESTORE, REBUILT = "repaired by version {} (RESTORE to version 2)", "repaired by version {} (WRITE)"


def row(key: int, name: str) -> dict[str, Any]:
    return {"id": key, "name": name}


FILES: tuple[tuple[Record, ...], ...] = (
    tuple(sqlserver("c", commit=key, after=row(key, "a")) for key in (1, 2, 3)),
    (sqlserver("u", commit=4, before=row(1, "a"), after=row(1, "b")), sqlserver("d", commit=5, before=row(3, "a"))),
    (sqlserver("u", commit=6, before=row(2, "a"), after=row(2, "c")), sqlserver("c", commit=7, after=row(4, "c"))),
)


@dataclass
class Twins:
    """Two lakes that are filled from one archive, file by file; others change the table of the first.

    :param is_alone: whether the second is left out, where the table must stay as it is.
    """

    archive: Path
    lake: Path
    untouched: Path
    flow: CdcFlow
    apply_to: Apply
    spark: SparkSession
    is_alone: bool = False
    files: int = 0

    def lands(self, *records: Record) -> None:
        self.files += 1
        write_records(self.archive / f"{self.files}.jsonl", numbered(list(records), first=10 * self.files))

    def apply(self, **more: Any) -> FlowOutcome:
        """Apply what is new to the lake that is meddled with."""
        return self.apply_to(self.archive, self.lake, flows={TOPIC: self.flow}, **more).flows[0]

    def step(self, *records: Record) -> FlowOutcome:
        self.lands(*records)
        if not self.is_alone:
            self.apply_to(self.archive, self.untouched, flows={TOPIC: self.flow})
        return self.apply()

    @property
    def table(self) -> str:
        return f"delta.`{self.lake / TOPIC}`"

    def forget_older_files(self) -> None:
        """Remove the files of earlier versions."""
        self.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        try:
            self.spark.sql(f"VACUUM {self.table} RETAIN 0 HOURS")
        finally:
            self.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")

    def rows(self, lake: Path) -> list[str]:
        """Return all rows of a table with all columns, ours too."""
        return sorted(map(str, self.spark.sql(f"SELECT * FROM delta.`{lake / TOPIC}`").collect()))

    @property
    def are_equal(self) -> bool:
        return self.rows(self.lake) == self.rows(self.untouched)

    @property
    def left_over(self) -> list[Path]:
        return list((self.lake / "_cdc" / "repairs").iterdir()) if (self.lake / "_cdc" / "repairs").exists() else []


@pytest.fixture
def twins(tmp_path: Path, archive: Path, lake: Path, apply: Apply, spark: SparkSession) -> Callable[..., Twins]:
    def begin(flow: CdcFlow, *, is_alone: bool = False) -> Twins:
        made = Twins(archive, lake, tmp_path / "untouched", flow, apply, spark, is_alone)
        for records in FILES[:2]:
            made.step(*records)
        return made

    return begin


def by_hand(spark: SparkSession, table: str) -> None:
    """Delete, change and add rows."""
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    spark.sql(f"UPDATE {table} SET name = 'by hand' WHERE id = 1")
    spark.sql(f"INSERT INTO {table} SELECT * FROM {table} LIMIT 1")


def to_an_older_version(spark: SparkSession, table: str) -> None:
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")


Meddler = Callable[[SparkSession, str], None]


@pytest.mark.parametrize(
    ("mode", "meddle", "commits"), [("rows", by_hand, 3), pytest.param("versions", to_an_older_version, 1, marks=pytest.mark.deep)]
)
def test_the_version_before_the_change_is_restored_while_delta_has_it(
    mode: str, meddle: Meddler, commits: int, twins: Callable[..., Twins], spark: SparkSession
) -> None:
    both = twins(MODES[mode])
    meddle(spark, both.table)
    outcome = both.step(*FILES[2])
    assert both.are_equal
    assert [change.version for change in outcome.foreign_changes] == [*range(3, 3 + commits)]
    assert {change.undone for change in outcome.foreign_changes} == {REPAIRED_BY_RESTORE.format(3 + commits)}
    assert any("changed by others: version 3: " in line and "; repaired by version" in line for line in outcome.gap_lines())
    assert FlowOutcome.from_json(outcome.to_json()) == outcome
    # It is reported once, and done once.
    assert both.step(sqlserver("d", commit=8, before=row(1, "b"))).foreign_changes == ()
    assert both.are_equal


@pytest.mark.deep
@pytest.mark.parametrize(
    ("mode", "meddle", "commits"),
    [
        ("rows", by_hand, 3),
        ("versions", by_hand, 3),
        ("versions", to_an_older_version, 1),
        ("flagged", by_hand, 3),
        ("change log", by_hand, 3),
    ],
)
def test_the_table_is_rebuilt_from_the_archive_where_delta_has_the_version_no_more(
    mode: str, meddle: Meddler, commits: int, twins: Callable[..., Twins], spark: SparkSession
) -> None:
    both = twins(MODES[mode])
    meddle(spark, both.table)
    both.forget_older_files()
    outcome = both.step(*FILES[2])
    assert both.are_equal
    assert len(outcome.foreign_changes) == commits
    assert all((change.undone or "").endswith(" (WRITE)") for change in outcome.foreign_changes), outcome.foreign_changes
    assert both.left_over == []
    if mode == "versions":
        target = read_target(spark, str(both.lake / TOPIC))
        assert target
        assert overlapping_versions(target.with_default_names(spark.sql(f"SELECT * FROM {both.table}")), ("id",)).isEmpty()
    both.step(sqlserver("d", commit=8, before=row(1, "b")))
    assert both.are_equal


@pytest.mark.deep
def test_a_change_that_came_between_a_look_and_the_merge_behind_it_is_repaired_with_what_was_merged_since(
    twins: Callable[..., Twins], spark: SparkSession
) -> None:
    both = twins(ROWS)

    def meddle(effect: str) -> None:
        if effect == "stage" and version(spark, both.lake) == 2:
            spark.sql(f"DELETE FROM {both.table} WHERE id = 1")

    both.lands(*FILES[2])
    both.apply_to(both.archive, both.untouched, flows={TOPIC: ROWS})
    assert both.apply(after_effect=meddle).foreign_changes == ()
    assert not both.are_equal
    outcome = both.step(sqlserver("d", commit=8, before=row(2, "c")))
    assert [(change.version, change.undone) for change in outcome.foreign_changes] == [(3, REBUILT.format(5))]
    assert both.are_equal


@pytest.mark.parametrize(
    ("mode", "effect"),
    [
        ("rows", "repeat"),
        *(pytest.param(*case, marks=pytest.mark.deep) for case in (("rows", "stage"), ("versions", "merge"), ("versions", "repair"))),
    ],
)
def test_a_run_that_ended_in_a_repair_is_carried_on_by_the_next_one(
    effect: str, mode: str, twins: Callable[..., Twins], spark: SparkSession
) -> None:
    both = twins(MODES[mode])
    by_hand(spark, both.table)
    both.forget_older_files()
    both.lands(*FILES[2])
    both.apply_to(both.archive, both.untouched, flows={TOPIC: both.flow})

    def crash(done: str) -> None:
        if done == effect:
            raise CrashError

    with pytest.raises(CrashError):
        both.apply(after_effect=crash)
    again: list[str] = []
    outcome = both.apply(after_effect=again.append)
    assert both.are_equal
    assert len(outcome.foreign_changes) == 3
    assert all(change.undone for change in outcome.foreign_changes)
    # Of the two microbatches that are applied again those that were done are not done a second time.
    assert again.count("repeat") == {"stage": 2, "merge": 2, "repeat": 1, "repair": 0}[effect]


@pytest.mark.deep
def test_where_the_archive_lacks_a_file_nothing_is_changed_and_the_file_is_named(twins: Callable[..., Twins], spark: SparkSession) -> None:
    both = twins(ROWS)
    by_hand(spark, both.table)
    both.forget_older_files()
    (both.archive / "1.jsonl").rename(both.archive.parent / "away")
    before, was = both.rows(both.lake), version(spark, both.lake)
    both.lands(*FILES[2])
    error = failure(both.apply_to(both.archive, both.lake, flows={TOPIC: ROWS}, may_fail=True))
    assert error["type"] == "TableChangedError"
    assert "version 3: DELETE" in error["message"]
    assert "microbatch 1 cannot be applied once more" in error["message"]
    assert "1.jsonl" in error["message"]
    assert "Bring back what is missing" in error["next_step"]
    assert (both.rows(both.lake), version(spark, both.lake)) == (before, was)
    (both.archive.parent / "away").rename(both.archive / "1.jsonl")
    both.apply_to(both.archive, both.untouched, flows={TOPIC: ROWS})
    both.apply()
    assert both.are_equal


@pytest.mark.deep
def test_where_the_settings_of_today_give_another_table_nothing_is_changed(twins: Callable[..., Twins], spark: SparkSession) -> None:
    both = twins(ROWS, is_alone=True)
    both.step(sqlserver("t", commit=6), sqlserver("c", commit=7, after=row(5, "a")))
    spark.sql(f"UPDATE {both.table} SET name = 'by hand'")
    both.forget_older_files()
    was = version(spark, both.lake)
    both.flow = replace(ROWS, on_truncate=OnTruncate.IGNORE)
    both.lands(sqlserver("c", commit=8, after=row(6, "a")))
    error = failure(both.apply_to(both.archive, both.lake, flows={TOPIC: both.flow}, may_fail=True))
    assert (error["type"], "microbatch 3 does not give what it gave (truncated_through)" in error["message"]) == ("TableChangedError", True)
    assert version(spark, both.lake) == was
    assert both.left_over == []


@contextmanager
def vouching(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "airflow_cdc: intended")
    try:
        yield
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")


def test_a_change_that_was_vouched_for_is_not_undone_with_one_that_was_not(twins: Callable[..., Twins], spark: SparkSession) -> None:
    both = twins(ROWS, is_alone=True)
    spark.sql(f"UPDATE {both.table} SET name = 'by hand' WHERE id = 1")
    with vouching(spark):
        spark.sql(f"DELETE FROM {both.table} WHERE id = 2")
    before = both.rows(both.lake)
    both.lands(*FILES[2])
    error = failure(both.apply_to(both.archive, both.lake, flows={TOPIC: ROWS}, may_fail=True))
    assert "the changes that somebody vouched for (versions 4)" in error["message"]
    assert both.rows(both.lake) == before


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["rows", "versions"])
def test_columns_that_others_dropped_come_back_by_a_rebuild(mode: str, twins: Callable[..., Twins], spark: SparkSession) -> None:
    both = twins(MODES[mode])
    # It drops our properties too.
    spark.sql(f"CREATE OR REPLACE TABLE {both.table} USING delta AS SELECT id FROM {both.table}")
    both.forget_older_files()
    both.step(*FILES[2])
    assert both.are_equal
    both.step(sqlserver("d", commit=8, before=row(1, "b")))
    assert both.are_equal


@pytest.mark.deep
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (replace(MODES["versions"], scd_columns=ScdColumns()), "was made with scd_columns"),
        (ROWS, "was made as scd2"),
    ],
)
def test_a_rebuild_gives_the_table_no_other_names_or_mode(
    asked: CdcFlow, words: str, twins: Callable[[CdcFlow], Twins], spark: SparkSession
) -> None:
    both = twins(MODES["versions"])
    to_an_older_version(spark, both.table)
    both.forget_older_files()
    before, was = both.rows(both.lake), version(spark, both.lake)
    both.lands(*FILES[2])
    error = failure(both.apply_to(both.archive, both.lake, flows={TOPIC: asked}, may_fail=True))
    assert (error["type"], words in error["message"]) == ("TableModeError", True), error
    assert (both.rows(both.lake), version(spark, both.lake)) == (before, was)
    assert both.left_over == []
    both.apply_to(both.archive, both.untouched, flows={TOPIC: both.flow})
    both.apply()
    assert both.are_equal
