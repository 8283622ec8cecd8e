"""Which columns a topic's rows have, in which order, of which types, and which of them identify a row."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.model.errors import KeysUnknownError, SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.decode.resolve_columns import resolve_columns
from airflow_cdc.pipeline.decode.schema_types import schema_types
from airflow_cdc.pipeline.decode.source_columns import SourceColumns, column_names, image_fields, is_schema, key_columns, member_names
from airflow_cdc.pipeline.decode.types.connect_types import cast_to

FLOW = CdcFlow("t")
DAYS = {"type": "int32", "name": "io.debezium.time.Date"}
MONEY = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
}


def fields(columns: Mapping[str, str | dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**(kind if isinstance(kind, dict) else {"type": kind}), "optional": True, "field": name} for name, kind in columns.items()]


def schema(**columns: str | dict[str, Any]) -> str:
    """Return an envelope's Connect schema, as the JSON converter writes it."""
    image = {"type": "struct", "fields": fields(columns), "optional": True}
    source = {"type": "struct", "fields": fields({"connector": "string"}), "field": "source"}
    members = [{**image, "field": "before"}, {**image, "field": "after"}, source, *fields({"op": "string", "ts_ms": "int64"})]
    return json.dumps({"type": "struct", "fields": members, "name": "t.Envelope"})


def key_schema(**columns: str) -> str:
    return json.dumps({"type": "struct", "fields": fields(columns), "optional": False, "name": "t.Key"})


def names(*columns: str) -> str:
    return json.dumps(columns)


def shape(value: str | None, key: str | None = '["id"]', *, file: str = "f.jsonl") -> TopicShape:
    return TopicShape(file, "t", RecordLayout.RECORD, "c", "sqlserver", 0, key, value, True, 1, 0, 0)


def resolve(
    shapes: Sequence[TopicShape],
    *,
    flow: CdcFlow = FLOW,
    table: Mapping[str, str] | None = None,
    inferred: Mapping[str, str] | None = None,
) -> SourceColumns:
    return resolve_columns(flow=flow, shapes=shapes, table=table or {}, inferred=inferred or {})


def types(columns: SourceColumns) -> dict[str, str]:
    return {name: rule.sql_type for name, rule in columns.types.items()}


# Names


def test_a_shape_is_a_schema_or_a_list_of_names() -> None:
    assert (is_schema(schema(a="int32")), is_schema(names("a"))) == (True, False)
    assert member_names(names("b", "a")) == ["b", "a"]
    assert member_names(key_schema(b="int32", a="string")) == ["b", "a"]
    assert [field["field"] for field in image_fields(schema(b="int32", a="string"))] == ["b", "a"]
    assert image_fields(json.dumps({"type": "struct", "fields": fields({"op": "string"})})) == []
    assert member_names("[]") == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], []),
        ([["id", "a", "b"]], ["id", "a", "b"]),
        # added at the end, in the middle, in front; several at once
        ([["id", "a"], ["id", "a", "z"]], ["id", "a", "z"]),
        ([["id", "z"], ["id", "a", "z"]], ["id", "a", "z"]),
        ([["id", "z"], ["first", "id", "z"]], ["first", "id", "z"]),
        ([["id", "z"], ["id", "a", "b", "z", "zz"]], ["id", "a", "b", "z", "zz"]),
        # the newer spelling may come first: order of the shapes is order of the files, not of time
        ([["id", "a", "z"], ["id", "z"]], ["id", "a", "z"]),
        # one dropped, another added in its place
        ([["id", "a", "z"], ["id", "b", "z"]], ["id", "b", "a", "z"]),
        # a table that was made anew in another order keeps the first one
        ([["id", "a", "b"], ["b", "a", "id"]], ["id", "a", "b"]),
        ([["id", "a"], ["x", "y"]], ["x", "y", "id", "a"]),
        # names that differ in case are two names here
        ([["id"], ["ID"]], ["ID", "id"]),
    ],
)
def test_a_name_new_to_the_list_goes_behind_its_left_neighbour(seen: list[list[str]], expected: list[str]) -> None:
    assert column_names([shape(names(*listed)) for listed in seen]) == expected
    assert column_names([shape(None), *[shape(schema(**dict.fromkeys(listed, "int32"))) for listed in seen], shape(None)]) == expected


def test_names_from_schemas_and_from_bare_images_are_one_list() -> None:
    assert column_names([shape(names("id", "z")), shape(schema(id="int32", a="string", z="int32"))]) == ["id", "a", "z"]


# Types


def test_types_come_from_the_events_own_schemas() -> None:
    shapes = [shape(schema(id="int32", d=DAYS, m=MONEY)), shape(None), shape(names("id", "bare")), shape(schema(id="int32", late="string"))]
    found = schema_types(shapes, FLOW)
    assert {name: rule.sql_type for name, rule in found.items()} == {"id": "INT", "d": "DATE", "m": "DECIMAL(10,2)", "late": "STRING"}


def test_a_columns_type_depends_on_the_connector() -> None:
    zoned = schema(z={"type": "string", "name": "io.debezium.time.ZonedTimestamp"})
    foreign = TopicShape("f", "t", RecordLayout.RECORD, "c", "postgresql", 0, None, zoned, True, 1, 0, 0)
    assert schema_types([shape(zoned)], FLOW)["z"].sql_type == "STRING"
    assert schema_types([foreign], FLOW)["z"].sql_type == "TIMESTAMP"


def test_two_types_of_one_column_in_a_microbatch_stop_it_with_column_types_and_file() -> None:
    shapes = [shape(schema(id="int32", v="int32")), shape(schema(id="int32", v="boolean"), file="second.jsonl")]
    with pytest.raises(SchemaChangeError) as refused:
        schema_types(shapes, FLOW)
    for fact in ("Flow t", "column v", "INT", "BOOLEAN", "second.jsonl"):
        assert fact in refused.value.message
    assert "'columns'" in refused.value.next_step
    # Declared, the column has one type, whatever the events say.
    declared = CdcFlow("t", columns={"v": "STRING"})
    assert types(resolve(shapes, flow=declared)) == {"id": "INT", "v": "STRING"}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_types_in_a_microbatch_the_one_that_holds_the_others_values_is_taken(order: tuple[int, int]) -> None:
    both = [shape(schema(v="int32")), shape(schema(v="int64"))]
    assert {name: rule.sql_type for name, rule in schema_types([both[at] for at in order], FLOW).items()} == {"v": "BIGINT"}


@pytest.mark.parametrize("layout", ["record", "value"])
def test_a_column_whose_type_changes_is_read_by_each_events_own_schema(layout: str, spark: SparkSession) -> None:
    longer = {**MONEY, "parameters": {"scale": "4", "connect.decimal.precision": "20"}}
    schemas = [schema(m=MONEY, n="int32"), schema(m=longer, n="string")]
    found = schema_types([shape(text) for text in schemas], FLOW)
    assert {name: rule.sql_type for name, rule in found.items()} == {"m": "DECIMAL(20,4)", "n": "STRING"}
    # Texts of one value differ, so no image is known by them.
    assert resolve([shape(text) for text in schemas]).by_schema == ["m", "n"]

    lines = [f'{{"schema": {text}, "payload": {{}}}}' for text in schemas]
    if layout == "record":
        lines = [f'{{"topic": "t", "value": {line}}}' for line in lines]
    frame = spark.createDataFrame([(line, None, "BNI=", "7") for line in lines], f"{RAW} STRING, {RAW_KEY} STRING, m STRING, n STRING")
    rows = frame.selectExpr(f"{found['m'].read('m')} AS m", f"{found['n'].read('n')} AS n").collect()
    assert [tuple(row) for row in rows] == [(Decimal("12.3400"), "7"), (Decimal("0.1234"), "7")]


def test_what_is_known_goes_first() -> None:
    shapes = [shape(schema(id="int32", a="int32", b="int32")), shape(names("id", "c", "d", "e"))]
    found = resolve(
        shapes,
        flow=CdcFlow("t", columns={"a": "decimal(10,2)"}),
        table={"a": "INT", "b": "BIGINT", "c": "DOUBLE"},
        inferred={"a": "STRING", "b": "STRING", "c": "STRING", "d": "BOOLEAN"},
    )
    assert types(found) == {"id": "INT", "a": "DECIMAL(10,2)", "b": "INT", "c": "DOUBLE", "d": "BOOLEAN"}
    assert list(found.types) == ["id", "c", "d", "a", "b"]
    # Of e nothing was seen but nulls: it waits for a value.
    assert found.untyped == ("e",)
    assert found.keys == ("id",)


def test_columns_that_the_table_has_and_the_events_have_not_are_none_of_this_microbatchs() -> None:
    found = resolve([shape(names("id"))], table={"id": "BIGINT", "gone": "INT"}, inferred={"id": "STRING"})
    assert types(found) == {"id": "BIGINT"}


def test_columns_that_differ_only_in_case_are_refused_by_name() -> None:
    with pytest.raises(SchemaChangeError, match=r"differ only in case.*\[\['ID', 'id'\]\].*Next step: If the source renamed"):
        resolve([shape(names("id")), shape(names("ID"))], inferred={"id": "BIGINT", "ID": "BIGINT"})


@pytest.mark.parametrize("name", ["__cdc_op", "__CDC_anything", "__cdc_"])
def test_a_source_column_of_our_own_prefix_is_refused(name: str) -> None:
    with pytest.raises(SchemaChangeError, match=rf"column {name} starts with the reserved prefix __cdc_.*Next step: Rename the column"):
        resolve([shape(names("id", name))], inferred={"id": "BIGINT", name: "STRING"})


@pytest.mark.parametrize(
    ("declared", "field", "text", "expected"),
    [
        ("DATE", DAYS, "18000", date(2019, 4, 14)),
        ("DECIMAL(20,4)", MONEY, "BNI=", Decimal("12.3400")),
        ("STRING", MONEY, "BNI=", "12.34"),
        # What the declared type would round or cut does not fit.
        ("DECIMAL(20,1)", MONEY, "BNI=", None),
        ("DECIMAL(20,1)", MONEY, "BMQ=", Decimal("12.2")),
        ("INT", MONEY, "BNI=", None),
        ("INT", {"type": "int64", "optional": True}, "4294967296", None),
        ("INT", {"type": "int64", "optional": True}, "-7", -7),
        ("DECIMAL(10,2)", {"type": "string", "optional": True}, "1.5", Decimal("1.50")),
        ("DECIMAL(10,2)", {"type": "string", "optional": True}, "1.505", None),
    ],
)
def test_a_declared_type_is_made_of_the_value_that_the_schema_declares(
    declared: str, field: dict[str, Any], text: str, expected: object, spark: SparkSession
) -> None:
    # It is what the errors advise: "Declare the column's type under 'columns' in the flows file".
    found = resolve([shape(schema(id="int32", v=field))], flow=CdcFlow("t", columns={"v": declared}))
    (row,) = (
        spark.createDataFrame([(text, "", "")], f"text STRING, {RAW} STRING, {RAW_KEY} STRING")
        .selectExpr(f"{found.types['v'].read('text')} AS value")
        .collect()
    )
    assert row["value"] == expected


@pytest.mark.parametrize("declared", ["DECIMAL(10,2)", "TIMESTAMP", "TIMESTAMP_NTZ", "DATE", "BIGINT", "DOUBLE"])
def test_a_type_that_is_declared_for_a_schema_s_text_has_a_native_reading(declared: str) -> None:
    """With schemas, ``decimal.handling.mode=string`` and a declared DECIMAL, microbatches were Spark's at ten times the cost."""
    text = {"type": "string", "optional": True}
    by_schema = resolve([shape(schema(id="int32", v=text))], flow=CdcFlow("t", columns={"v": declared})).types["v"]
    assert by_schema.native is not None
    assert by_schema.native("leaf") == cast_to(declared).native("leaf")  # type: ignore[misc]
    time_of_day = {**text, "type": "int64", "name": "io.debezium.time.MicroTime"}
    other = resolve([shape(schema(id="int32", v=time_of_day))], flow=CdcFlow("t", columns={"v": declared})).types["v"]
    assert other.native is None


@pytest.mark.parametrize(
    ("declared", "sql_type"),
    [("integer", "INT"), ("long", "BIGINT"), ("decimal(10, 2)", "DECIMAL(10,2)"), ("numeric(10,2)", "DECIMAL(10,2)"), ("real", "FLOAT")],
)
def test_a_declared_type_has_the_name_by_which_the_table_will_call_it(declared: str, sql_type: str) -> None:
    assert types(resolve([shape(names("v"))], flow=CdcFlow("t", columns={"v": declared}))) == {"v": sql_type}


def test_a_type_from_table_or_values_is_read_from_the_json_text(spark: SparkSession) -> None:
    found = resolve([shape(names("id", "a", "b"))], table={"a": "DECIMAL(4,1)"}, inferred={"id": "BIGINT", "b": "DOUBLE"})
    texts = {"id": "7", "a": "12.5", "b": "0.1"}
    read = [f"{found.types[name].read(repr(text))} AS {name}" for name, text in texts.items()]
    (row,) = spark.range(1).selectExpr(*read).collect()
    assert row.asDict() == {"id": 7, "a": Decimal("12.5"), "b": 0.1}
    assert found.types["id"].sql_type == cast_to("BIGINT").sql_type


# Keys


def test_the_flows_keys_go_before_those_of_the_events() -> None:
    assert key_columns([shape(names("a"), names("a"))], CdcFlow("t", keys=("b", "a"))) == ("b", "a")
    assert key_columns([shape(names("a"), None)], CdcFlow("t", keys=("b",))) == ("b",)


def test_the_events_keys_are_taken_in_their_own_order_however_they_are_spelled() -> None:
    assert key_columns([shape(None, names("b", "a"))], FLOW) == ("b", "a")
    assert key_columns([shape(None, names("b", "a")), shape(None, key_schema(b="int32", a="string")), shape(None, None)], FLOW) == (
        "b",
        "a",
    )


def test_records_without_keys_need_them_from_the_flow_and_the_error_shows_how() -> None:
    with pytest.raises(KeysUnknownError, match=r"Flow t: .*carry no keys") as refused:
        key_columns([shape(names("id"), None)], FLOW)
    assert "{flows: [{topic: t, keys: [COLUMN]}]}" in refused.value.next_step
    assert refused.value.transient is False


def test_keys_that_change_within_a_microbatch_are_refused_with_both() -> None:
    with pytest.raises(KeysUnknownError, match=r"keys differ.*\('a',\), \('a', 'b'\)") as refused:
        key_columns([shape(None, names("a", "b")), shape(None, names("a"))], FLOW)
    assert "flows file" in refused.value.next_step
