"""Topics, partitions and logs have lives: a row goes only by an event, or by a snapshot that is proven to be whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnLogWentBack, OnRepeatedOffsets
from airflow_cdc.model.report.batch_report import RowCounts
from airflow_cdc.pipeline.repair.reprocess import Reprocessing, reprocess
from tests.conftest import Apply
from tests.support.life_story import FIRST, SECOND, TOPIC, Story, change, read, snapshot, updates


@pytest.fixture
def story(tmp_path: Path, apply: Apply, spark: SparkSession) -> Story:
    return Story(tmp_path, apply, spark)


@pytest.mark.parametrize("in_one_file", [pytest.param(True, marks=pytest.mark.deep), False])
def test_a_topic_that_was_made_anew_gives_the_rows_of_its_new_snapshot(story: Story, *, in_one_file: bool) -> None:
    first = [*snapshot(FIRST, at=10, first=0), *updates(20, keys=FIRST, at=20, first=5)]
    second = snapshot(SECOND, at=100, first=0)
    if in_one_file:
        batch = story.apply(*first, *second)
        assert batch.replaced_by is not None
    else:
        story.apply(*first)
        batch = story.apply(*second)
        assert batch.rows.deleted == 1

    assert story.rows == SECOND
    assert batch.events.stale == 0
    # Offsets of the two lives are complete, each for itself.
    assert (batch.offsets.missing, batch.offsets.repeated) == (0, 0)


@pytest.mark.deep
def test_a_topic_s_new_life_goes_on_without_its_offsets_being_compared_again(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), *updates(20, keys=FIRST, at=20, first=5))
    story.apply(*snapshot(SECOND, at=100, first=0))

    story.apply(change("u", 1, "new", at=110, offset=4))
    story.apply(change("d", 2, "B", at=120, offset=5))
    story.apply(change("u", 1, "newer", at=130, offset=6))

    assert story.rows == {1: "newer", 3: "C", 5: "E"}


@pytest.mark.deep
def test_a_file_that_comes_twice_is_a_redelivery_and_no_new_life(story: Story) -> None:
    records = [*snapshot(FIRST, at=10, first=0), change("d", 1, "a", at=20, offset=5)]
    story.apply(*records)

    batch = story.apply(*records)

    assert story.rows == {2: "b", 3: "c", 4: "d", 5: "e"}
    assert (batch.events.stale, batch.events.superseded) == (5, 1)
    assert batch.offsets.repeated == 6


def test_other_records_at_known_offsets_stop_the_flow_where_their_order_is_not_known(story: Story) -> None:
    story.apply(change("c", 1, "a", at=10, offset=0, sent=50), change("c", 2, "b", at=20, offset=1, sent=70))

    error = story.error(change("c", 3, "c", at=15, offset=0, sent=60))

    assert error["type"] == "LifeUnknownError"
    assert "002.jsonl" in error["message"]
    assert "on_repeated_offsets" in error["next_step"]
    assert story.rows == {1: "a", 2: "b"}
    story.apply(on_repeated_offsets=OnRepeatedOffsets.NEW_LIFE, on_log_went_back=OnLogWentBack.ACCEPT)
    assert story.rows == {1: "a", 2: "b", 3: "c"}


@pytest.mark.deep
def test_offsets_that_come_again_after_their_file_has_gone_stop_the_flow(story: Story) -> None:
    gone = story.lands(change("c", 1, "a", at=10, offset=0))
    story.apply()
    gone.unlink()

    error = story.error(change("c", 1, "a", at=10, offset=0))

    assert error["type"] == "LifeUnknownError"
    assert "no longer in the archive" in error["message"]
    batch = story.apply(on_repeated_offsets=OnRepeatedOffsets.REDELIVERY)
    assert batch.events.stale == 1


@pytest.mark.deep
def test_a_new_life_is_known_by_its_positions_where_its_offsets_were_never_archived(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=1000), *updates(5, keys=FIRST, at=20, first=1005))

    story.apply(*snapshot(SECOND, at=100, first=0))
    assert story.rows == SECOND

    # A file of the first life that comes late stands at lower positions, and changes nothing of this.
    assert story.apply(change("u", 4, "late", at=15, offset=500)).rows.inserted == 0
    story.apply(change("u", 1, "newer", at=110, offset=4))
    assert story.rows == {**SECOND, 1: "newer"}


def test_reads_above_the_first_transaction_are_no_new_life_if_their_file_comes_late(story: Story) -> None:
    """PostgreSQL's first transaction stands at its own LSNs, which may be below those of reads that came before it."""
    first = [change("u", 1, "low", at=12, offset=2, sent=30), change("d", 2, "b", at=13, offset=3, sent=31)]
    for event in first:
        event["value"]["source"]["sequence"] = f'[null,"{event["value"]["source"]["lsn"]}"]'
    story.apply(*first)

    batch = story.apply(*snapshot({1: "a", 2: "b"}, at=15, first=0, sent=20))

    assert story.rows == {1: "low"}
    assert (batch.events.stale, batch.rows.deleted) == (2, 0)


def test_reads_whose_times_do_not_show_their_life_stop_the_flow(story: Story) -> None:
    story.apply(change("u", 1, "low", at=12, offset=2, sent=20), change("u", 2, "b", at=13, offset=3, sent=40))
    error = story.error(*snapshot({1: "a", 2: "b"}, at=15, first=0, sent=30))
    assert error["type"] == "LifeUnknownError"
    assert "001.jsonl" not in error["message"]
    assert "on_repeated_offsets" in error["next_step"]


@pytest.mark.deep
def test_a_new_life_is_known_by_its_positions_where_only_reads_were_archived(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=1000))

    batch = story.apply(*snapshot(SECOND, at=100, first=0))

    assert story.rows == SECOND
    assert batch.events.stale == 0


def restored(story: Story) -> None:
    """A source that was restored once: its log went back from 1020 to 10, at offset 1012."""
    before = [
        *snapshot(FIRST, at=1000, first=1000),
        *updates(6, keys=FIRST, at=1010, first=1005),
        change("d", 3, "c", at=1020, offset=1011),
    ]
    story.apply(*before)
    story.apply(*snapshot(SECOND, at=10, first=1012, sent=2000), change("u", 1, "x", at=20, offset=1016, sent=2010))
    assert story.rows == {**SECOND, 1: "x"}


@pytest.mark.deep
def test_a_new_life_behind_a_restore_is_known_by_positions_and_times_where_its_offsets_were_never_archived(story: Story) -> None:
    restored(story)
    # A late file of the log before the restore: its positions lie above those of today.
    batch = story.apply(change("u", 2, "late", at=990, offset=500, sent=990))
    assert story.rows == {**SECOND, 1: "x"}
    assert batch.events.stale == 1

    third = {1: "i", 5: "v", 7: "vii"}
    batch = story.apply(*snapshot(third, at=100, first=0, sent=5000))

    assert batch.events.stale == 0
    assert story.rows == third
    story.apply(change("u", 7, "newer", at=110, offset=3, sent=5010))
    assert story.rows == {**third, 7: "newer"}


@pytest.mark.deep
def test_lower_offsets_behind_a_restore_stop_the_flow_where_no_time_proves_what_they_are(story: Story) -> None:
    restored(story)
    reads = snapshot({1: "i", 5: "v"}, at=100, first=0)
    for event in reads:
        del event["value"]["ts_ms"]

    error = story.error(*reads)

    assert error["type"] == "LifeUnknownError"
    for fact in ("offsets 0–1", "partition 0", "went back before", "003.jsonl"):
        assert fact in error["message"]
    assert story.rows == {**SECOND, 1: "x"}
    story.apply(on_repeated_offsets=OnRepeatedOffsets.NEW_LIFE)
    assert story.rows == {1: "i", 5: "v"}


@pytest.mark.deep
def test_a_snapshot_of_an_older_life_that_comes_late_neither_removes_nor_changes_a_row(story: Story) -> None:
    story.apply(*snapshot(SECOND, at=100, first=0, sent=900), change("u", 1, "x", at=110, offset=4, sent=910))
    assert story.rows == {**SECOND, 1: "x"}

    # Row 4 was gone when the later life's snapshot was taken.
    older = [*snapshot({1: "a", 2: "b", 4: "d"}, at=10, first=0, sent=10), change("u", 2, "late", at=20, offset=3, sent=20)]
    batch = story.apply(*older, change("u", 4, "late", at=21, offset=4, sent=21))

    assert (batch.rows.inserted, batch.rows.updated) == (0, 0)
    assert story.rows == {**SECOND, 1: "x"}


@pytest.mark.deep
def test_partitions_that_were_raised_before_a_full_snapshot_lose_no_row(story: Story) -> None:
    story.apply(*snapshot(dict.fromkeys(range(1, 7), "a"), at=10, first=0), *updates(20, keys=range(1, 7), at=20, first=6))

    reads = [
        read(
            key, "b", at=100, offset=(26 + key // 3 if key % 3 == 0 else key // 3), partition=key % 3, marker="last" if key == 6 else "true"
        )
        for key in range(1, 7)
    ]
    story.apply(*reads)

    assert story.rows == dict.fromkeys(range(1, 7), "b")


@pytest.mark.deep
def test_a_snapshot_over_two_partitions_whose_files_come_in_two_runs_deletes_no_live_row(story: Story) -> None:
    story.apply(*snapshot({1: "a", 3: "a"}, at=10, first=0, partition=1), *snapshot({2: "a", 4: "a"}, at=10, first=0, partition=0))

    story.apply(
        read(1, "b", at=100, offset=2, partition=1, marker="first"),
        read(3, "b", at=100, offset=3, partition=1),
        # Under load a snapshot's position lies above that of changes which it does not hold.
        change("u", 1, "c", at=90, offset=4, partition=1),
    )
    assert story.rows == {1: "c", 3: "b", 2: "a", 4: "a"}
    batch = story.apply(read(2, "b", at=100, offset=2, marker="last", partition=0))

    assert story.rows[1] == "c"
    assert story.rows == {1: "c", 3: "b", 2: "b", 4: "a"}
    # The archive does not go on behind it in partition 0: what it did not find stays until it does.
    assert batch.replaced_by is None
    batch = story.apply(change("u", 2, "c", at=110, offset=3, partition=0), change("u", 3, "d", at=111, offset=5, partition=1))
    assert story.rows == {1: "c", 3: "d", 2: "c"}
    assert batch.rows.deleted == 1


@pytest.mark.deep
def test_an_older_file_of_a_partition_does_not_regress_rows_that_moved_to_a_new_one(story: Story) -> None:
    story.apply(change("c", 1, "a", at=10, offset=0, partition=0))
    story.apply(change("u", 1, "newest", at=30, offset=0, partition=2))

    batch = story.apply(change("u", 1, "older", at=20, offset=1, partition=0))

    assert story.rows == {1: "newest"}
    assert batch.events.stale == 1
    # Behind the raise each partition is judged by itself again.
    assert story.apply(change("c", 4, "x", at=40, offset=2, partition=0)).merge_plan.startswith("merge")


@pytest.mark.deep
def test_where_a_router_spreads_a_key_a_late_event_of_one_partition_does_not_regress_what_another_brought(story: Story) -> None:
    story.apply(change("c", 1, "a", at=10, offset=0, partition=0), change("u", 1, "b", at=11, offset=0, partition=1))
    story.apply(change("u", 1, "newest", at=40, offset=1, partition=1), change("c", 2, "x", at=20, offset=1, partition=0))

    batch = story.apply(change("u", 1, "late", at=30, offset=2, partition=0))

    assert story.rows == {1: "newest", 2: "x"}
    assert batch.events.stale == 1


@pytest.mark.deep
@pytest.mark.parametrize("in_one_run", [True, False])
def test_a_restored_source_with_a_new_snapshot_gives_the_rows_of_that(story: Story, *, in_one_run: bool) -> None:
    before = [*snapshot(FIRST, at=1000, first=0), *updates(6, keys=FIRST, at=1010, first=5), change("d", 3, "c", at=1020, offset=11)]
    after = [*snapshot(SECOND, at=10, first=12), change("u", 3, "again", at=20, offset=16), change("c", 6, "f", at=30, offset=17)]
    if in_one_run:
        batch = story.apply(*before, *after)
    else:
        story.apply(*before)
        batch = story.apply(*after)

    assert story.rows == {1: "A", 2: "B", 3: "again", 5: "E", 6: "f"}
    assert batch.epochs.begins == {"0": ((12, 1),)}
    # What comes behind is neither late nor stale.
    assert story.apply(change("u", 6, "g", at=40, offset=18)).events.stale == 0
    assert story.rows[6] == "g"


def test_a_log_that_went_back_without_a_snapshot_stops_the_flow(story: Story) -> None:
    story.apply(*snapshot({1: "a"}, at=1000, first=0), change("d", 1, "a", at=1010, offset=1))

    error = story.error(change("c", 1, "again", at=20, offset=2))

    assert error["type"] == "SourceLogWentBackError"
    for fact in ("offset 2", "002.jsonl", "commit 20", "1010"):
        assert fact in error["message"]
    assert "on_log_went_back" in error["next_step"]
    assert story.rows == {}
    batch = story.apply(on_log_went_back=OnLogWentBack.ACCEPT)
    assert story.rows == {1: "again"}
    assert batch.events.stale == 0


@pytest.mark.deep
def test_a_log_that_went_back_inside_of_a_file_without_offsets_stops_the_flow(story: Story) -> None:
    first, *more = change("c", 1, "a", at=1000, offset=0), change("c", 2, "x", at=1010, offset=1), change("u", 1, "b", at=20, offset=2)
    story.lands(json.dumps(first["value"]), name=f"{TOPIC}+0+0000000000")
    story.apply(keys=("id",))
    story.lands(*[json.dumps(event["value"]) for event in more], name=f"{TOPIC}+0+0000000001")

    (flow,) = story._apply(
        story.archive, story.lake, flows={TOPIC: CdcFlow(TOPIC, keys=("id",), on_log_went_back=OnLogWentBack.ACCEPT)}, may_fail=True
    ).flows

    assert flow.error is not None
    assert flow.error["type"] == "SourceLogWentBackError"
    assert "no offsets" in flow.error["message"]


def test_what_a_restarted_connector_sends_again_is_a_copy_and_no_log_that_went_back(story: Story) -> None:
    sent = [change("c", 1, "a", at=10, offset=0), change("u", 1, "b", at=20, offset=1), change("d", 1, "b", at=30, offset=2)]
    story.apply(*sent)

    again = [{**event, "offset": event["offset"] + 3} for event in sent]
    batch = story.apply(*again, change("c", 2, "x", at=40, offset=6))

    assert story.rows == {2: "x"}
    assert batch.epochs.begins == {}


@pytest.mark.deep
def test_a_topic_s_second_life_read_again_changes_nothing(story: Story, spark: SparkSession) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0), *updates(20, keys=FIRST, at=20, first=5))
    story.apply(*snapshot(SECOND, at=100, first=0), change("u", 1, "x", at=110, offset=4))

    done = reprocess(Reprocessing(spark, str(story.archive), str(story.lake), TOPIC))

    assert done.found.rows == RowCounts()
    assert story.rows == {**SECOND, 1: "x"}


@pytest.mark.deep
def test_lives_and_epochs_are_plain_in_the_state(story: Story) -> None:
    story.apply(*snapshot(FIRST, at=10, first=0))
    story.apply(*snapshot(SECOND, at=100, first=0))

    intent = json.loads((story.lake / f"_cdc/flows/{TOPIC}/intents/00000002.json").read_text())
    checkpoint = json.loads((story.lake / f"_cdc/flows/{TOPIC}/checkpoint.json").read_text())
    assert intent["lives"] == {"002.jsonl": [[0, 1, 1, 0, 3]]}
    assert sorted(next(iter(checkpoint["offsets"].values()))) == ["0", "65536"]


def test_another_change_at_the_place_of_an_older_one_is_no_copy_of_it(story: Story) -> None:
    # Restored twice from one backup: the reads are the same, and the first transaction behind them has the place that another one had.
    story.apply(*snapshot(FIRST, at=10, first=0), change("u", 1, "x", at=20, offset=5), change("u", 2, "y", at=30, offset=6))

    error = story.error(*snapshot(FIRST, at=10, first=7), change("u", 1, "other", at=20, offset=12))

    assert error["type"] == "SourceLogWentBackError"
    assert story.rows == {**FIRST, 1: "x", 2: "y"}
