"""Schemas in files, of whatever form: the same fields as the connector's events have."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema, to_document
from airflow_cdc.model.handed_over.read_files import read_files
from airflow_cdc.model.handed_over.source_schemas import HandedOver, bring_together
from tests.unit.model.handed_over.spellings import DECIMAL, Json, as_avro, as_json_schema, captured, essence, image_fields, topic_of_table

# One record for each row's schema: many captures have tables of the same columns.
TABLES = list({json.dumps(image_fields(record)): record for record in captured() if topic_of_table(record)}.values())
IDS = [f"{record['topic']} {place}" for place, record in enumerate(TABLES)]
CONNECTORS = {"mdb": "mariadb", "pgty": "postgresql", "shop": "postgresql", "mssql": "sqlserver", "orcl": "oracle"}

ROW = {
    "type": "struct",
    "name": "shop.public.orders.Value",
    "optional": True,
    "fields": [
        {"field": "id", "type": "int32"},
        {"field": "total", "type": "bytes", "name": DECIMAL, "version": 1, "parameters": {"scale": "2"}, "optional": True},
        {"field": "placed", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1, "optional": True},
    ],
}
SOURCE = {"type": "struct", "name": "io.debezium.connector.postgresql.Source", "fields": [{"field": "lsn", "type": "int64"}]}
ENVELOPE = {
    "type": "struct",
    "name": "shop.public.orders.Envelope",
    "fields": [{**ROW, "field": "before"}, {**ROW, "field": "after"}, {**SOURCE, "field": "source"}, {"field": "op", "type": "string"}],
}
KEY = {"type": "struct", "name": "shop.public.orders.Key", "fields": [{"field": "id", "type": "int32"}]}
ORDERS = "shop.public.orders"


def read(*documents: Any, flow: str | None = None) -> HandedOver:
    files = [(f"{place}.json", json.dumps(document).encode()) for place, document in enumerate(documents)]
    return bring_together(read_files(files), flow)


def one(*documents: Any, flow: str | None = None) -> SourceSchema:
    (schema,) = read(*documents, flow=flow).schemas
    return schema


def fields(schema: SourceSchema) -> list[Json]:
    return [{**column.field, "field": column.name} for column in schema.columns]


def essences(nodes: Iterable[Json]) -> list[Json]:
    return [{**essence(node), "field": node["field"]} for node in nodes]


# Captures: what the events say is what is read, however it is spelled


@pytest.mark.parametrize("record", TABLES, ids=IDS)
def test_an_event_with_its_schema_gives_its_columns_connector_and_key(record: Json) -> None:
    schema = one(record)
    assert fields(schema) == essences(image_fields(record))
    assert schema.flow == record["topic"]
    assert schema.connector == CONNECTORS.get(record["topic"].split(".")[0], schema.connector)
    key = record["key"]
    assert list(schema.keys) == ([field["field"] for field in key["schema"]["fields"]] if key else [])


@pytest.mark.parametrize("record", TABLES, ids=IDS)
@pytest.mark.parametrize("spell", [lambda node: node, as_avro, as_json_schema], ids=["Connect", "Avro", "JSON Schema"])
def test_the_envelopes_and_the_rows_schema_give_the_same_in_each_spelling(record: Json, spell: Any) -> None:
    envelope = record["value"]["schema"]
    of_events = one(record)
    assert fields(one(spell(envelope), flow="x")) == fields(of_events)
    assert one(spell(envelope), flow="x").connector == of_events.connector
    row = {"type": "struct", "fields": image_fields(record)}
    assert fields(one(spell(row), flow="x")) == fields(of_events)


def test_a_connectors_own_records_are_left_aside() -> None:
    own = [record["value"]["schema"] for record in captured() if record["value"]["schema"]["name"].startswith("io.debezium.")]
    assert len(own) >= 4
    found = read(*own, *map(as_avro, own), ENVELOPE)
    assert [schema.flow for schema in found.schemas] == [ORDERS]
    assert {each.reason for each in found.aside} == {"it is of a connector's own records, not of a table's"}


def test_mongodbs_documents_declare_no_columns() -> None:
    (carts, *_) = [record for record in captured() if record["topic"] == "mg.shop.carts"]
    with pytest.raises(ConfigurationError, match="before and after are texts, as those of documents are"):
        read(carts)


# Any schema: its spelling in Avro and in JSON Schema gives the same fields

SEMANTIC = {
    "int32": ["io.debezium.time.Date", "io.debezium.time.Time", "org.apache.kafka.connect.data.Date"],
    "int64": ["io.debezium.time.MicroTimestamp", "io.debezium.time.NanoTimestamp", "org.apache.kafka.connect.data.Timestamp"],
    "string": ["io.debezium.time.ZonedTimestamp", "io.debezium.data.Uuid", "io.debezium.data.Json"],
    "bytes": ["io.debezium.data.Bits"],
}
TYPES = ["int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"]
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
OPTIONAL = st.booleans().map(lambda optional: {"optional": True} if optional else {})


@st.composite
def leaves(draw: st.DrawFn) -> Json:
    kind = draw(st.sampled_from(TYPES))
    name = draw(st.none() | st.sampled_from(SEMANTIC[kind])) if kind in SEMANTIC else None
    length = draw(st.none() | st.integers(1, 99)) if name else None
    parameters = {"parameters": {"length": str(length)}} if length else {}
    return {"type": kind, **({"name": name, "version": 1} if name else {}), **parameters, **draw(OPTIONAL)}


@st.composite
def decimals(draw: st.DrawFn) -> Json:
    precision = draw(st.none() | st.integers(1, 80))
    parameters = {"scale": str(draw(st.integers(-3, 40)))} | ({"connect.decimal.precision": str(precision)} if precision else {})
    return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": parameters, **draw(OPTIONAL)}


def structs(inner: st.SearchStrategy[Json], name: st.SearchStrategy[str | None]) -> st.SearchStrategy[Json]:
    members = st.dictionaries(NAMES, inner, min_size=1, max_size=4)
    listed = members.map(lambda chosen: [{**field, "field": each} for each, field in chosen.items()])
    return st.builds(
        lambda fields, title, optional: {"type": "struct", "fields": fields, **({"name": title} if title else {}), **optional},
        listed,
        name,
        OPTIONAL,
    )


def nested(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    arrays = st.builds(lambda items, optional: {"type": "array", "items": items, **optional}, inner, OPTIONAL)
    keys = st.sampled_from([{"type": "string"}, {"type": "int32"}])
    maps = st.builds(lambda key, value, optional: {"type": "map", "keys": key, "values": value, **optional}, keys, leaves(), OPTIONAL)
    return arrays | maps | structs(inner, st.none())


ROWS = structs(st.recursive(leaves() | decimals(), nested, max_leaves=6), st.just("server.schema.tab.Value"))


@given(ROWS)
def test_any_row_is_read_from_avro_as_from_connect(row: Json) -> None:
    assert fields(one(as_avro({**row, "optional": False}))) == essences(row["fields"])


@given(ROWS)
def test_any_row_is_read_from_json_schema_as_from_connect(row: Json) -> None:
    assert fields(one(as_json_schema({**row, "optional": False}))) == essences(row["fields"])


# What an Avro schema says without Connect's words


def test_avro_that_no_converter_wrote_declares_types_in_its_own_words() -> None:
    schema = {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "paid", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW"]}},
            {"name": "before", "type": ["null", "State"]},
            {"name": "hash", "type": {"type": "fixed", "name": "Md5", "size": 16}},
            {"name": "either", "type": ["null", "int", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "next", "type": ["null", "Order"]},
        ],
    }
    assert fields(one(schema, flow="orders")) == [
        {"field": "id", "type": "string", "name": "uuid"},
        {"field": "paid", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "12"}},
        {"field": "at", "type": "int64", "name": "timestamp-micros"},
        {"field": "state", "type": "string", "name": "shop.State"},
        {"field": "before", "type": "string", "name": "shop.State"},
        {"field": "hash", "type": "bytes", "name": "shop.Md5"},
        {"field": "either"},
        {"field": "tags", "type": "array", "items": {"type": "string"}},
        # A type that holds itself has no end; nothing is known of it.
        {"field": "next"},
    ]


def test_a_record_without_connects_words_keeps_the_name_by_which_it_is_read() -> None:
    number = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "fields": []}
    schema = {"type": "record", "name": "a.b.t.Value", "fields": [{"name": "n", "type": ["null", number]}, {"name": "m", "type": number}]}
    schema["fields"][1]["type"] = "io.debezium.data.VariableScaleDecimal"
    assert [column.field["name"] for column in one(schema).columns] == ["io.debezium.data.VariableScaleDecimal"] * 2


def test_of_several_avro_types_in_one_file_the_last_is_the_rows() -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "amount", "type": "long"}]}
    order = {"type": "record", "name": "shop.t.Value", "fields": [{"name": "price", "type": "shop.Money"}]}
    assert [(schema.flow, len(schema.columns)) for schema in read([money, order]).schemas] == [("shop.t", 1)]


def test_json_schema_that_no_converter_wrote_is_read_as_the_converter_reads_it() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"money": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
        "properties": {
            "id": {"type": "integer"},
            "rate": {"type": ["null", "number"]},
            "state": {"enum": ["NEW", "DONE"]},
            "price": {"$ref": "#/definitions/money"},
            "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
            "any": {},
        },
    }
    assert fields(one(schema, flow="orders")) == [
        {"field": "id", "type": "int64"},
        {"field": "rate", "type": "double"},
        {"field": "state", "type": "string"},
        {"field": "price", "type": "struct", "fields": [{"field": "cents", "type": "int64"}]},
        {"field": "either"},
        {"field": "any"},
    ]


# Which flow, which columns


def test_columns_that_extract_new_record_state_added_are_no_columns() -> None:
    flat = {**ROW, "fields": [*ROW["fields"], {"field": "__deleted", "type": "string"}, {"field": "__source_lsn", "type": "int64"}]}
    assert fields(one(flat)) == essences(ROW["fields"])
    kept = {**ROW, "fields": [*ROW["fields"], {"field": "__source_lsn", "type": "int64"}]}
    assert len(one(kept).columns) == 4


def test_a_table_may_have_columns_called_as_members_of_an_envelope() -> None:
    row = {"type": "struct", "fields": [{"field": name, "type": "string"} for name in ("op", "before", "after", "source", "data")]}
    assert [column.name for column in one(row, flow="audit").columns] == ["op", "before", "after", "source", "data"]


def test_the_databases_word_is_what_the_connector_was_set_to_propagate() -> None:
    parameters = {
        "__debezium.source.column.type": "NUMERIC",
        "__debezium.source.column.length": "12",
        "__debezium.source.column.scale": "2",
    }
    field = {"field": "total", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "2", **parameters}}
    assert one({**ROW, "fields": [field]}).columns[0].native == "NUMERIC(12,2)"


def test_a_document_of_ours_passes_as_it_is() -> None:
    schema = SourceSchema(
        ORDERS, "oracle", (SourceColumn("ID", {"type": "int64"}, "NUMBER(10)"), SourceColumn("X", {})), ("ID",), "catalogue"
    )
    other = SourceSchema("a.b.c", "oracle", schema.columns)
    document = to_document([schema, other])
    assert read(document).schemas == (other, schema)
    assert read(document, flow=ORDERS).schemas == (schema,)
    assert one(to_document([schema]), flow="renamed").flow == "renamed"
    with pytest.raises(ConfigurationError, match=r"no schema of x, but of 2 others: a\.b\.c, shop\.public\.orders"):
        read(document, flow="x")


def test_the_envelopes_name_gives_the_topic_where_nothing_else_does() -> None:
    assert one(ENVELOPE).flow == one(as_avro(ENVELOPE)).flow == one(as_json_schema(ENVELOPE)).flow == ORDERS
    assert one(ENVELOPE, flow="routed").flow == "routed"
    with pytest.raises(ConfigurationError, match=r"topic of these schemas is not known: Connect schema, 0\.json") as raised:
        read({**ROW, "name": "Order"})
    assert "--flow TOPIC" in raised.value.next_step


@pytest.mark.parametrize(("word", "connector"), [("v2.postgresql", "postgresql"), ("mongo", "mongodb"), ("db2", "db2")])
def test_the_source_blocks_name_identifies_the_connector(word: str, connector: str) -> None:
    source = {**SOURCE, "name": f"io.debezium.connector.{word}.Source", "field": "source"}
    assert one({**ENVELOPE, "fields": [*ENVELOPE["fields"][:2], source, ENVELOPE["fields"][3]]}).connector == connector


def test_of_two_schemas_of_one_flow_the_same_is_one_and_another_is_refused() -> None:
    assert one(ENVELOPE, as_avro(ENVELOPE), KEY).keys == ("id",)
    other = {**ROW, "fields": ROW["fields"][:1]}
    with pytest.raises(ConfigurationError, match=r"Two schemas of shop\.public\.orders differ, .* 0\.json; Connect schema, 1\.json"):
        read(ROW, other)


# What is none


WRONG = [
    (b"", "x is empty"),
    (b"\xff\xfe", "x is no UTF-8 text"),
    (b"\x1f\x8b\x08", "x is gzip, expected JSON"),
    (b"Obj\x01", "x is an Avro data file"),
    (b"PAR1", "x is a Parquet file"),
    (b"PK\x03\x04rest", "x is no export of Apicurio Registry"),
    (b"id int", "x is no JSON: Expecting value: line 1 column 1"),
    (b'syntax = "proto3";', "it is Protobuf"),
    (b'"int"', "x holds 'int', expected a schema"),
    (b"[]", r"x holds \[\], expected a schema"),
    (b'["shop.public.orders-value"]', "x holds a list of 'shop.public.orders-value' and the like"),
    (b'{"error_code": 40401, "message": "Subject not found."}', "an error of a registry: Subject not found"),
    (b'{"type": "int32", "optional": false}', "an object of type 'int32' with the members"),
    (b'{"id": 1, "name": "ann"}', r"an object with the members \['id', 'name'\]"),
    (b'{"topic": "t", "value": {"id": 1}}', "the event carries no schema"),
    (b'{"schema": null, "payload": {"id": 1}}', "the event carries no schema"),
    (b'{"format": 2, "schemas": []}', "has format 2, expected 1"),
    (b'{"type": "record", "name": "t.Value", "fields": [{"name": "a", "type": "Money"}]}', "refers to type Money and nothing defines it"),
    (b'{"type": "record", "name": "t.Value", "fields": [{"name": "a", "type": 7}]}', "A part of the Avro schema is '7'"),
    (b'{"properties": {"a": {"$ref": "#/definitions/money"}}}', "refers to '#/definitions/money' and nothing defines it"),
    (b'{"schema": "message Order {}", "schemaType": "PROTOBUF"}', "x: it is Protobuf, which is not read"),
    (b'{"schema": "{}", "schemaType": "THRIFT"}', "it is of type THRIFT, expected AVRO or JSON"),
    (b'{"schema": "{"}', "its schema is no JSON"),
    (b'{"subject": "t-value", "version": 1, "schema": "\\"string\\""}', "t-value: it is string, expected a struct, record or object"),
]


@pytest.mark.parametrize(("data", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_is_no_schema_of_rows_is_refused_by_what_was_seen(data: bytes, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as raised:
        bring_together(read_files([("x", data)]))
    assert raised.value.next_step
