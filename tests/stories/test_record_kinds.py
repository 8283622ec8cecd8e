"""What a line is: a whole record or a value alone, a row, a control event, or neither; nothing else is taken for one of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnAllRejected
from airflow_cdc.model.report.apply_report import FlowOutcome
from tests.conftest import Apply
from tests.support.events import Record, record, sqlserver, tombstone, write_records
from tests.support.tables import read_quarantine, read_rows

TOPIC = "server1.testDB.dbo.kinds"
OUTBOX = "shop.events"
VALUE_FILE = f"{TOPIC}+0+0000000000.json"


def flattened(number: int, *, deleted: bool = False, **columns: Any) -> Record:
    """Return a value as ``ExtractNewRecordState`` writes it."""
    position = {"__source_lsn": number, "__source_sequence": json.dumps([None, str(number)]), "__source_ts_ms": number}
    return {"id": number, **columns, "__op": "d" if deleted else "c", "__deleted": str(deleted).lower(), **position}


def counted(outcomes: Iterable[FlowOutcome]) -> dict[str, tuple[int, ...]]:
    """Return read, merged, tombstones, control and rejected by flow."""
    counts = {outcome.flow: outcome.events for outcome in outcomes}
    return {flow: (found.read, found.merged, found.tombstones, found.control, found.rejected) for flow, found in counts.items()}


KEYED = {TOPIC: CdcFlow(TOPIC, keys=("id",), on_all_rejected=OnAllRejected.QUARANTINE)}
OF_NO_TABLE = {OUTBOX: CdcFlow(OUTBOX, on_all_rejected=OnAllRejected.QUARANTINE)}
# What tables hold that remember where Kafka stood.
ROW_LIKE_A_RECORD = {"topic": "sport", "partition": 3, "offset": 9, "key": "k", "value": "v", "timestamp": 5, "headers": "h"}


@pytest.mark.deep
def test_a_flattened_row_with_a_column_called_topic_belongs_to_its_own_topic(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    """The column's values became topics, and each row a tombstone of one; the table got nothing."""
    rows = [flattened(1, topic="news"), flattened(2, topic=None), flattened(3, **ROW_LIKE_A_RECORD)]
    write_records(archive / VALUE_FILE, rows)
    report = apply(archive, lake, flows=KEYED)
    assert counted(report.flows) == {TOPIC: (3, 3, 0, 0, 0)}
    found = read_rows(spark, str(lake), TOPIC).rows
    assert [(row["id"], row["topic"], row["value"]) for row in found] == [(1, "news", None), (2, None, None), (3, "sport", "v")]


@pytest.mark.deep
def test_a_whole_record_of_such_a_row_keeps_the_record_s_topic(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    rows = [flattened(1, topic="news"), flattened(2, **ROW_LIKE_A_RECORD)]
    write_records(archive / "all.jsonl", [record(TOPIC, {"id": row["id"]}, row, row["id"]) for row in rows])
    assert counted(apply(archive, lake).flows) == {TOPIC: (2, 2, 0, 0, 0)}
    assert [row["topic"] for row in read_rows(spark, str(lake), TOPIC).rows] == ["news", "sport"]


def test_a_row_without_metadata_is_no_tombstone_whatever_its_columns_are_called(apply: Apply, archive: Path, lake: Path) -> None:
    cut_off = '{"id": 3, "topic": "news", "v": "cut o'
    write_records(archive / VALUE_FILE, [{"id": 1, "topic": "news"}, {"id": 2, "topic": "sport", "offset": 7}, cut_off])
    report = apply(archive, lake, flows=KEYED)
    assert counted(report.flows) == {TOPIC: (3, 0, 0, 0, 3)}
    assert report.flows[0].batches[0].rejects == {"not_a_change_event": 2, "malformed_json": 1}


@pytest.mark.deep
def test_a_document_among_whole_records_is_no_tombstone(apply: Apply, archive: Path, lake: Path) -> None:
    """It has neither a topic nor a value: the survey found it unknown, and decoding took it for a null. Nor is a record one that does not
    say that its value is null.
    """
    good = sqlserver("c", commit=1, topic=TOPIC, offset=0, after={"id": 1})
    key = {"id": 2}
    nulls = [
        tombstone(key, topic=TOPIC, offset=1),
        {"topic": TOPIC, "partition": 0, "offset": 2, "key": key},
        {"topic": TOPIC, "value": None},
    ]
    of_schemas = record(TOPIC, key, {"schema": None, "payload": None}, 4)
    write_records(archive / "all.jsonl", [good, *nulls, of_schemas, {"id": 3}, {"schema": "x"}, "null"])
    report = apply(archive, lake)
    assert counted(report.flows) == {TOPIC: (8, 1, 4, 0, 3)}
    assert report.flows[0].batches[0].rejects == {"not_a_change_event": 3}


BUSINESS = [
    {"ts_ms": 5, "order": 7},
    {"ts_ms": "5 o'clock"},
    {"status": "END", "order": 7},
    {"status": "END", "id": "7", "ts_ms": 5, "order": 7},
    {"status": "BEGIN", "id": "7"},
    {"databaseName": "shop", "size": 3},
    {"databaseName": "shop", "source": {"name": "a"}, "tableChanges": [], "order": 7},
    {"tableChanges": 3},
]


@pytest.mark.parametrize("layout", ["record", "value"])
def test_a_document_with_a_member_of_a_control_event_is_none(layout: str, apply: Apply, archive: Path, lake: Path) -> None:
    """A whole outbox topic counted as heartbeats, and was dropped in silence."""
    if layout == "record":
        write_records(archive / "all.jsonl", [record(OUTBOX, {"id": at}, value, at) for at, value in enumerate(BUSINESS)])
    else:
        write_records(archive / f"{OUTBOX}+0+0000000000.json", BUSINESS)
    report = apply(archive, lake, flows=OF_NO_TABLE)
    assert report.control_topics == ()
    assert counted(report.flows) == {OUTBOX: (len(BUSINESS), 0, 0, 0, len(BUSINESS))}
    assert report.flows[0].batches[0].rejects == {"not_a_change_event": len(BUSINESS)}


def test_a_time_alone_under_another_key_than_a_server_s_is_no_heartbeat(apply: Apply, archive: Path, lake: Path) -> None:
    write_records(archive / "all.jsonl", [record(OUTBOX, {"id": 1}, {"ts_ms": 5}, 0)])
    assert counted(apply(archive, lake, flows=OF_NO_TABLE).flows) == {OUTBOX: (1, 0, 0, 0, 1)}


CONTROL = {
    "beats": ({"serverName": "server1"}, {"ts_ms": 5}),
    "server1.transaction": ({"id": "7"}, {"status": "BEGIN", "id": "7", "event_count": None, "data_collections": None}),
    "server1": (
        {"databaseName": "testDB"},
        {"source": {}, "ts_ms": 5, "databaseName": "", "schemaName": None, "ddl": "", "tableChanges": []},
    ),
    "history": (None, {"source": {"server": "a"}, "position": {}, "databaseName": "shop", "ddl": "CREATE"}),
}


@pytest.mark.parametrize("has_schema", [False, True])
def test_control_events_are_recognized_by_their_members_bare_and_with_schemas(
    has_schema: bool, apply: Apply, archive: Path, lake: Path
) -> None:
    for topic, (key, value) in CONTROL.items():
        spelled = {"schema": {"type": "struct"}, "payload": value} if has_schema else value
        write_records(archive / f"{topic}.jsonl", [record(topic, key, spelled, 0)])
    report = apply(archive, lake)
    assert (report.flows, report.control_topics) == ((), tuple(sorted(CONTROL)))


# Bytes that are no UTF-8


def write_bytes(path: Path, lines: Iterable[Record], bad: str = "BAD", separator: bytes = b"\n") -> None:
    """Write records; the letters ``bad`` become two bytes that are no UTF-8."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(separator.join(json.dumps(line, ensure_ascii=False).encode().replace(bad.encode(), b"\xc3\x28") for line in lines))


def named(number: int, name: str, **place: Any) -> Record:
    return sqlserver("c", commit=number, topic=TOPIC, offset=number, after={"id": number, "name": name}, **place)


NAMES = ["Jos\u00e9", "JosBAD", "\ufffd", "plain"]


@pytest.mark.parametrize("form", ["lines", pytest.param("array", marks=pytest.mark.deep)])
def test_a_record_with_bytes_that_are_no_utf_8_is_set_aside_and_the_others_are_merged(
    form: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    """U+FFFD was merged, which the source never had. Where the source has it itself, it is a character like any other."""
    events = [named(number, name) for number, name in enumerate(NAMES, 1)]
    if form == "lines":
        write_bytes(archive / "1.jsonl", events)
    else:
        # Nothing shows what an array's text was replaced in: there the source's own U+FFFD shares a file with no bad bytes.
        events.pop(2)
        write_bytes(archive / "0.json", [[named(3, "\ufffd")]])  # type: ignore[list-item]
        write_bytes(archive / "1.json", [events])  # type: ignore[list-item]
    report = apply(archive, lake)
    found = report.flows[0].events
    assert (found.read, found.merged, found.rejected) == (4, 3, 1)
    assert [(row["id"], row["name"]) for row in read_rows(spark, str(lake), TOPIC).rows] == [(1, "Jos\u00e9"), (3, "\ufffd"), (4, "plain")]
    (rejected,) = read_quarantine(spark, str(lake))
    assert (rejected["reason"], rejected["offset"]) == ("invalid_utf8", 2)
    assert "Jos\ufffd" in rejected["raw"], "Readers of Parquet other than Spark fail at a string that is no UTF-8"


@pytest.mark.deep
def test_bytes_that_are_no_utf_8_in_names_and_keys_make_no_topic_column_or_row(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    odd = [
        named(2, "x", key={"id": "BAD"}),
        {**named(3, "x"), "topic": f"{TOPIC}BAD"},
        {**tombstone({"id": "BAD"}, topic=TOPIC), "offset": 4},
        record(TOPIC, {"id": 5}, {**flattened(5), "name": "BAD"}, 5),
    ]
    odd[0]["value"]["after"]["columnBAD"] = 1
    write_bytes(archive / "1.jsonl", [named(1, "good"), *odd])
    report = apply(archive, lake)
    assert counted(report.flows) == {TOPIC: (5, 1, 0, 0, 4)}
    assert report.flows[0].batches[0].rejects == {"invalid_utf8": 4}
    assert read_rows(spark, str(lake), TOPIC).rows == [{"id": 1, "name": "good"}]


@pytest.mark.deep
def test_a_companion_s_key_that_is_no_utf_8_sets_its_record_aside(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    events = [named(number, "x", key={"id": key}) for number, key in ((1, "a"), (2, "BAD"), (3, "\ufffd"))]
    for event in events:
        event["value"]["after"] = {"id": event["key"]["id"].replace("BAD", "b"), "name": "x"}
    write_bytes(archive / f"{TOPIC}+0+0000000001.json", [event["value"] for event in events])
    write_bytes(archive / f"{TOPIC}+0+0000000001.keys.json", [event["key"] for event in events])
    report = apply(archive, lake)
    assert report.flows[0].batches[0].rejects == {"invalid_utf8": 1}
    assert [row["id"] for row in read_rows(spark, str(lake), TOPIC).rows] == ["a", "\ufffd"]
