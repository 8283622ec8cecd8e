"""Lines in other shapes, and the envelopes that they become."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.read.respell import MARKS, respelled
from airflow_cdc.pipeline.spark.sql import mentions

POSTGRESQL = {"__source_lsn": 7, "__source_sequence": '["6","7"]', "__source_ts_ms": 5}
SOURCE = {"ts_ms": "5", "sequence": '["6","7"]', "lsn": "7", "connector": "postgresql"}
ENVELOPE = {"before": None, "after": {"id": 1}, "op": "c", "source": {"connector": "mysql", "pos": 4}}


def envelope(op: str, *, before: Any = None, after: Any = None, source: dict[str, str] | None = None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": SOURCE if source is None else source}


# fmt: off
CASES: list[tuple[Any, Any]] = [
    # flattened: whatever looks like a member but is a text's, is nested, or is no name of ours stays a column
    ({"id": 1, "v": 'x,"__op":"d"}', "n": {"a": [1, {}]}, "__mine": 2, "__op": "c", **POSTGRESQL},
     envelope("c", after={"id": 1, "v": 'x,"__op":"d"}', "n": {"a": [1, {}]}, "__mine": 2})),
    # metadata in front, and values with quotes in them
    ({"__op": "u", **POSTGRESQL, "__source_query": 'say "hi", \\', "id": 1, "z": None}, envelope("u", after={"id": 1, "z": None})),
    ({"id": 1, "__deleted": "true", **POSTGRESQL}, envelope("d", before={"id": 1})),
    ({"id": 1, "__deleted": "false", **POSTGRESQL}, envelope("u", after={"id": 1})),
    ({"id": 1, "__op": "d", "__deleted": "true", **POSTGRESQL}, envelope("d", before={"id": 1})),
    # a record of columns called as an envelope's members are
    ({"op": "x", "schema": "s", "payload": "p", "topic": None, "__op": "c", **POSTGRESQL},
     envelope("c", after={"op": "x", "schema": "s", "payload": "p", "topic": None})),
    # the connector by its name, or by its fields without "source"
    ({"id": 1, "__op": "c", "__connector": "sqlserver"}, envelope("c", after={"id": 1}, source={"connector": "sqlserver"})),
    ({"id": 1, "__op": "c", "__file": "b.1", "__pos": 4},
     envelope("c", after={"id": 1}, source={"file": "b.1", "pos": "4", "connector": "mysql"})),
    ({"topic": 't"', "partition": 0, "offset": 3, "headers": [{"key": "__op", "value": "c"}], "key": {"id": 1},
      "value": {"id": 1, "__op": "c", **POSTGRESQL}},
     {"topic": 't"', "partition": 0, "offset": 3, "timestamp": None, "headers": [{"key": "__op", "value": "c"}], "key": {"id": 1},
      "value": envelope("c", after={"id": 1})}),
    # CloudEvents: images bare or with a schema, or a whole envelope
    ({"specversion": "1.0", "iodebeziumop": "u", "iodebeziumconnector": "sqlserver", "iodebeziumcommitlsn": "a:b:c",
      "data": {"before": {"id": 1}, "after": {"id": 1, "v": None}}},
     envelope("u", before={"id": 1}, after={"id": 1, "v": None}, source={"connector": "sqlserver", "commit_lsn": "a:b:c"})),
    ({"specversion": "1.0", "iodebeziumop": "c", "data": {"schema": {"type": "struct"}, "payload": {"before": None, "after": {"id": 1}}}},
     {"schema": {"type": "struct"}, "payload": envelope("c", after={"id": 1}, source={})}),
    ({"specversion": "1.0", "data": ENVELOPE}, ENVELOPE),
]
UNTOUCHED = [
    "null", "", "no JSON", '{"id":1,"__op":"c"', '{"v": "__op"}', '{"__op": null, "id": 1}', '{"specversion": "1.0", "data": {"id": 1}}',
    '{"topic": "t", "headers": [{"key": "__op", "value": "c"}], "value": {"op": "c",  "after": {"id": 1.10}}}',
    '{"specversion": "1.0", "data": "AAAA", "iodebeziumop": "c"}', '{"topic": "t", "value": null, "x": "__deleted"}',
]
# fmt: on


def test_a_record_in_another_shape_becomes_an_envelope(spark: SparkSession) -> None:
    lines = [json.dumps(line, indent=indent) for line, _ in CASES for indent in (None, 1)]
    found = spark.createDataFrame([(line,) for line in lines], "line STRING").selectExpr(f"{respelled('line')} AS line").collect()

    assert [json.loads(row["line"]) for row in found] == [expected for _, expected in CASES for _ in range(2)]


DB2_LSN, SQLSERVER_LSN = "00000027:00000758:00000000000a4c1e", "00000027:00000758:0005"
BY_FIELDS = [
    ({"commit_lsn": DB2_LSN, "change_lsn": DB2_LSN}, "db2"),
    ({"commit_lsn": DB2_LSN}, "db2"),
    ({"commit_lsn": SQLSERVER_LSN, "change_lsn": SQLSERVER_LSN, "event_serial_no": 1}, "sqlserver"),
    # Spelled as neither: it has no position, and is rejected so.
    ({"commit_lsn": "x"}, "sqlserver"),
    ({"commit_scn": "7", "scn": "6"}, "oracle"),
    ({"file": "b.1", "pos": 4, "sequence": "[null,null]"}, "mysql"),
    ({"sequence": '["6","7"]', "lsn": 7}, "postgresql"),
    ({"ts_ms": 5}, None),
]


def test_a_flattened_db2_record_without_connector_name_is_db2s_and_not_sql_servers(spark: SparkSession) -> None:
    lines = [json.dumps({"id": 1, "__op": "c", **{f"__source_{name}": value for name, value in source.items()}}) for source, _ in BY_FIELDS]
    found = spark.createDataFrame([(line,) for line in lines], "line STRING").selectExpr(f"{respelled('line')} AS line").collect()

    assert [json.loads(row["line"])["source"].get("connector") for row in found] == [connector for _, connector in BY_FIELDS]


def test_any_other_line_keeps_its_text(spark: SparkSession) -> None:
    found = spark.createDataFrame([(line,) for line in UNTOUCHED], "line STRING").selectExpr(f"{respelled('line')} AS line").collect()

    assert [row["line"] for row in found] == UNTOUCHED


def test_what_is_named_like_a_mark_but_no_member_marks_no_line(spark: SparkSession) -> None:
    """Connectors name a header ``__op``: every file with such a record was read as if it held other shapes, at twice the cost."""
    marked = ['{"__op": "c"}', '{"__op"\n : "c"}', '{"specversion":"1.0"}']
    unmarked = ['{"headers": [{"key": "__op", "value": "d"}], "value": null}', '{"v": "specversion"}', "null"]
    lines = spark.createDataFrame([(line,) for line in marked + unmarked], "line STRING")

    found = lines.selectExpr(f"{mentions('line', MARKS)} AS marked").collect()

    assert [row["marked"] for row in found] == [True] * len(marked) + [False] * len(unmarked)
