"""Types of bare JSON: from wherever they are known, and never guessed in silence."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.column_origin import Origin
from airflow_cdc.model.flow.declared_column import declared_columns
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.flow.routes import flows_from_document
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema, SourceSchemas
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.target.target_table import columns_of
from tests.conftest import Apply
from tests.support.events import TOPIC, Record, numbered, postgresql, sqlserver, write_records
from tests.support.tables import read_quarantine, read_rows

DECIMAL = "org.apache.kafka.connect.data.Decimal"
_AT = datetime(2026, 11, 24, 8, 0, 0, 123456, tzinfo=timezone.utc)
AT, PLACED = _AT.replace(tzinfo=None), int(_AT.timestamp()) * 1_000_000 + _AT.microsecond
FIELDS: list[dict[str, Any]] = [
    {"field": "id", "type": "int32"},
    {"field": "total", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
    {"field": "placed", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "due", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "note", "type": "string"},
]
BARE = {"id": 1, "total": "C2E=", "placed": PLACED, "due": 20781, "note": "first"}
ROW = {
    "id": 1,
    "total": Decimal("29.13"),
    "placed": AT,
    "due": date(2026, 11, 24),
    "note": "first",
}
TYPES = {"id": "INT", "total": "DECIMAL(12,2)", "placed": "TIMESTAMP_NTZ", "due": "DATE", "note": "STRING"}


def bare(number: int, **values: Any) -> Record:
    return sqlserver("c", commit=number, after={**BARE, "id": number, **values}, offset=number)


def with_schema(number: int, fields: list[dict[str, Any]] = FIELDS, **values: Any) -> Record:
    plain = bare(number, **values)
    image = {"type": "struct", "optional": True, "fields": fields}
    envelope = {"type": "struct", "name": f"{TOPIC}.Envelope", "fields": [{**image, "field": "before"}, {**image, "field": "after"}]}
    return {**plain, "value": {"schema": envelope, "payload": plain["value"]}}


def rows(spark: SparkSession, lake: Path) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in read_rows(spark, str(lake), TOPIC).rows}


def types(spark: SparkSession, lake: Path) -> dict[str, str]:
    return columns_of(spark, str(lake / TOPIC))


def row(number: int, **values: Any) -> dict[str, Any]:
    return {**ROW, "id": number, **values}


def failure(outcome: FlowOutcome) -> dict[str, Any]:
    assert outcome.error
    return outcome.error


def test_values_in_yugabytedb_s_own_form_are_refused_by_name(apply: Apply, archive: Path, lake: Path) -> None:
    """Its connector is called ``postgresql``: the columns were made of JSON texts, and null overwrote what an update had not touched."""
    images = [{"id": {"value": 1, "set": True}, "n": {"value": 2, "set": True}}, {"id": {"value": 1, "set": True}, "n": None}]
    sent = [
        postgresql(op, commit=at, change=at, topic=TOPIC, after=row, offset=at) for op, at, row in zip("cu", (4, 6), images, strict=True)
    ]
    write_records(archive / "1.jsonl", sent)
    (flow,) = apply(archive, lake, may_fail=True).flows
    assert flow.error is not None
    assert flow.error["type"] == "UnsupportedConnectorError"
    assert "columns id, n hold objects of value and set" in flow.error["message"]
    assert "pgoutput" in flow.error["next_step"]
    assert not (lake / TOPIC).exists()


def test_an_archive_that_has_schemas_for_one_day_knows_the_types_of_all(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    write_records(archive / "2.jsonl", [with_schema(2)])
    flow = CdcFlow(TOPIC, max_microbatch_bytes=1)
    report = apply(archive, lake, flows={TOPIC: flow})
    write_records(archive / "3.jsonl", [bare(3)])
    later = apply(archive, lake, flows={TOPIC: flow})

    assert types(spark, lake) == TYPES
    assert rows(spark, lake) == {number: row(number) for number in (1, 2, 3)}
    reported = report.flows[0].batches[0].types
    assert {name: each.origin for name, each in reported.items()} == dict.fromkeys(TYPES, Origin.ARCHIVE)
    assert (reported["total"].sql_type, reported["total"].spelled, reported["note"].spelled) == ("DECIMAL(12,2)", DECIMAL, "")
    assert (report.flows[0].batches[1].types, {*later.flows[0].batches[0].types}) == ({}, {*TYPES})


def test_a_schema_that_was_handed_over_types_the_table(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    hand_over(lake, FIELDS)
    report = apply(archive, lake)
    assert (types(spark, lake), rows(spark, lake)) == (TYPES, {1: row(1)})
    assert {each.origin for each in report.flows[0].batches[0].types.values()} == {Origin.SCHEMA}


def hand_over(lake: Path, fields: list[dict[str, Any]]) -> None:
    columns = tuple(SourceColumn(each["field"], {name: value for name, value in each.items() if name != "field"}) for each in fields)
    fs = fsspec.filesystem("file")
    SourceSchemas(fs, str(lake)).put(FlowState(fs, str(lake), TOPIC).folder, SourceSchema(TOPIC, "sqlserver", columns, origin="a test"))


@pytest.mark.deep
def test_the_flow_goes_over_the_events_and_these_over_the_archive_and_that_over_what_was_handed_over(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    write_records(archive / "2.jsonl", [with_schema(2)])
    millis = {"field": "placed", "type": "int64", "name": "io.debezium.time.Timestamp"}
    hand_over(lake, [millis])
    flow = CdcFlow(TOPIC, columns={"id": "BIGINT"}, max_microbatch_bytes=1)
    report = apply(archive, lake, flows={TOPIC: flow})
    reported = {name: each.origin for name, each in report.flows[0].batches[0].types.items()}
    assert reported == {**dict.fromkeys(TYPES, Origin.ARCHIVE), "id": Origin.FLOW}
    assert types(spark, lake) == {**TYPES, "id": "BIGINT"}
    assert rows(spark, lake)[1]["placed"] == ROW["placed"]


ENCODED = {
    "total": "C2E=",
    "wide": "C2E=",
    "bytes": "/+8=",
    "url": "_-8=",
    "hex": "ffef",
    "free": {"scale": 3, "value": "C2E="},
    "exact": {"scale": 3, "value": "C2E="},
    "due": 20781,
    "millis": PLACED // 1_000,
    "micros": PLACED,
    "zoned": PLACED,
    "nanos": PLACED * 1_000 + 789,
    "whole": PLACED * 1_000,
    "time": 37_830_123_456,
    "days": [20781, None],
    "iso": "2026-11-24Z",
    "at": "2026-11-24T08:00:00.123456Z",
}
DECLARED = {
    "total": {"type": "DECIMAL(12,2)", "encoding": "base64"},
    "wide": {"type": "DECIMAL(38,6)", "encoding": "base64", "scale": 2},
    "bytes": {"type": "BINARY", "encoding": "base64"},
    "url": {"type": "BINARY", "encoding": "base64url"},
    "hex": {"type": "BINARY", "encoding": "hex"},
    "free": {"type": "STRING", "encoding": "variable_scale"},
    "exact": {"type": "DECIMAL(10,3)", "encoding": "variable_scale"},
    "due": {"type": "DATE", "unit": "days"},
    "millis": {"type": "TIMESTAMP_NTZ", "unit": "millis"},
    "micros": {"type": "TIMESTAMP_NTZ", "unit": "micros"},
    "zoned": {"type": "TIMESTAMP", "unit": "micros"},
    "nanos": {"type": "STRING", "encoding": "epoch", "unit": "nanos"},
    "whole": {"type": "TIMESTAMP_NTZ", "unit": "nanos"},
    "time": {"type": "STRING", "encoding": "time_of_day", "unit": "micros"},
    "days": {"type": "ARRAY<DATE>", "unit": "days"},
    "iso": "DATE",
    "at": "TIMESTAMP_NTZ",
}
DECODED = {
    1: {
        "id": 1,
        "total": Decimal("29.13"),
        "wide": Decimal("29.13"),
        "bytes": b"\xff\xef",
        "url": b"\xff\xef",
        "hex": b"\xff\xef",
        "free": "2.913",
        "exact": Decimal("2.913"),
        "due": date(2026, 11, 24),
        "millis": AT.replace(microsecond=123000),
        "micros": ROW["placed"],
        "zoned": AT,
        "nanos": "2026-11-24 08:00:00.123456789",
        "whole": ROW["placed"],
        "time": "10:30:30.123456",
        "days": [date(2026, 11, 24), None],
        "iso": date(2026, 11, 24),
        "at": ROW["placed"],
    }
}


@pytest.mark.deep
def test_each_declared_encoding_is_read(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [sqlserver("c", commit=1, after={"id": 1, **ENCODED}, offset=0)])
    flow = CdcFlow.from_mapping({"topic": TOPIC, "columns": DECLARED})
    report = apply(archive, lake, flows={TOPIC: flow})
    assert rows(spark, lake) == DECODED
    reported = report.flows[0].batches[0].types
    assert (reported["total"].spelled, reported["due"].spelled, reported["iso"].spelled) == ("base64", "epoch", "")


def test_without_known_types_the_flow_stops_before_it_makes_a_table_with_the_settings_to_paste(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [bare(number) for number in (1, 2)])
    stopped = failure(apply(archive, lake, may_fail=True).flows[0])
    assert (stopped["type"], stopped["transient"]) == ("TypesUnknownError", False)
    for evidence in (
        'total: 2 values were seen, each short base64, as decimals are, such as "C2E="',
        f"placed: 2 values were seen, each a number that may be micros since 1970 ({PLACED} would be 2026-11-24)",
        "due: 2 values were seen, each a number that may be days since 1970 (20781 would be 2026-11-24)",
    ):
        assert evidence in stopped["message"]
    assert "id:" not in stopped["message"]
    assert "note:" not in stopped["message"]
    assert not (lake / TOPIC).exists()

    # What is to be pasted is the flows file, once the question marks are filled in.
    snippet = stopped["next_step"][stopped["next_step"].index("flows:") :]
    flows = flows_from_document(yaml.safe_load(snippet.replace("DECIMAL(?,?)", "DECIMAL(12,2)")))
    assert {*flows[TOPIC].columns} == {*TYPES}
    apply(archive, lake, flows=flows)
    assert types(spark, lake) == {**TYPES, "id": "BIGINT"}
    assert rows(spark, lake) == {number: row(number) for number in (1, 2)}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OnUnknownTypes.GUESS, {"total": "C2E=", "placed": PLACED, "due": 20781}),
        pytest.param(OnUnknownTypes.TEXT, {"total": "C2E=", "placed": str(PLACED), "due": "20781"}, marks=pytest.mark.deep),
    ],
)
def test_where_the_flow_goes_on_without_types_the_report_names_what_is_in_doubt(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, policy: OnUnknownTypes, expected: dict[str, Any]
) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, on_unknown_types=policy)})
    assert rows(spark, lake) == {1: {**BARE, **expected}}
    reported = report.flows[0].batches[0].types
    assert {each.origin for each in reported.values()} == {Origin.VALUES}
    assert {name for name, each in reported.items() if each.doubt} == {"total", "placed", "due"}


def test_a_table_that_was_guessed_is_not_gone_on_with_once_the_types_are_known(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, on_unknown_types=OnUnknownTypes.GUESS)})
    # base64 and 29.13 would stand in one column of texts.
    write_records(archive / "2.jsonl", [with_schema(2)])
    stopped = failure(apply(archive, lake, may_fail=True).flows[0])
    assert stopped["type"] == "SchemaChangeError"
    assert f"total: STRING | STRING ({DECIMAL})" in stopped["message"]
    assert f"airflow-cdc retype {TOPIC}" in stopped["next_step"]
    assert rows(spark, lake) == {1: BARE}


@pytest.mark.deep
def test_columns_that_nothing_encodes_go_on_when_their_schema_comes(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    plain = [{"field": "id", "type": "int32"}, {"field": "note", "type": "string"}]
    write_records(archive / "1.jsonl", [sqlserver("c", commit=1, after={"id": 1, "note": "a"}, offset=0)])
    apply(archive, lake)
    after = {"id": 2, "note": "b"}
    schema = with_schema(2, plain)
    schema["value"]["payload"]["after"] = after
    write_records(archive / "2.jsonl", [schema])
    apply(archive, lake)
    assert rows(spark, lake) == {1: {"id": 1, "note": "a"}, 2: after}


@pytest.mark.deep
def test_what_was_read_by_a_declaration_stops_when_nothing_declares_it_any_more(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    columns = declared_columns(
        {
            "total": {"type": "DECIMAL(12,2)", "encoding": "base64"},
            "placed": {"type": "TIMESTAMP_NTZ", "unit": "micros"},
            "due": {"type": "DATE", "unit": "days"},
        }
    )
    apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, columns=columns)})
    # Base64 that a cast takes for a number.
    write_records(archive / "2.jsonl", [bare(2, total="1234")])
    stopped = failure(apply(archive, lake, may_fail=True).flows[0])
    assert stopped["type"] == "SchemaChangeError"
    assert "total (DECIMAL(12,2))" in stopped["message"]
    hand_over(lake, FIELDS)
    apply(archive, lake)
    assert rows(spark, lake)[2]["total"] == Decimal("-26588.24")


@pytest.mark.deep
def test_two_spellings_in_the_archive_s_schemas_are_a_person_s_to_decide(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    scaled = [
        each if each["field"] != "total" else {**each, "parameters": {"scale": "4", "connect.decimal.precision": "12"}} for each in FIELDS
    ]
    flow = CdcFlow(TOPIC, max_microbatch_bytes=1)
    write_records(archive / "1.jsonl", [with_schema(1)])
    write_records(archive / "2.jsonl", [with_schema(2, scaled)])
    write_records(archive / "3.jsonl", [bare(3)])
    report = apply(archive, lake, flows={TOPIC: flow}, may_fail=True).flows[0]
    assert [batch.microbatch for batch in report.batches] == [1, 2]
    stopped = failure(report)
    assert stopped["type"] == "SchemaChangeError"
    assert f"DECIMAL(12,2) ({DECIMAL}), DECIMAL(12,4) ({DECIMAL})" in stopped["message"]
    # The schema that is handed over decides.
    hand_over(lake, scaled)
    apply(archive, lake, flows={TOPIC: flow})
    assert rows(spark, lake)[3]["total"] == Decimal("0.2913")


MISFITS = numbered(
    [sqlserver("c", commit=number, after={"id": number, "total": "C2E=" if number % 3 else "12.50"}) for number in range(1, 31)]
)


def test_a_column_that_does_not_fit_most_events_stops_the_flow_and_sets_nothing_aside(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", MISFITS)
    wrong = {TOPIC: CdcFlow(TOPIC, columns={"total": "DECIMAL(12,2)"})}
    outcome = apply(archive, lake, flows=wrong, may_fail=True).flows[0]
    stopped = failure(outcome)
    assert (stopped["type"], stopped["transient"]) == ("ColumnMismatchError", False)
    assert "column total is DECIMAL(12,2), and 20 of 30 events have values that are none: C2E=" in stopped["message"]
    assert "1.jsonl" in stopped["message"]
    assert (outcome.batches, read_quarantine(spark, str(lake)), (lake / TOPIC).exists()) == ((), [], False)

    right = {TOPIC: CdcFlow.from_mapping({"topic": TOPIC, "columns": {"total": {"type": "DECIMAL(12,2)", "encoding": "base64"}}})}
    report = apply(archive, lake, flows=right).flows[0]
    assert (report.events.merged, report.events.rejected) == (30, 0)
    assert (rows(spark, lake)[1]["total"], rows(spark, lake)[3]["total"]) == (Decimal("29.13"), Decimal("12.50"))


@pytest.mark.deep
def test_few_odd_values_go_to_the_quarantine(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [sqlserver("c", commit=1, after={"id": 1, "n": 1}, offset=0)])
    flows = {TOPIC: CdcFlow(TOPIC, columns={"n": "INT"})}
    apply(archive, lake, flows=flows)
    write_records(
        archive / "2.jsonl", [sqlserver("c", commit=number, after={"id": number, "n": "x"}, offset=number) for number in range(2, 11)]
    )
    report = apply(archive, lake, flows=flows).flows[0]
    assert (report.events.rejected, len(read_quarantine(spark, str(lake)))) == (9, 9)


def test_a_first_microbatch_of_which_no_event_fits_stops(apply: Apply, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [sqlserver("c", commit=1, after={"id": 1, "n": "x"}, offset=0)])
    outcome = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, columns={"n": "INT"})}, may_fail=True).flows[0]
    assert failure(outcome)["type"] == "ColumnMismatchError"


@pytest.mark.deep
def test_what_is_known_from_the_archive_s_schemas_is_made_of_the_surveys_again_when_it_is_lost(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [with_schema(1)])
    write_records(archive / "2.jsonl", [bare(2)])
    apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)})
    (learned,) = lake.glob("_cdc/archives/*/schemas/*.json")
    document = json.loads(learned.read_text())
    assert (document["format"], document["topic"], {*document["columns"]}) == (1, TOPIC, {*TYPES})
    for text in (
        None,
        "{}",
        json.dumps({**document, "format": 0, "columns": {}}),
        json.dumps({**document, "topic": "another", "columns": {}}),
    ):
        learned.unlink()
        if text is not None:
            learned.write_text(text)
        number = 3 + len(rows(spark, lake))
        write_records(archive / f"{number}.jsonl", [bare(number)])
        apply(archive, lake)
        assert rows(spark, lake)[number] == row(number)
