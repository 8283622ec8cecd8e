"""Huawei CDL's two spellings, as the documentation shows them, through a real archive into a real table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnRepeatedOffsets
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.batch_report import EventCounts
from tests.conftest import Apply
from tests.support.events import Record, Row, record, write_records
from tests.support.tables import read_quarantine, read_rows

TOPIC = "cdl.public.ct_pg2hudi"
VERSIONS = ("1.0", "2.0")
FIRST_OR_DEEP = [VERSIONS[0], *(pytest.param(version, marks=pytest.mark.deep) for version in VERSIONS[1:])]
"""The second spelling becomes the first before anything else happens: every run sees one test of it, the deep one all."""
HEARTBEAT = "279fb050-0143-45c1-b184-50bc48c2461c"


def event(
    version: str,
    op: str,
    *,
    offset: int | None,
    lsn: int | None = None,
    transaction: int = 1,
    before: Row | None = None,
    after: Row | None = None,
    unique: Row | None = None,
) -> Record:
    """Return a record as CDL writes it; ``op`` is Debezium's code, ``unique`` the key after the event."""
    key = unique if unique is not None else {"id": (after or before or {})["id"]}
    if version == "1.0":
        properties = [{"name": "lsn", "value": lsn}, {"name": "txId", "value": transaction}]
        value: dict[str, Any] = {
            "DATA_STORE": "POSTGRESQL",
            "SEG_OWNER": "public",
            "TABLE_NAME": "ct_pg2hudi",
            "TIMESTAMP": 1_707_047_996_013,
            "OPERATION": {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}.get(op, op),
            "LOB_COLUMNS": None,
            "transaction": {"properties": properties},
            "unique": key,
            "data": after,
            "before": before,
        }
    else:
        source = {"version": "1.4.0.Final", "connector": "postgresql", "ts_ms": 1_707_047_996_013, "txId": transaction, "lsn": lsn}
        value = {
            "before": before,
            "after": after,
            "source": source,
            "op": op,
            "ts_ms": 1_707_048_984_208,
            "LOB_COLUMNS": None,
            "unique": key,
        }
    return record(TOPIC, None, {**value, "message_version": version, "message_type": "0", "HEARTBEAT_IDENTIFIER": HEARTBEAT}, offset)


def row(number: int, value: str) -> dict[str, Any]:
    return {"id": number, "v": value}


def counts(report: ApplyReport) -> EventCounts:
    return report.flows[0].events


def rows(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), TOPIC).rows


@pytest.mark.parametrize("version", FIRST_OR_DEEP)
def test_an_update_that_changes_the_key_is_a_delete_and_a_create(version: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    # load 1: rows are created and one is updated, with its key as it was
    created = [event(version, "c", offset=number, lsn=100 - number, after=row(number, f"v{number}")) for number in (1, 2, 3)]
    write_records(archive / "1.jsonl", [*created, event(version, "u", offset=4, lsn=7, after=row(1, "new"), before=None)])
    report = apply(archive, lake)
    assert counts(report) == EventCounts(read=4, merged=3, superseded=1)
    assert rows(spark, lake) == [row(1, "new"), row(2, "v2"), row(3, "v3")]

    # load 2: in one transaction two rows swap their keys by way of a third; another row is deleted
    moves = [(1, 9, "new"), (2, 1, "v2"), (9, 2, "new")]
    moved = [
        event(version, "u", offset=5 + at, lsn=50 + at, transaction=2, before=row(old, value), after=row(new, value))
        for at, (old, new, value) in enumerate(moves)
    ]
    write_records(archive / "2.jsonl", [*moved, event(version, "d", offset=8, lsn=60, transaction=3, before=row(3, "v3"))])
    report = apply(archive, lake)
    assert counts(report) == EventCounts(read=7, merged=4, superseded=3)
    assert rows(spark, lake) == [row(1, "v2"), row(2, "new")]
    table = spark.read.format("delta").load(report.flows[0].table or "")
    positions = {found["id"]: tuple(map(int, found["__cdc_position"])) for found in table.collect()}
    assert positions == {1: (6, 51, 2), 2: (7, 52, 2)}
    assert {str(found["committed_at"]) for found in table.selectExpr("unix_millis(__cdc_committed_at) AS committed_at").collect()} == {
        "1707047996013"
    }


@pytest.mark.parametrize("version", FIRST_OR_DEEP)
def test_files_of_values_only_go_by_their_offset_and_the_place_in_the_file(
    version: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    # The lsn goes down where the archive goes on.
    changes = [event(version, "u", offset=None, lsn=900 - at, after=row(1, f"v{at}")) for at in range(12)]
    for name, first, part in (("b", 0, changes[:6]), ("a", 6, changes[6:])):
        path = tmp_path / "archive" / name / f"{TOPIC}+0+{first:010d}.json"
        write_records(path, [json.dumps(change["value"]) for change in part])
    report = apply(tmp_path / "archive", tmp_path / "lake")
    assert counts(report) == EventCounts(read=12, merged=1, superseded=11)
    assert rows(spark, tmp_path / "lake") == [row(1, "v11")]


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
def test_the_flows_keys_show_a_key_change_where_unique_does_not(version: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    changes = [
        event(version, "c", offset=0, lsn=1, after=row(1, "a"), unique={}),
        event(version, "u", offset=1, lsn=2, before=row(1, "a"), after=row(1, "b"), unique={}),
    ]
    write_records(tmp_path / "archive" / "1.jsonl", changes)
    report = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: CdcFlow(TOPIC, keys=("id", "v"))})
    assert counts(report) == EventCounts(read=3, merged=2, superseded=1)
    assert rows(spark, tmp_path / "lake") == [row(1, "b")]


def test_what_has_no_place_or_an_unknown_operation_is_rejected_and_heartbeats_are_control(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    beat: Mapping[str, Any] = {"message_version": "1.0", "HEARTBEAT_IDENTIFIER": HEARTBEAT}
    records = [
        event("1.0", "c", offset=0, after=row(1, "a")),
        event("1.0", "c", offset=None, after=row(2, "b")),
        event("1.0", "MERGE", offset=2, lsn=3, after=row(3, "c")),
        record(TOPIC, None, beat, 3),
    ]
    write_records(tmp_path / "archive" / "1.jsonl", records)
    report = apply(tmp_path / "archive", tmp_path / "lake")
    assert counts(report) == EventCounts(read=4, merged=1, control=1, rejected=2)
    assert rows(spark, tmp_path / "lake") == [row(1, "a")]
    reasons = [found["reason"] for found in read_quarantine(spark, str(tmp_path / "lake"))]
    assert sorted(reasons) == ["missing_position", "not_a_change_event"]


@pytest.mark.deep
@pytest.mark.parametrize("version", FIRST_OR_DEEP)
def test_a_large_object_that_an_update_leaves_out_keeps_its_value_under_a_new_key_too(
    version: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    def sent(op: str, offset: int, after: Row, before: Row | None = None) -> Record:
        made = event(version, op, offset=offset, lsn=offset, transaction=offset, before=before, after=after)
        return {**made, "value": {**made["value"], "LOB_COLUMNS": "v, w"}}

    first = [
        sent("c", 0, {"id": 1, "v": "long", "w": None, "n": "a"}),
        sent("c", 1, {"id": 2, "v": "longer", "w": "w", "n": "a"}),
    ]
    write_records(tmp_path / "archive" / "1.jsonl", first)
    apply(tmp_path / "archive", tmp_path / "lake")
    moved = sent("u", 3, {"id": 3, "v": None, "w": "x", "n": None}, before={"id": 2, "v": None, "w": None, "n": "a"})
    write_records(tmp_path / "archive" / "2.jsonl", [sent("u", 2, {"id": 1, "v": None, "w": None, "n": None}), moved])
    apply(tmp_path / "archive", tmp_path / "lake")
    assert rows(spark, tmp_path / "lake") == [{"id": 1, "v": "long", "w": None, "n": None}, {"id": 3, "v": "longer", "w": "x", "n": None}]


@pytest.mark.deep
def test_a_large_object_that_an_update_leaves_out_is_not_that_of_a_row_which_had_the_key_in_between(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    def sent(op: str, offset: int, after: Row | None, before: Row | None = None) -> Record:
        made = event("1.0", op, offset=offset, lsn=offset, transaction=min(offset, 1), before=before, after=after)
        return {**made, "value": {**made["value"], "LOB_COLUMNS": "v"}}

    lives, brief = {"id": 1, "v": "its own", "n": "a"}, {"id": 1, "v": "the other's", "n": "b"}
    write_records(tmp_path / "archive" / "1.jsonl", [sent("c", 0, lives)])
    apply(tmp_path / "archive", tmp_path / "lake")
    changed = sent("u", 3, {"id": 1, "v": None, "n": "c"}, before={**lives, "v": None})
    write_records(tmp_path / "archive" / "2.jsonl", [sent("c", 1, brief), sent("d", 2, None, before=brief), changed])
    apply(tmp_path / "archive", tmp_path / "lake")
    assert rows(spark, tmp_path / "lake") == [{"id": 1, "v": "its own", "n": "c"}]


@pytest.mark.deep
def test_a_row_that_came_and_went_in_a_transaction_stays_gone_when_its_insert_comes_again(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """Each of CDL's events has a place of its own, so the place of its last one does not identify its transaction."""
    lives, brief = {"id": 1, "v": "lives"}, {"id": 1, "v": "brief"}
    came = event("1.0", "c", offset=1, lsn=1, transaction=1, after=brief)
    went = event("1.0", "d", offset=2, lsn=2, transaction=1, before=brief)
    for place, records in enumerate([[event("1.0", "c", offset=0, lsn=0, transaction=0, after=lives)], [came, went], [came]]):
        write_records(tmp_path / "archive" / f"{place}.jsonl", records)
        apply(tmp_path / "archive", tmp_path / "lake")
    assert rows(spark, tmp_path / "lake") == [lives]


@pytest.mark.deep
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1)])
def test_a_transaction_that_hands_keys_on_loses_no_row_where_microbatches_divide_it(
    order: tuple[int, ...], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """Only the transaction's number shows that its events belong together: each has a place of its own."""
    first = [event("1.0", "c", offset=number, lsn=number, transaction=0, after=row(number, f"was {number}")) for number in (1, 2, 3)]
    write_records(tmp_path / "archive" / "0.jsonl", first)
    apply(tmp_path / "archive", tmp_path / "lake")
    for part in order:
        old, new = part + 1, (part + 1) % 3 + 1
        moved = event(
            "1.0", "u", offset=10 + part, lsn=10 + part, transaction=1, before=row(old, f"was {old}"), after=row(new, f"was {old}")
        )
        write_records(tmp_path / "archive" / f"{part + 1}.jsonl", [moved])
        report = apply(tmp_path / "archive", tmp_path / "lake")
        assert counts(report).merged == 2
    assert rows(spark, tmp_path / "lake") == [row(1, "was 3"), row(2, "was 1"), row(3, "was 2")]
    later = event("1.0", "u", offset=20, lsn=20, transaction=2, before=row(1, "was 3"), after=row(1, "changed"))
    write_records(tmp_path / "archive" / "9.jsonl", [later])
    # What begins no transaction that was begun before asks nothing of the table.
    assert apply(tmp_path / "archive", tmp_path / "lake").flows[0].batches[0].merge_plan.startswith("merge (")


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
def test_events_of_a_topic_that_was_created_again_stand_behind_those_of_the_one_before(
    version: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    # Positions are offsets here: a delete at offset 0 was taken for stale.
    flows = {TOPIC: CdcFlow(TOPIC, on_repeated_offsets=OnRepeatedOffsets.NEW_LIFE)}
    first = [event(version, "c", offset=at, lsn=10 + at, transaction=1 + at, after=row(at, "a")) for at in range(4)]
    write_records(archive / "1.jsonl", first)
    apply(archive, lake, flows=flows)
    gone = event(version, "d", offset=0, lsn=50, transaction=50, before=row(3, "a"))
    changed = event(version, "u", offset=1, lsn=51, transaction=51, before=row(2, "a"), after=row(2, "b"))
    write_records(archive / "2.jsonl", [gone, changed])
    report = apply(archive, lake, flows=flows)
    assert counts(report).stale == 0
    assert read_rows(spark, str(lake), TOPIC).rows == [row(0, "a"), row(1, "a"), row(2, "b")]
