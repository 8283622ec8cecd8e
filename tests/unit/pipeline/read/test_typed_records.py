"""The same events as JSON lines, Avro and Parquet give the same table, to the last digit."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.inspect_lake import source_rows
from tests.conftest import Apply
from tests.support.tables import read_rows

TOPIC = "pg.public.wide"
_DECIMAL = "org.apache.kafka.connect.data.Decimal"

# By column: Connect's type, its schema's name and parameters, Spark's type.
COLUMNS: dict[str, tuple[str, str | None, dict[str, str], str]] = {
    "id": ("int64", None, {}, "BIGINT"),
    "small": ("int16", None, {}, "INT"),
    "name": ("string", None, {}, "STRING"),
    "raw": ("bytes", None, {}, "BINARY"),
    "ratio": ("double", None, {}, "DOUBLE"),
    "ok": ("boolean", None, {}, "BOOLEAN"),
    "price": ("bytes", _DECIMAL, {"scale": "2", "connect.decimal.precision": "38"}, "BINARY"),
    "born": ("int32", "io.debezium.time.Date", {}, "INT"),
    "at": ("int64", "io.debezium.time.MicroTimestamp", {}, "BIGINT"),
    "zoned": ("string", "io.debezium.time.ZonedTimestamp", {}, "STRING"),
    "mood": ("string", "io.debezium.data.Enum", {"allowed": "a,b"}, "STRING"),
}
_AVRO = {"int16": "int", "int32": "int", "int64": "long", "double": "double", "boolean": "boolean", "string": "string", "bytes": "bytes"}
_SOURCE = {"connector": "string", "ts_ms": "long", "snapshot": "string", "sequence": "string", "lsn": "long", "txId": "long"}


def row(number: int, **changed: Any) -> dict[str, Any]:
    values = {
        "id": 2**63 - number,
        "small": -number,
        "name": f'ü "{number}" \\ 😀',
        "raw": bytes([0, 255, number]),
        "ratio": 0.1 * number,
        "ok": number % 2 == 0,
        "price": (-(10**37) - number).to_bytes(16, "big", signed=True),
        "born": -number,
        "at": 1_700_000_000_123_456 + number,
        "zoned": "2026-11-21T10:00:00.123456Z",
        "mood": "a",
    }
    return {**values, **changed}


def event(op: str, change: int, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    sequence = json.dumps([str(change), str(change)])
    source = {
        "connector": "postgresql",
        "ts_ms": 1_700_000_000_000,
        "snapshot": "false",
        "sequence": sequence,
        "lsn": change,
        "txId": change,
    }
    return {"before": before, "after": after, "source": source, "op": op}


NOTHING = dict.fromkeys(COLUMNS)
EVENTS = [
    event("c", 1, None, row(1)),
    event("c", 2, None, row(2)),
    event("u", 3, None, {**NOTHING, "id": 2**63 - 2}),
    event("c", 4, None, row(4)),
    event("d", 5, {**NOTHING, "id": 2**63 - 4}, None),
    event("u", 6, None, row(1, ratio=float("inf"), price=b"\x01", name="")),
]
KEYS = [{"id": (item["after"] or item["before"])["id"]} for item in EVENTS]


def connect_schema(columns: dict[str, tuple[str, str | None, dict[str, str], str]]) -> dict[str, Any]:
    fields = [
        {"field": column, "type": kind, **({"name": name} if name else {}), **({"parameters": parameters} if parameters else {})}
        for column, (kind, name, parameters, _) in columns.items()
    ]
    return {"type": "struct", "fields": fields}


def avro_record(name: str, columns: dict[str, tuple[str, str | None, dict[str, str], str]]) -> dict[str, Any]:
    """Return the Avro schema of a row, as Kafka Connect's Avro converter writes it: unions with null, ``connect.…`` beside the type."""

    def field(column: str) -> dict[str, Any]:
        kind, connect_name, parameters, _ = columns[column]
        named = {"connect.name": connect_name} if connect_name else {}
        typed = {"connect.type": kind} if kind == "int16" else {}
        given = {"connect.parameters": parameters} if parameters else {}
        annotated = {"type": _AVRO[kind], **typed, **named, **given}
        return {"name": column, "type": ["null", annotated if len(annotated) > 1 else _AVRO[kind]], "default": None}

    return {"type": "record", "name": name, "fields": [field(column) for column in columns]}


ID = {"id": COLUMNS["id"]}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "pg.public.wide",
    "connect.name": "pg.public.wide.Envelope",
    "fields": [
        {"name": "before", "type": ["null", avro_record("Value", COLUMNS)], "default": None},
        # The second use of a type is its name.
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": n, "type": t} for n, t in _SOURCE.items()]}},
        {"name": "op", "type": "string"},
    ],
}
_ROW_DDL = ", ".join(f"{column}: {kind}" for column, (*_, kind) in COLUMNS.items())
_SOURCE_DDL = ", ".join(f"{name}: {'BIGINT' if kind == 'long' else 'STRING'}" for name, kind in _SOURCE.items())
DDL = f"before STRUCT<{_ROW_DDL}>, after STRUCT<{_ROW_DDL}>, source STRUCT<{_SOURCE_DDL}>, op STRING"


def write_json(archive: Path) -> None:
    schema = {
        "type": "struct",
        "fields": [{**connect_schema(COLUMNS), "field": "before"}, {**connect_schema(COLUMNS), "field": "after"}],
    }

    def spelled(document: Any) -> Any:
        text = json.dumps(document, default=lambda raw: base64.b64encode(raw).decode())
        return json.loads(text.replace("Infinity", '"Infinity"'))

    records = [
        {
            "topic": TOPIC,
            "partition": 0,
            "offset": offset,
            "key": {"schema": connect_schema(ID), "payload": key},
            "value": {"schema": schema, "payload": spelled(value)},
        }
        for offset, (key, value) in enumerate(zip(KEYS, EVENTS, strict=True))
    ]
    archive.mkdir()
    (archive / "wide.jsonl").write_text("".join(json.dumps(item) + "\n" for item in records))


def write_avro(spark: SparkSession, path: Path, rows: list[dict[str, Any]], ddl: str, schema: dict[str, Any]) -> None:
    """Write one Avro file of exactly that schema."""
    scratch = path.with_suffix(".spark")
    frame = spark.createDataFrame(rows, ddl).coalesce(1)
    frame.write.format("avro").option("avroSchema", json.dumps(schema)).save(str(scratch))
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(next(scratch.glob("*.avro")), path)
    shutil.rmtree(scratch)


def arrow_row(columns: dict[str, tuple[str, str | None, dict[str, str], str]]) -> Any:
    kinds = {"BIGINT": pyarrow.int64(), "INT": pyarrow.int32(), "STRING": pyarrow.string(), "BINARY": pyarrow.binary()}
    kinds |= {"DOUBLE": pyarrow.float64(), "BOOLEAN": pyarrow.bool_()}
    return pyarrow.struct([(column, kinds[kind]) for column, (*_, kind) in columns.items()])


def write_parquet(path: Path, values: list[dict[str, Any]]) -> None:
    """Write whole records, the values' Avro schema in the footer as Kafka Connect's sinks leave it."""
    source = pyarrow.struct([(name, pyarrow.int64() if kind == "long" else pyarrow.string()) for name, kind in _SOURCE.items()])
    value = pyarrow.struct([("before", arrow_row(COLUMNS)), ("after", arrow_row(COLUMNS)), ("source", source), ("op", pyarrow.string())])
    place = [("topic", pyarrow.string()), ("partition", pyarrow.int32()), ("offset", pyarrow.int64())]
    avro = {"type": "record", "name": "Record", "fields": [{"name": "value", "type": ["null", ENVELOPE]}]}
    schema = pyarrow.schema([*place, ("key", arrow_row(ID)), ("value", value)], metadata={"parquet.avro.schema": json.dumps(avro)})
    records = [
        {"topic": TOPIC, "partition": 0, "offset": offset, "key": key, "value": value}
        for offset, (key, value) in enumerate(zip(KEYS, values, strict=True))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records, schema=schema), path, compression="snappy")


@pytest.fixture(scope="module")
def reference(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the lake of the events as JSON lines."""
    root = tmp_path_factory.mktemp("json")
    write_json(root / "archive")
    (flow,) = apply(root / "archive", root / "lake").flows
    assert flow.events.rejected == 0
    return root / "lake"


def assert_same_table(spark: SparkSession, lake: Path, reference: Path) -> None:
    assert read_rows(spark, str(lake), TOPIC).rows == read_rows(spark, str(reference), TOPIC).rows
    types, expected = (dict(source_rows(spark, str(root), TOPIC)[0].dtypes) for root in (lake, reference))
    assert types == expected


def test_avro_values_and_keys_as_a_sink_writes_them(apply: Apply, spark: SparkSession, reference: Path, archive: Path, lake: Path) -> None:
    stem = archive / TOPIC / "partition=0" / f"{TOPIC}+0+0000000000"
    write_avro(spark, stem.with_name(f"{stem.name}.avro"), EVENTS, DDL, ENVELOPE)
    write_avro(spark, stem.with_name(f"{stem.name}.keys.avro"), KEYS, "id BIGINT", avro_record("Key", ID))
    report = apply(archive, lake)

    assert (report.flows[0].events.read, report.flows[0].events.rejected, report.ignored_files) == (len(EVENTS), 0, ())
    assert_same_table(spark, lake, reference)
    assert {row["name"] for row in read_rows(spark, str(lake), TOPIC).rows} == {"", None}


def test_parquet_of_whole_records(apply: Apply, spark: SparkSession, reference: Path, archive: Path, lake: Path) -> None:
    # The name shows nothing, the first bytes do.
    write_parquet(archive / "part-00000", EVENTS)
    (flow,) = apply(archive, lake).flows

    assert (flow.events.read, flow.events.rejected) == (len(EVENTS), 0)
    assert_same_table(spark, lake, reference)


def test_a_file_that_is_not_what_its_name_says_is_set_aside(apply: Apply, archive: Path, lake: Path) -> None:
    write_parquet(archive / f"{TOPIC}.parquet", EVENTS)
    (archive / f"{TOPIC}+0+9.parquet").write_bytes(b"PAR1 cut")
    (archive / f"{TOPIC}+0+10.avro").write_bytes(b"cut")
    report = apply(archive, lake, may_fail=True)

    assert report.flows[0].error is not None
    assert report.flows[0].error["type"] == "UnreadableFileError"
    assert {file.path for file in report.set_aside_files} == {f"{TOPIC}+0+9.parquet", f"{TOPIC}+0+10.avro"}


@pytest.mark.deep
@pytest.mark.parametrize("form", ["avro", "parquet"])
def test_types_of_the_file_s_own_count_where_connect_has_no_name_for_them(
    form: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    row = """named_struct('id', 1, 'price', -12345678901234567890.1234567890BD, 'whole', 1234BD, 'day', DATE'1969-12-31',
        'at', TIMESTAMP'2026-11-21 10:00:00.123456', 'local', TIMESTAMP_NTZ'1969-12-31 10:00:00.000001', 'list', array(1, NULL))"""
    source = "named_struct('connector', 'postgresql', 'ts_ms', 1L, 'sequence', to_json(array('1', '1')), 'lsn', 1L)"
    value = f"named_struct('after', {row}, 'source', {source}, 'op', 'c')"
    frame = spark.sql(f"SELECT to_json(named_struct('id', 1)) AS key, {value} AS value, '{TOPIC}' AS topic")
    frame.coalesce(1).write.format(form).mode("append").save(str(archive))
    (flow,) = apply(archive, lake).flows
    frame, _ = source_rows(spark, str(lake), TOPIC)

    assert flow.events.rejected == 0
    assert dict(frame.dtypes) == {
        "id": "int",
        "price": "decimal(30,10)",
        "whole": "decimal(4,0)",
        "day": "date",
        "at": "timestamp",
        "local": "timestamp_ntz",
        "list": "array<int>",
    }
    expected = spark.sql(f"SELECT inline(array({row}))")
    assert frame.collect() == expected.collect()
