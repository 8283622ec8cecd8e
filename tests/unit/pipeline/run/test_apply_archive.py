"""Stories: files land, the archive is applied, the whole table is looked at."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnTruncate
from airflow_cdc.model.report.batch_report import EventCounts
from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, postgresql, sqlserver, tombstone, write_records, write_sink_file
from tests.support.tables import read_quarantine, read_rows

ANN, BEN, CAT = ({"id": number, "name": name} for number, name in ((1, "ann"), (2, "ben"), (3, "cat")))


class CrashError(BaseException):
    """The process ends."""


def rows(spark: SparkSession, lake: Path, flow: str = TOPIC) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), flow).rows


def counts(**parts: int) -> EventCounts:
    return EventCounts(**parts)


def test_a_table_follows_its_source_through_snapshot_changes_key_change_and_redelivery(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    # load 1: a snapshot
    snapshot = [sqlserver("r", commit=1, after=row) for row in (ANN, BEN)]
    write_records(archive / "1.jsonl", numbered(snapshot))
    report = apply(archive, lake)
    assert rows(spark, lake) == [ANN, BEN]
    assert report.flows[0].events == counts(read=2, merged=2)

    # load 2: an update, a key change (delete 1, tombstone, create 4 of one change), a create, a delete with its tombstone
    moved = {"id": 4, "name": "ann b."}
    changes = [
        sqlserver("u", commit=5, serial=2, before=ANN, after={"id": 1, "name": "ann b."}),
        sqlserver("d", commit=6, serial=1, before={"id": 1, "name": "ann b."}),
        tombstone({"id": 1}),
        sqlserver("c", commit=6, serial=2, after=moved),
        sqlserver("c", commit=7, after=CAT),
        sqlserver("d", commit=8, before=BEN),
        tombstone({"id": 2}),
    ]
    write_records(archive / "2.jsonl.gz", numbered(changes, first=2))
    report = apply(archive, lake)
    assert rows(spark, lake) == [CAT, moved]
    assert report.flows[0].events == counts(read=7, merged=4, superseded=1, tombstones=2)
    assert vars(report.flows[0].rows) == {"inserted": 2, "updated": 0, "deleted": 2}
    (batch,) = report.flows[0].batches
    assert list(batch.stage_seconds) == ["stage", "target", "delete_markers", "merge", "count"]
    assert sum(batch.stage_seconds.values()) == pytest.approx(batch.seconds, abs=0.01)

    # load 3: the connector restarted and sent the second half of load 2 again; then a deleted key is born anew
    again = numbered(changes[3:], first=9)
    reborn = {"id": 2, "name": "ben again"}
    write_records(archive / "3.jsonl", [*again, *numbered([sqlserver("c", commit=9, after=reborn)], first=13)])
    report = apply(archive, lake)
    assert rows(spark, lake) == [reborn, CAT, moved]
    assert report.flows[0].events == counts(read=5, merged=1, superseded=1, stale=2, tombstones=1)


@pytest.mark.deep
def test_applying_twice_makes_no_new_table_version(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN), sqlserver("d", commit=2, before=BEN)]))
    apply(archive, lake)
    before = summarize_flows(spark, str(lake))

    report = apply(archive, lake)

    assert [flow.status.value for flow in report.flows] == ["up_to_date"]
    assert summarize_flows(spark, str(lake)) == before


def test_late_events_neither_regress_a_row_nor_bring_a_deleted_one_back(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    newest = [
        sqlserver("u", commit=20, serial=2, before=ANN, after={"id": 1, "name": "newest"}),
        sqlserver("d", commit=21, before=BEN),
    ]
    write_records(archive / "b.jsonl", numbered(newest, first=10))
    apply(archive, lake)

    late = [sqlserver("c", commit=10, after=ANN), sqlserver("c", commit=11, after=BEN), sqlserver("c", commit=12, after=CAT)]
    write_records(archive / "a.jsonl", numbered(late))
    report = apply(archive, lake)

    assert rows(spark, lake) == [{"id": 1, "name": "newest"}, CAT]
    assert report.flows[0].events == counts(read=3, merged=1, stale=2)
    assert report.flows[0].batches[0].merge_plan == "guarded merge: late events (copy-on-write, 0 of 1 files)"


@pytest.mark.deep
def test_delete_markers_that_a_crash_left_twice_count_once(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    deletes = [sqlserver("d", commit=20, before=BEN), sqlserver("d", commit=21, before=CAT)]
    write_records(archive / "b.jsonl", numbered([sqlserver("c", commit=19, after=ANN), *deletes], first=10))

    def crash(effect: str) -> None:
        if effect == "delete_markers":
            raise CrashError(effect)

    with pytest.raises(CrashError):
        apply(archive, lake, after_effect=crash)
    apply(archive, lake)
    markers = spark.read.format("delta").load(str(lake / "_cdc" / "flows" / TOPIC / "delete_markers"))
    assert sorted(row["id"] for row in markers.collect()) == [2, 2, 3, 3]

    # One before the delete of its key, one before what its row has, and one behind the delete of its key in the same transaction.
    late = [sqlserver("c", commit=10, after=BEN), sqlserver("u", commit=11, after=ANN), sqlserver("c", commit=21, serial=2, after=CAT)]
    write_records(archive / "c.jsonl", numbered(late, first=3))
    report = apply(archive, lake)

    assert rows(spark, lake) == [ANN, CAT]
    assert report.flows[0].events == counts(read=3, merged=1, stale=2)
    assert vars(report.flows[0].rows) == {"inserted": 1, "updated": 0, "deleted": 0}


def test_a_truncate_removes_what_was_before_it_and_shields_the_table_from_late_events(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    topic = "pg.public.customers"
    truncate = postgresql("t", commit=30, change=31, key=None, topic=topic)
    truncate["key"] = None
    write_records(archive / "1.jsonl", numbered([postgresql("c", commit=None, change=10, after=ANN)]))
    apply(archive, lake)

    in_one_batch = [
        postgresql("c", commit=20, change=21, after=BEN),
        truncate,
        postgresql("c", commit=40, change=41, after=CAT),
    ]
    write_records(archive / "2.jsonl", numbered(in_one_batch, first=1))
    report = apply(archive, lake)
    assert rows(spark, lake, topic) == [CAT]
    assert report.flows[0].events == counts(read=3, merged=2, superseded=1)
    assert report.flows[0].rows.deleted == 1

    write_records(archive / "3.jsonl", numbered([postgresql("c", commit=25, change=26, after=ANN)], first=4))
    report = apply(archive, lake)
    assert rows(spark, lake, topic) == [CAT]
    assert report.flows[0].events == counts(read=1, stale=1)


@pytest.mark.parametrize(("policy", "left"), [pytest.param(OnTruncate.IGNORE, [ANN], marks=pytest.mark.deep), (OnTruncate.FAIL, [ANN])])
def test_the_flow_declares_what_a_truncate_does(
    policy: OnTruncate, left: list[Any], apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    topic = "pg.public.customers"
    flows = {topic: CdcFlow(topic, on_truncate=policy)}
    write_records(archive / "1.jsonl", numbered([postgresql("c", commit=None, change=10, after=ANN)]))
    apply(archive, lake, flows=flows)
    truncate = {**postgresql("t", commit=30, change=31), "key": None}
    write_records(archive / "2.jsonl", numbered([truncate], first=1))

    report = apply(archive, lake, flows=flows, may_fail=True)

    assert rows(spark, lake, topic) == left
    if policy is OnTruncate.FAIL:
        assert report.flows[0].error
        assert report.flows[0].error["type"] == "TruncateRefusedError"
    else:
        assert report.flows[0].events == counts(read=1, control=1)


def test_bad_records_go_to_the_quarantine_with_reason_and_place_and_the_good_ones_are_merged(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    good = numbered(
        [sqlserver("c", commit=1, after={"id": 1, "n": 1, "b": True}), sqlserver("c", commit=2, after={"id": 2, "n": 2, "b": None})]
    )
    no_key = sqlserver("c", commit=3, after={"id": 3, "n": 3, "b": None}, key={"id": None}, offset=2)
    no_key["value"]["after"]["id"] = None
    no_position = sqlserver("c", commit=4, after={"id": 4, "n": 4, "b": None}, offset=3)
    no_position["value"]["source"]["commit_lsn"] = None
    no_image = {**sqlserver("u", commit=5, after=None, key={"id": 5}, offset=4)}
    no_event = sqlserver("x", commit=6, after={"id": 6, "n": 6, "b": None}, offset=5)
    lines = [good[0], '{"topic": "' + TOPIC + '", "value": {', no_key, "", no_position, no_image, no_event, good[1]]
    write_records(archive / "1.jsonl", lines)
    report = apply(archive, lake)
    assert report.flows[0].events == counts(read=7, merged=2, rejected=5)
    # The column is a number by now; a later text in it does not fit.
    misfit = sqlserver("c", commit=7, after={"id": 7, "n": "seven", "b": None}, offset=6)
    write_records(archive / "2.jsonl", [misfit])
    report = apply(archive, lake)
    assert report.flows[0].events == counts(read=1, rejected=1)

    assert [row["id"] for row in rows(spark, lake)] == [1, 2]
    found = {record["reason"]: record for record in read_quarantine(spark, str(lake))}
    places = {reason: (record["file"], record["line"], record["offset"]) for reason, record in found.items()}
    assert places == {
        "malformed_json": ("1.jsonl", 2, None),
        "missing_key": ("1.jsonl", 3, 2),
        "missing_position": ("1.jsonl", 5, 3),
        "missing_image": ("1.jsonl", 6, 4),
        "not_a_change_event": ("1.jsonl", 7, 5),
        "value_does_not_fit_column": ("2.jsonl", 1, 6),
    }
    assert found["value_does_not_fit_column"]["detail"] == "column n is BIGINT, seen: seven"
    assert found["malformed_json"]["raw"] == lines[1]
    assert json.loads(found["missing_key"]["raw"]) == no_key


def test_one_file_may_hold_many_topics_and_control_topics_are_no_tables(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    other = "server1.testDB.dbo.orders"
    control = [
        {
            "topic": "server1.transaction",
            "partition": 0,
            "offset": 0,
            "key": {"id": "1"},
            "value": {"status": "BEGIN", "id": "1", "ts_ms": 1},
        },
        {"topic": "__debezium-heartbeat.server1", "partition": 0, "offset": 0, "key": {"serverName": "server1"}, "value": {"ts_ms": 1}},
        {
            "topic": "server1",
            "partition": 0,
            "offset": 0,
            "key": {"databaseName": "testDB"},
            "value": {"databaseName": "testDB", "ddl": None, "tableChanges": [], "source": {}},
        },
        {**sqlserver("c", commit=1, after={"id": "1", "type": "t", "data": "{}"}, topic="server1.testDB.dbo.debezium_signal"), "offset": 0},
    ]
    events = numbered([sqlserver("c", commit=1, after=ANN), sqlserver("c", commit=2, after={"id": 1, "total": 5}, topic=other)])
    write_records(archive / "any name at all", [events[0], *control, events[1]])

    report = apply(archive, lake)

    assert {flow.flow: flow.events.read for flow in report.flows} == {TOPIC: 1, other: 1}
    assert rows(spark, lake, other) == [{"id": 1, "total": 5}]
    assert set(report.control_topics) == {item["topic"] for item in control}


def test_sink_files_in_folders_by_time_with_and_without_companions(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    first = numbered([sqlserver("c", commit=1, after=ANN), sqlserver("c", commit=2, after=BEN)])
    second = numbered([sqlserver("d", commit=3, before=ANN), tombstone({"id": 1}), sqlserver("c", commit=4, after=CAT)], first=2)
    write_sink_file(archive, first, keys=True, folders="year=2026/month=11/day=20/hour=05")
    path = write_sink_file(archive, second, keys=False, folders="year=2026/month=11/day=21/hour=00", suffix=".gz")
    path.with_name(path.name.replace(".json", ".headers.json")).write_bytes(b"")

    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, keys=("id",))})

    assert rows(spark, lake) == [BEN, CAT]
    assert report.flows[0].events == counts(read=4, merged=3, superseded=1)
    assert report.ignored_files == ()


def test_a_value_only_archive_without_keys_names_what_it_needs(apply: Apply, archive: Path, lake: Path) -> None:
    write_sink_file(archive, numbered([sqlserver("c", commit=1, after=ANN)]), keys=False)
    report = apply(archive, lake, may_fail=True)
    error = report.flows[0].error
    assert error
    assert error["type"] == "KeysUnknownError"
    assert TOPIC in error["next_step"]
    assert error["transient"] is False

    # The microbatch stands; with the keys it goes through.
    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, keys=("id",))})
    assert report.flows[0].events == counts(read=1, merged=1)


def test_a_flow_that_fails_does_not_stop_the_others(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    foreign = sqlserver("c", commit=1, after=ANN, topic="x.y.z")
    foreign["value"]["source"]["connector"] = "teapot"
    write_records(archive / "1.jsonl", numbered([foreign, sqlserver("c", commit=1, after=ANN)]))

    report = apply(archive, lake, may_fail=True)

    assert {flow.flow: flow.status.value for flow in report.flows} == {"x.y.z": "failed", TOPIC: "applied"}
    assert rows(spark, lake) == [ANN]


def test_new_columns_take_their_place_and_untyped_ones_wait_for_a_value(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after={"id": 1, "a": None, "z": "z1"})]))
    apply(archive, lake)
    assert list(rows(spark, lake)[0]) == ["id", "z"]

    second = {"id": 2, "a": 1.5, "new": "n", "z": "z2"}
    write_records(archive / "2.jsonl", numbered([sqlserver("c", commit=2, after=second)], first=1))
    report = apply(archive, lake)

    assert rows(spark, lake) == [{"id": 1, "a": None, "new": None, "z": "z1"}, second]
    assert report.flows[0].batches[0].columns_added == ("a", "new")


def test_a_positions_parts_are_compared_as_numbers(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    # As text "9" > "10"; in one transaction the serial number, given as text, decides.
    events = [
        sqlserver("u", commit=9, serial=2, after={"id": 1, "name": "first"}),
        sqlserver("u", commit=10, serial="10", after={"id": 1, "name": "last"}),
        sqlserver("u", commit=10, serial="9", after={"id": 1, "name": "earlier"}),
    ]
    write_records(archive / "1.jsonl", numbered(events))
    report = apply(archive, lake)
    assert rows(spark, lake) == [{"id": 1, "name": "last"}]
    assert report.flows[0].batches[0].order_conflicts == 1


def test_odd_names_of_columns_and_files(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    row = {"id": 1, "a b": "1", "c.d": 2, "naïve `q`": "x", "select": True}
    write_records(archive / "sub dir" / "odd [1]{a} 100%+é.jsonl", numbered([sqlserver("c", commit=1, after=row)]))
    apply(archive, lake)
    assert rows(spark, lake) == [row]


def test_microbatches_are_cut_by_bytes_and_end_in_the_same_table(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    for number in range(3):
        write_records(
            archive / f"{number}.jsonl", numbered([sqlserver("u", commit=number + 1, after={"id": 1, "n": number})], first=number)
        )
    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)})
    assert [batch.microbatch for batch in report.flows[0].batches] == [1, 2, 3]
    assert rows(spark, lake) == [{"id": 1, "n": 2}]


def test_a_lake_whose_state_was_lost_reports_it_and_is_made_anew_with_its_tables(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN), sqlserver("c", commit=2, after=BEN)]))
    apply(archive, lake)
    shutil.rmtree(lake / "_cdc")
    write_records(archive / "2.jsonl", numbered([sqlserver("c", commit=3, after=CAT), sqlserver("d", commit=4, before=BEN)], first=2))

    (failed,) = apply(archive, lake, may_fail=True).flows

    assert failed.error
    assert failed.error["type"] == "StateLostError"
    assert rows(spark, lake) == [ANN, BEN]
    shutil.rmtree(lake)
    assert apply(archive, lake).flows[0].events == counts(read=4, merged=3, superseded=1)
    assert rows(spark, lake) == [ANN, CAT]


@pytest.mark.deep
def test_relative_paths_are_places_like_any_other(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    monkeypatch.chdir(archive.parent)
    report = apply("archive", "lake")
    assert report.flows[0].events == counts(read=1, merged=1)
    assert rows(spark, lake) == [ANN]
    assert [flow.status.value for flow in apply(archive, lake).flows] == ["up_to_date"]


def test_a_removed_file_stops_its_flow_for_good_and_a_wrong_type_too(apply: Apply, archive: Path, lake: Path) -> None:
    path = write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    failed = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, columns={"name": "teapot"})}, may_fail=True).flows[0]
    assert failed.error
    assert (failed.error["type"], failed.error["transient"]) == ("PlanRefusedError", False)
    path.unlink()
    failed = apply(archive, lake, may_fail=True).flows[0]
    assert failed.error
    assert (failed.error["type"], failed.error["transient"]) == ("ArchivedFileMissingError", False)


def test_the_outcome_has_the_columns_of_a_table_that_changed_and_the_version_of_every_one(apply: Apply, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    first, second = apply(archive, lake).flows[0], apply(archive, lake).flows[0]
    assert (list(first.columns), first.document_columns) == (["id", "name"], ())
    assert first.table_version == first.batches[-1].table_version == second.table_version
    assert second.columns == {}
