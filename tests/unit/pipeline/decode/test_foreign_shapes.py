"""Records spelled unlike their topic's: set aside where they are few; where they are not, the source changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.pipeline.decode.foreign_shapes import Foreign, find_foreign
from tests.conftest import Apply
from tests.support.events import Record, sqlserver, write_records
from tests.support.tables import read_quarantine, read_rows

TOPIC = "server1.testDB.dbo.spelled"


def shape(records: int, value: Any, key: Any = ("id",)) -> TopicShape:
    texts = [None if part is None else part if isinstance(part, str) else json.dumps(part) for part in (key, value)]
    return TopicShape("f", TOPIC, RecordLayout.RECORD, "u", "sqlserver", 0, texts[0], texts[1], True, records, 0, 0)


def schema(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"type": "struct", "field": "after", "fields": list(fields)}]}


def field(column: str, kind: Any = "int32", **more: Any) -> dict[str, Any]:
    return {"field": column, "type": kind, **more}


GOOD = shape(100, ["id", "v"])
SCHEMA = shape(100, schema(field("id")), {"type": "struct", "fields": [field("id")]})


@pytest.mark.parametrize(
    ("foreign", "good"),
    [
        (shape(5, ["id", "v", "__cdc_op"]), GOOD),
        (shape(5, ["ID", "v"]), GOOD),
        (shape(1, ["id", "v"], ["other"]), GOOD),
        (shape(1, ["id", "v"], []), GOOD),
        (shape(1, ["id", "v"], "5"), GOOD),
        (shape(1, ["id", "v"], [[[]]]), GOOD),
        (shape(1, "no JSON"), GOOD),
        (shape(1, "7"), GOOD),
        (shape(1, schema({"field": "id", "type": ["int32"]})), SCHEMA),
        (shape(1, schema(field("id", "no type"))), SCHEMA),
        (shape(1, schema(7)), SCHEMA),
        (shape(1, {"fields": 7}), SCHEMA),
        (shape(1, {}), SCHEMA),
        (shape(1, schema(field("id", "bytes", name="org.apache.kafka.connect.data.Decimal", parameters={"scale": "x"}))), SCHEMA),
        (shape(1, schema(field("id")), {"fields": {}}), SCHEMA),
    ],
)
def test_few_records_of_another_spelling_are_foreign(foreign: TopicShape, good: TopicShape) -> None:
    found = find_foreign([good, foreign], columns=(), keys=None)
    assert found.holds(foreign)
    assert not found.holds(good)


@pytest.mark.parametrize(
    "changed",
    [
        # Many are no accident.
        shape(30, ["ID", "v"]),
        shape(30, ["id", "v"], ["other"]),
        # A column more or less, and no key, are what sources do; a schema that can be read is the source's word.
        shape(1, ["id"]),
        shape(1, ["id", "v", "w"]),
        shape(1, ["id", "v"], None),
        shape(1, schema(field("ID", "string"))),
        shape(1, schema(field("id")), {"type": "struct", "fields": [field("id"), field("v")]}),
    ],
)
def test_a_source_that_changed_is_not_foreign(changed: TopicShape) -> None:
    assert find_foreign([GOOD, changed], columns=(), keys=None) == Foreign()


def test_the_table_decides_how_a_name_is_spelled_and_what_the_key_is() -> None:
    upper = shape(3, ["ID", "v"], ["ID"])
    assert not find_foreign([upper], columns=("ID", "v"), keys=("ID",)).holds(upper)
    # Nothing but what the table does not have: the flow must stop.
    assert find_foreign([upper], columns=("id", "v"), keys=("id",)) == Foreign()
    assert find_foreign([upper, GOOD], columns=("id", "v"), keys=("id",)).holds(upper)


def event(number: int, **more: Any) -> Record:
    return sqlserver("c", commit=number, change=number, offset=number, topic=TOPIC, after={"id": number, "v": "x", **more})


def test_odd_records_go_to_the_quarantine_and_the_others_into_the_table(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    odd = [event(50, __cdc_op="d"), event(51, ID=7), event(52), {**event(53), "key": {"no": 1}}]
    odd[2]["value"]["source"]["connector"] = "none"
    # What decoding finds to be another thing than the survey did stops nothing either.
    stray = event(54)
    stray["value"] = {"schema": "x", **stray["value"]}
    write_records(tmp_path / "archive" / "1.jsonl", [*(event(number) for number in range(1, 50)), *odd, stray])
    report = apply(tmp_path / "archive", tmp_path / "lake")
    (batch,) = report.flows[0].batches
    assert batch.rejects == {"foreign_shape": 3, "other_connector": 1}
    assert batch.events.read == 54
    assert len(read_rows(spark, str(tmp_path / "lake"), TOPIC).rows) == batch.events.merged
    assert {record["offset"] for record in read_quarantine(spark, str(tmp_path / "lake"))} == {50, 51, 52, 53}


def test_a_record_alone_in_its_topic_is_taken_in_or_names_what_it_needs(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """Found by the fuzz: the survey and the decoder read such lines apart, or the merge was asked for rows without a key."""
    whole = event(1)
    records: dict[str, Record] = {
        # Beside the value a record's members are nobody's, whatever they are called.
        "stray_source": {**whole, "source": 1e308},
        "stray_payload": {**whole, "payload": [7]},
        "stray_beside_nothing": {**whole, "value": None, "source": "sink-1"},
        "empty_key": {**whole, "key": {}},
        "odd_key": {**whole, "key": {"schema": [[[]]]}},
    }
    for topic, record in records.items():
        write_records(tmp_path / "archive" / f"{topic}.jsonl", [{**record, "topic": topic}])
    found = {flow.flow: flow for flow in apply(tmp_path / "archive", tmp_path / "lake", may_fail=True).flows}
    for topic in ("stray_source", "stray_payload"):
        assert (found[topic].events.merged, found[topic].events.read) == (1, 1), found[topic].error
    assert found["stray_beside_nothing"].events.tombstones == 1
    for topic in ("empty_key", "odd_key"):
        assert (found[topic].error or {}).get("type") == "KeysUnknownError"
