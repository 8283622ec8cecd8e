"""A truncate takes the rows of the table that it names; a snapshot takes rows only where it is proven to be whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.policies import OnLogWentBack, OnSnapshot
from tests.conftest import Apply
from tests.support.events import Record, mariadb, numbered, write_records
from tests.support.life_story import FIRST, SECOND, TOPIC, Story, change, of_table, read, snapshot, truncate, updates
from tests.support.tables import read_rows


@pytest.fixture
def story(tmp_path: Path, apply: Apply, spark: SparkSession) -> Story:
    return Story(tmp_path, apply, spark)


def test_a_truncate_of_one_of_several_tables_in_a_topic_leaves_the_others_alone(story: Story) -> None:
    story.apply(
        of_table(change("c", 1, "one", at=10, offset=0), "customers_1"),
        of_table(change("c", 1, "two", at=11, offset=1), "customers_2"),
    )
    story.apply(truncate(at=20, offset=2, table="customers_1"))

    rows = read_rows(story._spark, str(story.lake), TOPIC).rows
    assert [(each["__dbz__physicalTableIdentifier"], each["name"]) for each in rows] == [("pg.public.customers_2", "two")]
    # A late event of the other table is no victim of it.
    story.apply(of_table(change("c", 2, "late", at=12, offset=3), "customers_2"), on_log_went_back=OnLogWentBack.ACCEPT)
    assert len(read_rows(story._spark, str(story.lake), TOPIC).rows) == 2


def test_a_truncate_stops_where_the_table_of_a_row_is_not_known(story: Story) -> None:
    one = change("c", 1, "one", at=10, offset=0)
    two = change("c", 2, "two", at=11, offset=1)
    two["value"]["source"]["table"] = "others"
    story.apply(one, two)

    error = story.error(truncate(at=20, offset=2))

    assert error["type"] == "TruncateRefusedError"
    assert "table_column" in error["next_step"]
    story.apply(table_column="name")
    # The rows' names are no table's name: none of them is one of the truncated table.
    assert story.rows == {1: "one", 2: "two"}


@pytest.mark.parametrize(
    "policy", [OnSnapshot.AUTO, *(pytest.param(each, marks=pytest.mark.deep) for each in (OnSnapshot.REPLACE, OnSnapshot.KEEP))]
)
def test_a_blocking_snapshot_that_read_only_some_rows_removes_none_by_default(story: Story, policy: OnSnapshot) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), change("u", 1, "x", at=20, offset=5))

    batch = story.apply(*snapshot({2: "B", 3: "C"}, at=30, first=6, blocking=True), on_snapshot=policy)

    if policy is OnSnapshot.REPLACE:
        assert story.rows == {2: "B", 3: "C"}
        assert batch.rows_unconfirmed is None
    else:
        assert story.rows == {1: "x", 2: "B", 3: "C", 4: "d", 5: "e"}
        assert batch.rows_unconfirmed == 3


@pytest.mark.deep
def test_a_blocking_snapshot_that_comes_first_in_another_life_of_its_topic_removes_nothing(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), *updates(20, keys=[1], at=20, first=5))

    batch = story.apply(*snapshot({2: "B", 3: "C"}, at=100, first=0, blocking=True), change("u", 2, "BB", at=110, offset=2))

    assert story.rows == {1: "u19", 2: "BB", 3: "C", 4: "d", 5: "e"}
    assert batch.rows_unconfirmed == 3
    assert batch.reach.partitions == {"65536"}


def test_a_snapshot_whose_rows_were_kept_removes_them_once_the_flow_declares_it(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0))
    story.apply(*snapshot({2: "B", 3: "C"}, at=30, first=5, blocking=True))
    assert len(story.rows) == 5

    batch = story.apply(change("u", 2, "x", at=40, offset=7), on_snapshot=OnSnapshot.REPLACE)

    assert story.rows == {2: "x", 3: "C"}
    assert batch.rows.deleted == 3


@pytest.mark.parametrize("policy", [OnSnapshot.AUTO, pytest.param(OnSnapshot.KEEP, marks=pytest.mark.deep)])
def test_a_snapshot_by_debezium_1_whose_last_read_is_of_another_table_has_ended_once_changes_follow_it(
    story: Story, policy: OnSnapshot
) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), change("u", 1, "x", at=20, offset=5))
    unmarked = [read(key, name, at=100, offset=6 + place) for place, (key, name) in enumerate(SECOND.items())]

    batch = story.apply(*unmarked, on_snapshot=policy)
    assert (batch.rows_unconfirmed, batch.replaced_by, story.rows) == (None, None, {**SECOND, 4: "d"})
    batch = story.apply(change("u", 1, "y", at=110, offset=10), on_snapshot=policy)

    if policy is OnSnapshot.KEEP:
        assert (batch.rows_unconfirmed, story.rows) == (1, {**SECOND, 1: "y", 4: "d"})
        batch = story.apply(change("u", 1, "z", at=120, offset=11), on_snapshot=OnSnapshot.REPLACE)
    assert batch.replaced_by is not None
    assert story.rows == {**SECOND, 1: "z" if policy is OnSnapshot.KEEP else "y"}


def test_a_later_snapshot_stops_a_flow_that_declares_it(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0))

    error = story.error(*snapshot(SECOND, at=30, first=5), on_snapshot=OnSnapshot.STOP)

    assert error["type"] == "SnapshotRefusedError"
    assert story.rows == FIRST
    story.apply(on_snapshot=OnSnapshot.KEEP)
    assert story.rows == {**FIRST, **SECOND}


@pytest.mark.parametrize("scd", [1, pytest.param(2, marks=pytest.mark.deep)])
def test_a_partition_without_reads_keeps_what_it_holds_behind_the_snapshot(story: Story, scd: int) -> None:
    kept = {"stored_as_scd_type": scd}
    story.apply(*snapshot({1: "a"}, at=10, first=0, partition=1), change("c", 2, "a", at=20, offset=0, partition=0), **kept)

    # The second snapshot reads no row of partition 0, where a row came behind it, below its position.
    story.apply(*snapshot({1: "b"}, at=100, first=1, partition=1), change("c", 4, "new", at=90, offset=1, partition=0), **kept)
    later = [change("u", 1, "c", at=110, offset=2, partition=1), change("u", 4, "newer", at=120, offset=2, partition=0)]
    story.apply(*later, **kept)

    assert story.rows == {1: "c", 4: "newer"}


@pytest.mark.deep
def test_rows_of_a_partition_that_was_added_behind_a_snapshot_of_the_same_microbatch_stay(story: Story) -> None:
    # Key 1 was read in partition 0 and lies in partition 1 since; offsets of the two have nothing to do with each other.
    story.apply(*snapshot(FIRST, at=10, first=0))
    behind = [change("u", 1, "AA", at=41, offset=1, partition=1), change("c", 7, "seven", at=42, offset=2, partition=1)]
    more = [change("u", 6, f"six {number}", at=43 + number, offset=3 + number, partition=1) for number in range(6)]
    six = change("c", 6, "six", at=40, offset=0, partition=1)
    story.apply(*snapshot({1: "A", 2: "B"}, at=30, first=5), six, *behind, *more, change("u", 2, "BB", at=60, offset=7))

    assert story.rows == {1: "AA", 2: "BB", 6: "six 5", 7: "seven"}


@pytest.mark.deep
def test_an_unfinished_third_snapshot_does_not_bring_back_what_the_second_did_not_find(story: Story) -> None:
    first = [*snapshot({1: "a", 2: "b"}, at=10, first=0), change("u", 2, "x", at=20, offset=2)]
    story.apply(*first)
    story.apply(*snapshot({1: "A"}, at=30, first=3), change("u", 1, "B", at=40, offset=4))
    assert story.rows == {1: "B"}

    story.apply(read(1, "C", at=50, offset=5, marker="first"))
    story.apply(*[{**event, "offset": event["offset"] + 6} for event in first])

    assert story.rows == {1: "C"}


@pytest.mark.deep
def test_a_rejected_read_leaves_a_snapshot_without_proof(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0))
    broken = read(5, "E", at=30, offset=7)
    broken["key"], broken["value"]["after"]["id"] = {"id": None}, None

    reads = snapshot({1: "A", 2: "B"}, at=30, first=5)
    batch = story.apply(*reads[:1], broken, {**reads[1], "offset": 6}, change("u", 1, "x", at=40, offset=8))

    assert story.rows == {1: "x", 2: "B", 3: "c", 4: "d", 5: "e"}
    assert batch.rejects == {"missing_key": 1}
    assert batch.snapshot is not None
    assert "rejected" in str(batch.snapshot.doubt)


def test_offsets_that_are_missing_in_a_snapshot_leave_it_without_proof(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0))

    story.lands(read(1, "A", at=30, offset=5))
    late = read(2, "B", at=30, offset=6)
    story.lands(read(3, "C", at=30, offset=7, marker="last"), change("u", 1, "x", at=40, offset=8))
    story.apply()
    assert story.rows == {1: "x", 2: "b", 3: "C", 4: "d", 5: "e"}

    story.apply(late)
    assert story.rows == {1: "x", 2: "B", 3: "C"}


@pytest.mark.deep
@pytest.mark.parametrize(("changes", "first"), [(20, 0), (0, 5)], ids=["a topic created again", "the same topic"])
def test_a_snapshot_whose_first_reads_are_not_archived_yet_removes_no_row(story: Story, changes: int, first: int) -> None:
    # Found by the deep run of living histories: what the archive holds of a partition began behind the reads that came last.
    story.apply(*snapshot(FIRST, at=10, first=0), *updates(changes, keys=[1], at=20, first=5))
    before = story.rows
    missing, *reads = snapshot(SECOND, at=100, first=first)

    story.apply(*reads, change("u", 2, "BB", at=110, offset=first + 4))
    assert story.rows == {**before, **SECOND, 1: before[1], 2: "BB"}

    batch = story.apply(missing)
    assert story.rows == {**SECOND, 2: "BB"}
    assert batch.rows.deleted == 1


@pytest.mark.deep
def test_a_partition_that_is_new_in_a_topic_s_second_life_does_not_hold_up_the_proof_of_its_snapshot(story: Story) -> None:
    # Found by the deep run of living histories: the new partition's offsets begin behind the snapshot, in the first lane of their own.
    story.lands(*snapshot(FIRST, at=10, first=0), *updates(20, keys=[1], at=20, first=5))
    story.lands(*snapshot(SECOND, at=100, first=0), change("u", 2, "BB", at=110, offset=4))
    story.lands(change("c", 6, "f", at=120, offset=0, partition=1))

    batch = story.apply()

    assert story.rows == {**SECOND, 2: "BB", 6: "f"}
    assert batch.rows_unconfirmed is None
    assert batch.reach.partitions >= {"65536", "1"}


def test_a_column_named_as_the_gtid_proves_nothing(tmp_path: Path, apply: Apply, spark: SparkSession) -> None:
    """Without GTIDs a blocking snapshot's reads look like an initial one's, and a blocking snapshot may be filtered."""

    def event(op: str, number: int, position: int, marker: str = "false") -> Record:
        made = mariadb(
            op, position=position, after={"id": number, "gtid": "a column"}, topic="my.shop.orders", partition=0, key={"id": number}
        )
        made["value"]["source"]["snapshot"] = marker
        return made

    rounds = [[event("c", number, number) for number in (1, 2, 3)], [event("r", 2, 10, "last")], [event("u", 2, 20)]]
    records = numbered([each for made in rounds for each in made])
    for number, made in enumerate(rounds):
        write_records(tmp_path / "archive" / f"{number}.jsonl", [records.pop(0) for _ in made])
        apply(tmp_path / "archive", tmp_path / "lake")
    assert [row["id"] for row in read_rows(spark, str(tmp_path / "lake"), "my.shop.orders").rows] == [1, 2, 3]
