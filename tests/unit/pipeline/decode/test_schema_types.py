"""Each event is read by its own schema: pairs of encodings of one column in one microbatch, in both engines.

The values and their encodings are made here, by Python's own dates and numbers.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.declared_column import DeclaredColumn, Encoding, Unit
from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.resolve_columns import resolve_columns
from airflow_cdc.pipeline.decode.schema_types import read_across, schema_types
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.decode.types.connect_types import cast_to
from tests.support.events import TOPIC, Record, postgresql, write_records

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time, as DATETIME is
MICROSECOND = timedelta(microseconds=1)
Encode = Callable[[Any], Any]


@dataclass(frozen=True)
class Spelling:
    """An encoding of a column."""

    of: Mapping[str, Any]
    """The Connect field."""
    encode: Encode
    """From the value to the archived one."""
    decode: Encode = field(default=lambda value: value)
    """From the value to the table's, where the column is of the family's type."""


def micros(value: datetime) -> int:
    return (value - EPOCH) // MICROSECOND


def micros_of_day(value: datetime) -> int:
    return micros(value) % 86_400_000_000


def time_text(digits: int) -> Encode:
    return lambda value: f"{value:%H:%M:%S}.{micros_of_day(value) % 1_000_000 * 1_000:09d}"[: 9 + digits]


def unscaled(scale: int) -> Encode:
    def encode(value: Decimal) -> str:
        number = int(value.scaleb(scale))
        return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()

    return encode


def int64(name: str | None) -> dict[str, Any]:
    return {"type": "int64", "name": name}


def decimal(scale: int, precision: int) -> dict[str, Any]:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


LOCAL_TIMES = [
    Spelling(int64("io.debezium.time.Timestamp"), lambda value: micros(value) // 1_000),
    Spelling(int64("org.apache.kafka.connect.data.Timestamp"), lambda value: micros(value) // 1_000),
    Spelling(int64("io.debezium.time.MicroTimestamp"), micros),
    Spelling(int64("local-timestamp-micros"), micros),
    Spelling(
        {"type": "int32", "name": "io.debezium.time.Date"},
        lambda value: (value - EPOCH).days,
        lambda value: EPOCH + timedelta(days=(value - EPOCH).days),
    ),
]
ZONED_TIMES = [
    Spelling({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, lambda value: f"{value.isoformat(timespec='microseconds')}Z"),
    Spelling(int64("timestamp-millis"), lambda value: micros(value) // 1_000),
    Spelling(int64("timestamp-micros"), micros),
]
TIMES_OF_DAY = [
    Spelling({"type": "int32", "name": "io.debezium.time.Time"}, lambda value: micros_of_day(value) // 1_000, time_text(3)),
    Spelling({"type": "int32", "name": "org.apache.kafka.connect.data.Time"}, lambda value: micros_of_day(value) // 1_000, time_text(3)),
    Spelling(int64("io.debezium.time.MicroTime"), micros_of_day, time_text(6)),
    Spelling(int64("io.debezium.time.NanoTime"), lambda value: micros_of_day(value) * 1_000, time_text(9)),
    Spelling({"type": "string"}, time_text(6), time_text(6)),
]
DAYS = [
    Spelling({"type": "int32", "name": "io.debezium.time.Date"}, lambda value: (value - EPOCH).days, lambda value: value.date()),
    Spelling(
        {"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, lambda value: (value - EPOCH).days, lambda value: value.date()
    ),
]
DECIMALS = [
    Spelling(decimal(2, 12), unscaled(2)),
    Spelling(decimal(4, 14), unscaled(4)),
    Spelling(decimal(-2, 8), unscaled(-2)),
    Spelling(decimal(0, 10), unscaled(0)),
]
LOCAL, ZONED, TIME, DAY, NUMBER = "TIMESTAMP_NTZ", "TIMESTAMP", "STRING", "DATE", "DECIMAL"
FAMILIES = {LOCAL: LOCAL_TIMES, ZONED: ZONED_TIMES, TIME: TIMES_OF_DAY, DAY: DAYS, NUMBER: DECIMALS}
PAIRS = [(family, one, other) for family, spellings in FAMILIES.items() for one, other in permutations(spellings, 2)]
IDS = [f"{one.of.get('name') or 'text'}-{other.of.get('name') or 'text'}-{number}" for number, (_, one, other) in enumerate(PAIRS)]


def values_of(family: str, seed: int, count: int = 4) -> list[Any]:
    """Return values that every spelling of a family can carry."""
    pick = random.Random(seed)
    if family == NUMBER:
        return [Decimal(pick.randrange(-9_999, 9_999)) * 100 for _ in range(count)]
    days = [pick.randrange(-20_000, 40_000) for _ in range(count)]
    return [EPOCH + timedelta(days=day, milliseconds=pick.randrange(86_400_000)) for day in days]


def schema(**columns: Mapping[str, Any]) -> str:
    fields = [{**of, "optional": True, "field": name} for name, of in columns.items()]
    members = [{"type": "struct", "fields": fields, "optional": True, "field": image} for image in ("before", "after")]
    return json.dumps({"type": "struct", "fields": members, "name": "t.Envelope"})


def shape(text: str | None, *, kind: str = "c", records: int = 1, key: str = '["id"]') -> TopicShape:
    return TopicShape("f.jsonl", TOPIC, RecordLayout.RECORD, kind, "postgresql", 0, key, text, True, records, 0, 0)


INT = {"type": "int32"}


def records_of(spelled: Sequence[tuple[Spelling, Any]], first: int = 0) -> Iterator[Record]:
    """Return creates of rows with an identifier and a value, each with its own schema."""
    for number, (spelling, value) in enumerate(spelled, first):
        made = postgresql(
            "c", commit=10 + number, change=10 + number, topic=TOPIC, after={"id": number, "v": spelling.encode(value)}, offset=number
        )
        yield {**made, "value": {"schema": json.loads(schema(id=INT, v=spelling.of)), "payload": made["value"]}}


def columns_of(spellings: Sequence[Spelling], flow: CdcFlow | None = None) -> SourceColumns:
    shapes = [shape(schema(id=INT, v=each.of)) for each in spellings]
    return resolve_columns(flow=flow or CdcFlow(TOPIC), shapes=shapes, table={}, inferred={})


def natively(folder: Path, spelled: Sequence[tuple[Spelling, Any]], columns: SourceColumns) -> dict[int, Any]:
    """Return what the native engine reads of one file, by identifier."""
    write_records(folder / "f.jsonl", records_of(spelled))
    shapes = [
        shape(schema(id=INT, v=each.of), records=sum(other is each for other, _ in spelled))
        for each in {id(s): s for s, _ in spelled}.values()
    ]
    decoder = Decoder(TOPIC, [ArchivedFile("f.jsonl", 1, TOPIC)], shapes, columns, CONNECTORS["postgresql"])
    return {row["id"]: row["v"] for row in fold_natively(decoder, str(folder)).rows.to_pylist()}


def expected(family: str, spelled: Sequence[tuple[Spelling, Any]]) -> dict[int, Any]:
    return {number: spelling.decode(value) for number, (spelling, value) in enumerate(spelled)}


def plain(value: Any) -> Any:
    # An instant's fields in UTC.
    return value.astimezone(timezone.utc).replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value


@pytest.mark.parametrize(("family", "one", "other"), PAIRS, ids=IDS)
def test_the_native_engine_reads_each_event_by_its_own_schema(family: str, one: Spelling, other: Spelling, tmp_path: Path) -> None:
    columns = columns_of([one, other])
    if not columns.types["v"].native:
        # Spark takes it.
        assert family in (LOCAL, ZONED, TIME, NUMBER)
        return
    spelled = [((one, other)[number % 2], value) for number, value in enumerate(values_of(family, 1, 6))]
    found = natively(tmp_path, spelled, columns)
    assert {key: plain(value) for key, value in found.items()} == expected(family, spelled)


def test_units_of_local_times_and_of_times_of_day_are_no_reason_for_spark() -> None:
    for family in (LOCAL_TIMES[:4], TIMES_OF_DAY, DAYS):
        assert all(columns_of(pair).types["v"].native for pair in permutations(family, 2))


def test_spark_reads_each_event_by_its_own_schema(spark: SparkSession) -> None:
    wanted, lines, reads = {}, [], {}
    for number, (family, one, other) in enumerate(PAIRS):
        rule = columns_of([one, other]).types["v"]
        reads[number] = f"CASE WHEN pair = {number} THEN CAST({rule.read('text')} AS STRING) END"
        spelled = list(zip((one, other, one, other), values_of(family, number), strict=True))
        for place, (record, (spelling, value)) in enumerate(zip(records_of(spelled), spelled, strict=True)):
            archived = record["value"]["payload"]["after"]["v"]
            text = archived if isinstance(archived, str) else json.dumps(archived)
            lines.append((number, place, json.dumps(record, separators=(",", ":")), None, text))
            wanted[number, place] = spelling.decode(value)
    frame = spark.createDataFrame(lines, f"pair INT, place INT, {RAW} STRING, {RAW_KEY} STRING, text STRING")
    # Plans of a few pairs each: one of all takes minutes to analyse.
    found = {}
    for first in range(0, len(PAIRS), 8):
        some = [reads[number] for number in range(first, min(first + 8, len(PAIRS)))]
        rows = frame.filter(f"pair >= {first} AND pair < {first + 8}").selectExpr("pair", "place", f"coalesce({', '.join(some)}) AS value")
        found |= {(row["pair"], row["place"]): row["value"] for row in rows.collect()}
    assert {IDS[pair]: _read(FAMILIES_OF[pair], value) for (pair, _), value in found.items()}
    for (pair, place), value in wanted.items():
        assert _read(FAMILIES_OF[pair], found[pair, place]) == value, IDS[pair]


FAMILIES_OF = [family for family, _, _ in PAIRS]


def _read(family: str, value: str | None) -> Any:
    if value is None or family == TIME:
        return value
    if family == NUMBER:
        return Decimal(value)
    return date.fromisoformat(value) if family == DAY else datetime.fromisoformat(value)


# Which rules are one


@pytest.mark.parametrize("spellings", [LOCAL_TIMES[0:3:2], TIMES_OF_DAY[1:3], ZONED_TIMES[:2], DECIMALS[2:]])
def test_one_type_is_no_proof_of_one_encoding(spellings: Sequence[Spelling]) -> None:
    """Milli- and microseconds since 1970 are both TIMESTAMP_NTZ: a time of this year was read as one of January 1970."""
    assert columns_of(spellings).by_schema == ["v"]


@pytest.mark.parametrize(
    "spellings",
    [
        LOCAL_TIMES[:2],
        DAYS,
        [Spelling({"type": kind}, int) for kind in ("int16", "int32", "int64")],
        [Spelling(decimal(2, 5), unscaled(2)), Spelling(decimal(2, 12), unscaled(2))],
        [Spelling({"type": "string"}, str), Spelling({"type": "string", "name": "io.debezium.data.Enum"}, str)],
    ],
)
def test_schemas_that_one_rule_reads_cost_nothing(spellings: Sequence[Spelling]) -> None:
    assert columns_of(spellings).by_schema == []
    assert columns_of(spellings[::-1]).by_schema == []


def test_an_event_whose_schema_is_not_the_microbatch_s_is_read_by_its_own_too(tmp_path: Path) -> None:
    """Where a transaction is put together, events of earlier microbatches were read by the unit of the present one."""
    millis, micros_ = LOCAL_TIMES[0], LOCAL_TIMES[2]
    now = columns_of([micros_])
    assert now.by_schema == []
    across = read_across(now, [shape(schema(id=INT, v=each.of)) for each in (micros_, millis)], CdcFlow(TOPIC))
    assert (across.by_schema, across.sql_types) == (["v"], now.sql_types)
    spelled = [(each, value) for each in (millis, micros_) for value in values_of(LOCAL, 3)]
    assert natively(tmp_path, spelled, across) == expected(LOCAL, spelled)


# Events without a schema beside others


def test_an_event_without_a_schema_is_not_read_by_the_schemas_of_its_microbatch(spark: SparkSession) -> None:
    shapes = [shape(schema(id=INT, v=LOCAL_TIMES[0].of)), shape('["id","v"]')]
    micros_since = cast_to("STRING"), DeclaredColumn("TIMESTAMP_NTZ", Encoding.EPOCH, Unit.MICROS)
    columns = resolve_columns(flow=CdcFlow(TOPIC, columns={"v": micros_since[1]}), shapes=shapes, table={}, inferred={})
    lines = [
        json.dumps({"topic": TOPIC, "value": {"schema": json.loads(schema(id=INT, v=LOCAL_TIMES[0].of))}}),
        json.dumps({"topic": TOPIC, "value": {}}),
    ]
    rows = _values(spark, columns, [(lines[0], "1531481430123"), (lines[1], "1531481430123456")])
    assert rows == [datetime(2018, 7, 13, 11, 30, 30, 123_000), datetime(2018, 7, 13, 11, 30, 30, 123_456)]  # noqa: DTZ001


def _values(spark: SparkSession, columns: SourceColumns, lines: Sequence[tuple[str, str]]) -> list[Any]:
    frame = spark.createDataFrame(
        [(number, line, None, text) for number, (line, text) in enumerate(lines)], f"n INT, {RAW} STRING, {RAW_KEY} STRING, v STRING"
    )
    return [row["v"] for row in frame.selectExpr("n", f"{columns.types['v'].read('v')} AS v").orderBy("n").collect()]


# Declared columns


def test_hexadecimal_digits_that_a_schema_calls_a_text_are_read_as_declared() -> None:
    """They were read as base64, which they are too: ``deadbeef`` became six other bytes."""
    flow = CdcFlow(TOPIC, columns={"v": DeclaredColumn("BINARY", Encoding.HEX)})
    text, of_bytes = {"type": "string"}, {"type": "bytes"}
    (declared,) = resolve_columns(flow=flow, shapes=[shape(schema(v=text))], table={}, inferred={}, without_key=True).types.values()
    assert "'hex'" in declared.read("v")
    # Its own schema goes before the declaration.
    (own,) = schema_types([shape(schema(v=of_bytes))], flow).values()
    assert "'base64'" in own.read("v")


def test_a_declared_type_is_made_of_each_event_s_own_encoding_without_rounding(spark: SparkSession) -> None:
    """``decimal.handling.mode`` from precise to double: the declaration that the error advises rounded the second to two digits."""
    precise, double = decimal(2, 12), {"type": "double"}
    flow = CdcFlow(TOPIC, columns={"v": "DECIMAL(12,2)"})
    columns = resolve_columns(flow=flow, shapes=[shape(schema(id=INT, v=each)) for each in (precise, double)], table={}, inferred={})
    lines = [
        json.dumps({"topic": TOPIC, "value": {"schema": json.loads(schema(id=INT, v=each)), "payload": {}}}) for each in (precise, double)
    ]
    assert _values(spark, columns, [(lines[0], "C2E="), (lines[1], "29.13"), (lines[1], "1.005")]) == [
        Decimal("29.13"),
        Decimal("29.13"),
        None,
    ]


def test_a_zoned_time_in_a_column_of_texts_keeps_its_text(spark: SparkSession) -> None:
    """``infinity`` had no remedy: declared STRING, it was still read as a time first, and so went to the quarantine."""
    columns = columns_of(ZONED_TIMES[:1], CdcFlow(TOPIC, columns={"v": "STRING"}))
    assert columns.types["v"].native is not None
    texts = ["infinity", "-infinity", "2026-01-05T10:00:00.000000Z"]
    assert _values(spark, columns, [("{}", text) for text in texts]) == texts


def test_a_number_is_no_time_though_a_column_is_declared_as_one(spark: SparkSession) -> None:
    """A schema's plain integer, declared TIMESTAMP, was read as seconds since 1970; declared DATE, it failed the whole statement."""
    for declared in ("TIMESTAMP", "TIMESTAMP_NTZ", "DATE"):
        columns = columns_of([Spelling(int64(None), int)], CdcFlow(TOPIC, columns={"v": declared}))
        assert _values(spark, columns, [("{}", "1531481430123")]) == [None]
    millis = CdcFlow(TOPIC, columns={"v": DeclaredColumn("TIMESTAMP_NTZ", Encoding.EPOCH, Unit.MILLIS)})
    (read,) = _values(spark, columns_of([Spelling(int64(None), int)], millis), [("{}", "1531481430123")])
    assert read == datetime(2018, 7, 13, 11, 30, 30, 123_000)  # noqa: DTZ001
