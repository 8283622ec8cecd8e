"""A line is one record, to its end, and what is not recognised is never taken for something harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnAllRejected
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from tests.conftest import Apply
from tests.support.events import Record, postgresql, tombstone, write_records
from tests.support.tables import read_quarantine, read_rows

T = "pg.public.t"


def event(number: int, op: str = "c", *, v: str = "a", key: Any = None, **place: Any) -> Record:
    before, after = ({"id": number, "v": v}, None) if op == "d" else (None, {"id": number, "v": v})
    found = postgresql(op, commit=100 + place.get("offset", number), change=100 + place.get("offset", number), before=before, after=after,
                       topic=T, **{"offset": number, **place})  # fmt: skip
    return found if key is None else {**found, "key": key}


def line(number: int, op: str = "c", **settings: Any) -> str:
    return json.dumps(event(number, op, **settings))


def land(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def rows_of(spark: SparkSession, lake: Path) -> list[tuple[Any, ...]]:
    found = read_rows(spark, str(lake), T)
    return sorted(tuple(row[name] for name in ("id", "v")) for row in found.rows)


def counts(report: ApplyReport) -> dict[str, tuple[int, int, int, int]]:
    return {flow.flow: (flow.events.read, flow.events.merged, flow.events.tombstones, flow.events.rejected) for flow in report.flows}


@pytest.mark.both_engines
def test_documents_that_share_a_line_are_records(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    """Files joined by cat, Firehose, U+2028 between: Spark read the first document of a line, and passed over the others."""
    tricky = line(3, v='}{"', offset=3)
    land(
        archive / "t.jsonl",
        f"{line(0)}{line(1)}\n{line(2)}\u2028{tricky} {line(1, 'u', v='b', offset=4)}\x1e{line(2, 'd', offset=5)}\u2028\n",
    )
    report = apply(archive, lake)
    assert counts(report) == {T: (6, 4, 0, 0)}
    assert rows_of(spark, lake) == [(0, "a"), (1, "b"), (3, '}{"')]


@pytest.mark.both_engines
def test_what_follows_a_document_is_not_passed_over(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    behind = [" x", ",", "}", "]", ",null", "//", "\x00x"]
    land(archive / "t.jsonl", "".join(f"{line(number)}{text}\n" for number, text in enumerate(["", *behind])))
    cut = line(8)[:-40]
    land(archive / "u.jsonl", f"{line(9)}{cut}\n")
    report = apply(archive, lake)
    assert counts(report) == {T: (10, 2, 0, 8)}
    assert {(row["reason"], row["file"]) for row in read_quarantine(spark, str(lake))} == {
        ("malformed_json", f"{name}.jsonl") for name in "tu"
    }
    assert rows_of(spark, lake) == [(0, "a"), (9, "a")]


@pytest.mark.both_engines
def test_a_line_of_a_companion_is_one_key(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    """Beside a companion nothing is told apart: the lines would no longer run side by side."""
    values = [json.dumps(event(number)["value"]) for number in range(5)]
    keys = ['{"id": 0}', '{"id": 7}{"id": 1}', '{"id": 2} x', '{"id": 3}', '{"id": 4}']
    place = archive / T / "partition=0"
    land(place / f"{T}+0+0000000000.json", "".join(f"{value}\n" for value in [*values[:3], values[3] + values[4], values[4]]))
    land(place / f"{T}+0+0000000000.keys.json", "".join(f"{key}\n" for key in keys))
    report = apply(archive, lake)
    assert counts(report) == {T: (5, 2, 0, 3)}
    assert rows_of(spark, lake) == [(0, "a"), (4, "a")]


def renamed(found: Record, **names: str) -> Record:
    """Return a record with members under other names, as text."""
    as_text = {names.get(name, name): json.dumps(part) if name in names and part is not None else part for name, part in found.items()}
    return {**as_text, "source_type": "kafka"}


@pytest.mark.both_engines
def test_a_value_under_another_name_is_read_and_never_a_tombstone(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    """Vector's source and kcat: creates, updates and deletes all counted as tombstones."""
    write_records(archive / "vector.log", [renamed(event(number), value="message", key="message_key") for number in range(3)])
    gone = renamed(event(1, "d", offset=3), value="payload", key="key")
    write_records(archive / "kcat.jsonl", [gone, {**renamed(tombstone({"id": 1}, topic=T, offset=4), value="payload")}])
    write_records(archive / "text.jsonl", [renamed(event(2, "u", v="b", offset=5), value="value", key="key")])
    report = apply(archive, lake)
    assert counts(report) == {T: (6, 4, 1, 0)} or counts(report)[T][2:] == (1, 0)
    assert rows_of(spark, lake) == [(0, "a"), (2, "b")]


@pytest.mark.both_engines
def test_an_absent_value_is_no_null(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    others = [{"data": json.dumps(event(1)["value"])}, {}, {"body": event(1)["value"], "headers": {"value": None}}, {"message": "no JSON"}]
    place = {"topic": T, "partition": 0, "key": {"id": 1}}
    odd = [{**place, "offset": number, **members} for number, members in enumerate(others, 1)]
    write_records(archive / "t.jsonl", [event(0), *odd, tombstone({"id": 5}, topic=T, offset=9)])
    report = apply(archive, lake)
    assert counts(report) == {T: (6, 1, 1, 4)}
    found = read_quarantine(spark, str(lake))
    assert {row["reason"] for row in found} == {"not_a_change_event"}
    assert "data,key,offset,partition,topic" in " ".join(str(row["detail"]) for row in found)


@pytest.mark.both_engines
def test_an_envelope_with_its_record_s_place_is_a_value(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    """InsertField writes topic, partition and offset into the value: all events counted as tombstones."""
    place = archive / "topics" / T / "partition=0" / f"{T}+0+0000000000"
    values = [
        {**event(1, op, v=v, offset=at)["value"], "topic": T, "partition": 0, "offset": at}
        for at, (op, v) in enumerate([("c", "a"), ("u", "b")])
    ]
    write_records(place.with_name(f"{place.name}.json"), values)
    write_records(place.with_name(f"{place.name}.keys.json"), [{"id": 1}, {"id": 1}])
    assert counts(apply(archive, lake)) == {T: (2, 1, 0, 0)}
    assert rows_of(spark, lake) == [(1, "b")]


@pytest.mark.both_engines
def test_a_schema_that_is_null_wraps_nothing(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    """A converter with schemas, of data without: the table had the columns "schema" and "payload"."""

    def bare(document: Any) -> dict[str, Any]:
        return {"schema": None, "payload": document}

    found = [event(1), event(1, "u", v="b", offset=2)]
    write_records(archive / "t.jsonl", [{**each, "key": bare(each["key"]), "value": bare(each["value"])} for each in found])
    gone = tombstone({"id": 3}, topic=T, offset=4)
    write_records(archive / "u.jsonl", [event(2, offset=3), {**gone, "value": bare(None)}])
    assert counts(apply(archive, lake)) == {T: (4, 2, 1, 0)}
    assert rows_of(spark, lake) == [(1, "b"), (2, "a")]


@pytest.mark.both_engines
def test_half_of_a_surrogate_pair_is_no_text(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    """Spark read it as a question mark: two keys could become one."""
    lines = [line(0), line(1, v="x").replace('"x"', r'"\ud83d"'), line(2, v="x").replace('"x"', r'"\ud83d\ude00"'), line(3, v="?")]
    land(archive / "t.jsonl", "".join(f"{each}\n" for each in lines))
    assert counts(apply(archive, lake)) == {T: (4, 3, 0, 1)}
    assert [(row["reason"], row["offset"]) for row in read_quarantine(spark, str(lake))] == [("invalid_utf8", 1)]
    assert rows_of(spark, lake) == [(0, "a"), (2, "😀"), (3, "?")]


UNKNOWN = {"topic": T, "partition": 0, "offset": 0, "key": {"id": 1}, "value": {"id": 1, "name": "a"}}


@pytest.mark.both_engines
def test_a_flow_stops_before_it_makes_a_table_of_nothing_that_it_knows(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    """It was applied, with exit 0, an empty table or none, and no next step. Other flows go on."""
    write_records(archive / "t.jsonl", [UNKNOWN, {**UNKNOWN, "offset": 1}, tombstone({"id": 1}, topic=T, offset=2)])
    other = "pg.public.other"
    write_records(archive / "other.jsonl", [postgresql("c", commit=1, change=2, after={"id": 1}, topic=other, offset=0)])
    for _ in range(2):
        report = apply(archive, lake, may_fail=True)
        (failed,) = (flow for flow in report.flows if flow.status is FlowStatus.FAILED)
        assert (failed.flow, failed.error and failed.error["type"]) == (T, "AllRejectedError")
        text = json.dumps(failed.error)
        assert all(part in text for part in ("2 not_a_change_event", "(id, name)", "t.jsonl, line 1", "add.fields", "on_all_rejected"))
        assert not (lake / T).exists()
        assert read_quarantine(spark, str(lake)) == []
    # Its files stayed pending: beside a good event they are set aside.
    write_records(archive / "u.jsonl", [event(1, offset=3)])
    assert counts(apply(archive, lake))[T] == (4, 1, 1, 2)
    assert rows_of(spark, lake) == [(1, "a")]


def test_records_of_no_table_may_be_set_aside(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "t.jsonl", [UNKNOWN])
    flows = {T: CdcFlow(T, on_all_rejected=OnAllRejected.QUARANTINE)}
    assert counts(apply(archive, lake, flows=flows)) == {T: (1, 0, 0, 1)}
    assert [row["reason"] for row in read_quarantine(spark, str(lake))] == ["not_a_change_event"]


def test_an_unread_compression_is_set_aside_before_any_reader_sees_it(apply: Apply, archive: Path, lake: Path) -> None:
    """Hadoop's codec believed the length at the file's beginning: the JVM ran out of memory, at each run."""
    bomb = b"\x7f\xff\xff\xff\x7f\xff\xff\xff" + b"\xff" * 1000
    for ending in ("snappy", "lz4", "deflate", "br"):
        name = f"pg.public.{ending}"
        (archive / name / "dt=1").mkdir(parents=True)
        (archive / name / "dt=1" / f"x.json.{ending}").write_bytes(bomb)
    # By its first bytes: its name shows nothing.
    (archive / "pg.public.framed.json").write_bytes(b"\xff\x06\x00\x00sNaPpY" + b"\x00" * 100)
    write_records(archive / "t.jsonl", [event(1)])
    report = apply(archive, lake, may_fail=True)
    failed = {flow.flow: flow.error["type"] for flow in report.flows if flow.error}
    assert failed == dict.fromkeys([f"pg.public.{name}" for name in ("snappy", "lz4", "deflate", "br", "framed")], "UnreadableFileError")
    assert counts(report)[T] == (1, 1, 0, 0)
    assert len(report.set_aside_files) == 5
