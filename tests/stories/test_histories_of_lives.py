"""Versions, change logs and tables without a key know physical tables, snapshots and epochs as current tables do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.policies import OnLogWentBack, OnSnapshot, WriteDisposition
from airflow_cdc.model.look.snapshot_state import snapshot_state
from tests.conftest import Apply
from tests.support.events import Record
from tests.support.life_story import FIRST, SECOND, TOPIC, Story, change, of_table, read, snapshot, truncate
from tests.support.tables import read_rows

VERSIONS = {"stored_as_scd_type": 2}
LOG = {"write_disposition": WriteDisposition.APPEND}
TABLE = "__dbz__physicalTableIdentifier"


@pytest.fixture
def story(tmp_path: Path, apply: Apply, spark: SparkSession) -> Story:
    return Story(tmp_path, apply, spark)


def history(story: Story) -> list[dict[str, Any]]:
    return read_rows(story._spark, str(story.lake), TOPIC, history=True).rows


def versions(story: Story) -> list[tuple[str, int | None]]:
    """Return each version's name, and the position at which it ended."""
    return [(row["name"], row["__cdc_end_position"] and int(row["__cdc_end_position"]["commit"])) for row in history(story)]


def named(event: Record, table: str) -> Record:
    """Return the event of one of several tables that a column of the rows distinguishes."""
    value = {**event["value"], "source": {**event["value"]["source"], "table": table}}
    value |= {image: {**value[image], "shard": table} for image in ("before", "after") if value[image]}
    return {**event, "value": value}


def two_tables(*, first: int = 0) -> list[Record]:
    return [of_table(change("c", 1, table, at=10 + place, offset=first + place), table) for place, table in enumerate(("t_1", "t_2"))]


@pytest.mark.deep
def test_a_truncate_of_one_of_several_tables_ends_the_versions_of_that_one(story: Story) -> None:
    story.apply(*two_tables(), **VERSIONS)
    story.apply(truncate(at=20, offset=5, table="t_1"), **VERSIONS)
    assert sorted(versions(story)) == [("t_1", 20), ("t_2", None)]

    late = [of_table(change("c", 2, f"late {table}", at=12 + place, offset=2 + place), table) for place, table in enumerate(("t_1", "t_2"))]
    story.apply(*late, of_table(change("c", 1, "again", at=30, offset=6), "t_1"), **VERSIONS)
    assert sorted(versions(story)) == [("again", None), ("late t_1", 20), ("late t_2", None), ("t_1", 20), ("t_2", None)]


@pytest.mark.deep
def test_a_key_that_went_to_another_table_is_not_ended_by_the_truncate_of_the_first(story: Story) -> None:
    settings = {**VERSIONS, "table_column": "shard"}
    created = [named(change("c", key, "a", at=10 + key, offset=key), "t_1") for key in (1, 2, 3)]
    # The image of the delete holds a filler where the table's name was.
    gone = named(change("d", 3, "", at=16, offset=6), "")
    story.apply(*created, named(change("u", 2, "b", at=15, offset=5), "t_2"), gone, **settings)

    story.apply(truncate(at=20, offset=7, table="t_1"), **settings)

    assert versions(story) == [("a", 20), ("a", 15), ("b", None), ("a", 16)]


@pytest.mark.deep
def test_one_statement_that_truncates_two_tables_ends_the_versions_of_both(story: Story) -> None:
    other = of_table(change("c", 1, "t_3", at=12, offset=2), "t_3")
    story.apply(*two_tables(), other, **VERSIONS)
    statement = [truncate(at=20, offset=3 + place, table=table) for place, table in enumerate(("t_1", "t_2"))]

    batch = story.apply(*statement, **VERSIONS)

    assert (batch.events.merged, batch.events.redelivered) == (2, 0)
    assert sorted(versions(story)) == [("t_1", 20), ("t_2", 20), ("t_3", None)]


@pytest.mark.deep
def test_truncates_of_several_tables_stand_in_the_change_log_with_their_tables_once(story: Story) -> None:
    statement = [truncate(at=20, offset=3 + place, table=table) for place, table in enumerate(("t_1", "t_2"))]
    story.apply(*two_tables(), statement[0], **LOG)
    batch = story.apply(*statement, of_table(change("c", 1, "again", at=30, offset=5), "t_2"), **LOG)

    assert (batch.events.merged, batch.events.stale) == (2, 1)
    truncates = sorted((row["__cdc_op"], row[TABLE], row["id"]) for row in history(story) if row["__cdc_op"] == "t")
    assert truncates == [("t", "pg.public.t_1", None), ("t", "pg.public.t_2", None)]
    again = story.apply(*two_tables(first=6), *statement, **LOG)
    assert again.events.merged == 0
    assert len(history(story)) == 5


@pytest.mark.deep
def test_a_change_log_records_the_table_of_a_truncate_in_the_column_that_the_flow_names(story: Story) -> None:
    settings = {**LOG, "table_column": "shard"}
    story.apply(*[named(change("c", key, "a", at=10 + key, offset=key), f"t_{key}") for key in (1, 2)], **settings)
    story.apply(truncate(at=20, offset=3, table="t_2"), **settings)

    assert [row["shard"] for row in history(story) if row["__cdc_op"] == "t"] == ["t_2"]


@pytest.mark.deep
@pytest.mark.parametrize(("settings", "way"), [(VERSIONS, "table_column"), (LOG, "table_column"), ({}, "keys, which a table without")])
def test_a_truncate_stops_a_history_in_which_the_table_of_a_row_is_not_known(story: Story, settings: dict[str, Any], way: str) -> None:
    events = [named(change("c", key, "a", at=10 + key, offset=key), f"t_{key}") for key in (1, 2)]
    keyless = [{**event, "key": None} for event in events]
    story.apply(*(events if settings else keyless), **settings)

    error = story.error(truncate(at=20, offset=3, table="t_1"), **settings)

    assert error["type"] == "TruncateRefusedError"
    assert way in error["next_step"]
    assert len(history(story)) == 2


@pytest.mark.deep
def test_a_table_that_comes_later_gives_no_row_back_that_a_truncate_took(story: Story) -> None:
    story.apply(change("c", 1, "a", at=10, offset=0), change("c", 2, "b", at=11, offset=1), **VERSIONS)
    story.apply(truncate(at=20, offset=2), **VERSIONS)

    other = change("c", 1, "other", at=30, offset=3)
    other["value"]["source"]["table"] = "others"
    story.apply(other, **VERSIONS)

    assert versions(story) == [("a", 20), ("other", None), ("b", 20)]


@pytest.mark.deep
def test_a_snapshot_of_one_of_several_tables_ends_the_versions_of_that_one(story: Story) -> None:
    created = [of_table(change("c", key, f"{table} {key}", at=10 + key, offset=4 * place + key), table)
               for place, table in enumerate(("t_1", "t_2")) for key in (1, 2)]  # fmt: skip
    story.apply(*created, **VERSIONS)
    reads = of_table(read(1, "t_1 1", at=50, offset=7, marker="last"), "t_1")

    story.apply(reads, of_table(change("c", 3, "new", at=60, offset=8), "t_2"), **VERSIONS)

    assert sorted(versions(story)) == [("new", None), ("t_1 1", None), ("t_1 2", 50), ("t_2 1", None), ("t_2 2", None)]


@pytest.mark.deep
@pytest.mark.parametrize("scd", [1, 2])
@pytest.mark.parametrize("policy", [OnSnapshot.AUTO, OnSnapshot.REPLACE, OnSnapshot.KEEP])
def test_versions_that_a_blocking_snapshot_did_not_find_are_counted_as_rows_are(story: Story, policy: OnSnapshot, scd: int) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), change("u", 1, "x", at=20, offset=5), stored_as_scd_type=scd)
    # One of the rows that it found is as it was: no version begins.
    reads = snapshot({2: "b", 3: "C"}, at=30, first=6, blocking=True)

    batch = story.apply(*reads, change("d", 4, "d", at=40, offset=8), on_snapshot=policy, stored_as_scd_type=scd)

    if policy is OnSnapshot.REPLACE:
        assert story.rows == {2: "b", 3: "C"}
        assert batch.rows_unconfirmed is None
    else:
        assert story.rows == {1: "x", 2: "b", 3: "C", 5: "e"}
        assert batch.rows_unconfirmed == 2
        assert batch.snapshot is not None
        assert batch.snapshot.unconfirmed == 2


@pytest.mark.deep
@pytest.mark.parametrize("settings", [{}, VERSIONS, LOG], ids=["rows", "versions", "change log"])
def test_a_later_snapshot_stops_every_kind_of_table_that_declares_it(story: Story, settings: dict[str, Any]) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), **settings, on_snapshot=OnSnapshot.STOP)

    error = story.error(*snapshot(SECOND, at=30, first=5), **settings, on_snapshot=OnSnapshot.STOP)

    assert error["type"] == "SnapshotRefusedError"
    assert len(history(story)) == len(FIRST)
    story.apply(**settings, on_snapshot=OnSnapshot.KEEP)
    if settings is not LOG:
        assert story.rows == {**FIRST, **SECOND}


@pytest.mark.deep
@pytest.mark.parametrize("scd", [1, 2])
def test_a_read_that_loses_against_another_partition_leaves_a_snapshot_without_proof(story: Story, scd: int) -> None:
    settings: dict[str, Any] = {"stored_as_scd_type": scd}
    story.apply(change("c", 1, "a", at=10, offset=0), change("c", 2, "b", at=11, offset=1), **settings)
    story.apply(change("c", 3, "c", at=12, offset=0, partition=1), change("u", 1, "newer", at=100, offset=2), **settings)

    # Key 1 was in partition 0; its read comes by partition 1, at a lower position.
    reads = [read(1, "A", at=90, offset=1, partition=1, marker="first"), read(3, "C", at=90, offset=2, partition=1, marker="last")]
    batch = story.apply(*reads, **settings)
    story.apply(change("u", 1, "newest", at=110, offset=3), change("u", 3, "d", at=111, offset=3, partition=1), **settings)

    assert story.rows == {1: "newest", 2: "b", 3: "d"}
    assert batch.snapshot is not None
    assert "lost" in str(batch.snapshot.doubt)


@pytest.mark.deep
@pytest.mark.parametrize("scd", [1, 2])
def test_a_snapshot_is_proven_by_a_microbatch_that_holds_a_copy_alone(story: Story, scd: int) -> None:
    settings: dict[str, Any] = {"stored_as_scd_type": scd}
    story.apply(*snapshot({1: "a", 2: "b", 3: "c", 4: "d"}, at=10, first=0), change("d", 4, "d", at=20, offset=4), **settings)
    # An offset is missing between the reads.
    story.apply(read(1, "A", at=30, offset=5), read(3, "C", at=30, offset=7, marker="last"), **settings)
    assert story.rows == {1: "A", 2: "b", 3: "C"}

    batch = story.apply(*[change("d", 4, "d", at=20, offset=offset) for offset in (6, 8)], **settings)

    assert batch.replaced_by is not None
    assert story.rows == {1: "A", 3: "C"}


@pytest.mark.deep
@pytest.mark.parametrize("settings", [VERSIONS, LOG], ids=["versions", "change log"])
def test_a_history_of_a_restored_source_goes_on_from_a_snapshot_that_lies_in_a_file_of_its_own(
    story: Story, settings: dict[str, Any]
) -> None:
    story.apply(*snapshot(FIRST, at=1000, first=0), change("u", 1, "x", at=1010, offset=5), **settings)
    batch = story.apply(*snapshot(SECOND, at=10, first=6), **settings)
    assert batch.epochs.begins == {"0": ((6, 1),)}

    batch = story.apply(change("u", 3, "again", at=20, offset=10), **settings)

    assert batch.epochs.begins == {"0": ((6, 1),)}
    if settings is VERSIONS:
        assert story.rows == {**SECOND, 3: "again"}
    else:
        assert len(history(story)) == 11
        found = snapshot_state(archive=str(story.archive), lake_fs=fsspec.filesystem("file"), lake_root=str(story.lake), tables=())
        assert found.complete == (TOPIC,)


def keyless(*events: Record) -> list[Record]:
    return [{**event, "key": None} for event in events]


def names(story: Story) -> list[str]:
    return sorted(row["name"] for row in read_rows(story._spark, str(story.lake), TOPIC).rows)


@pytest.mark.deep
def test_a_later_snapshot_stops_a_table_without_a_key_that_declares_it(story: Story) -> None:
    story.apply(*keyless(*snapshot({1: "a", 2: "b"}, at=10, first=0)), on_snapshot=OnSnapshot.STOP)

    error = story.error(*keyless(*snapshot({1: "A", 3: "C"}, at=30, first=2)), on_snapshot=OnSnapshot.STOP)

    assert error["type"] == "SnapshotRefusedError"
    assert names(story) == ["a", "b"]
    story.apply(on_snapshot=OnSnapshot.REPLACE)
    assert names(story) == ["A", "C"]


@pytest.mark.deep
@pytest.mark.parametrize("policy", [OnSnapshot.AUTO, pytest.param(OnSnapshot.REPLACE, marks=pytest.mark.deep)])
def test_rows_without_a_key_that_a_blocking_snapshot_did_not_find_are_counted_and_those_that_it_read_are_there(
    story: Story, policy: OnSnapshot
) -> None:
    equal = [read(1, "a", at=10, offset=place, marker="true") for place in range(3)]
    story.apply(*keyless(*equal, read(2, "b", at=10, offset=3, marker="last")))

    reads = [read(1, "a", at=30, offset=4, blocking=True, marker="first"), read(3, "c", at=30, offset=5, blocking=True, marker="last")]
    batch = story.apply(*keyless(*reads), on_snapshot=policy)

    if policy is OnSnapshot.REPLACE:
        assert names(story) == ["a", "c"]
        assert batch.rows_unconfirmed is None
    else:
        assert names(story) == ["a", "a", "a", "b", "c"]
        assert batch.rows_unconfirmed == 3


@pytest.mark.deep
def test_a_table_without_a_key_of_a_restored_source_is_counted_from_its_snapshot(story: Story) -> None:
    story.apply(*keyless(*snapshot({1: "a", 2: "b"}, at=1000, first=0), change("c", 3, "c", at=1010, offset=2)))
    story.apply(*keyless(*snapshot({1: "a", 4: "d"}, at=10, first=3)))
    assert names(story) == ["a", "d"]

    batch = story.apply(*keyless(change("c", 5, "e", at=20, offset=5)), on_log_went_back=OnLogWentBack.STOP)

    assert names(story) == ["a", "d", "e"]
    assert batch.epochs.begins == {"0": ((3, 1),)}
