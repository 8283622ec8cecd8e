"""The MongoDB document's own example events and keys, letter by letter, through a real archive into real tables."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.report import EventCounts
from airflow_cdc.pipeline.inspect_lake import read_rows
from tests.conftest import Apply
from tests.events import Record, write_records
from tests.golden.test_reference_events import by_flow, message, record, stored

CUSTOMERS = "fulfillment.inventory.customers"
KEYS = {
    "1234": "1234",
    "12.34": "12.34",
    '"1234"': '"1234"',
    '{"hi" : "kafka", "nums" : [10.0, 100.0, 1000.0]}': '{ "hi" : "kafka", "nums" : [10.0, 100.0, 1000.0] }',
    '{"$oid" : "596e275826f08b2730779e1f"}': '{"$oid" : "596e275826f08b2730779e1f"}',
    '{"$binary" : "a2Fma2E=", "$type" : "00"}': '{"$binary" : "a2Fma2E=", "$type" : "00"}',
}
"""Of table 4.6: ``_id`` of a document by the key's payload."""
ANNE_MARIE = '{"_id": {"$numberLong": "1004"},"first_name": "Anne Marie","last_name": "Kretchmar","email": "annek@noanswer.org"}'
TIME = 1558965508000


def without_images(name: str) -> dict[str, Any]:
    """Return the document's event as a connector sends it that neither looks documents up nor has pre-images."""
    event = copy.deepcopy(message(name))
    del event["payload"]["before"], event["payload"]["after"]
    return event


def with_patch() -> dict[str, Any]:
    """Return the update as the document's schema has it beside ``after``: told by ``patch`` and ``filter``."""
    event = without_images("mongodb_update")
    del event["payload"]["updateDescription"]
    patch, document = '{"$set" : {"first_name" : "Anne Marie"}}', '{"_id" : {"$numberLong" : "1004"}}'
    return {**event, "payload": {**event["payload"], "patch": patch, "filter": document}}


def of_keys(topic: str) -> list[Record]:
    creates = []
    for offset, (key, identifier) in enumerate(KEYS.items()):
        create = copy.deepcopy(message("mongodb_create"))
        create["payload"]["after"] = f'{{"_id" : {identifier}}}'
        creates.append(record(topic, offset, {**message("mongodb_key"), "payload": {"id": key}}, create))
    return creates


def test_the_documents_events_and_keys(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    key, create, update = message("mongodb_key"), message("mongodb_create"), message("mongodb_update")
    # The examples' positions contradict their order: all three have the same time, and the create's ord is the greatest.
    earlier = copy.deepcopy(create)
    earlier["payload"]["source"]["ord"] = 0
    of_topic = {
        "create": [create],
        "update": [update],
        "delete": [update, message("mongodb_delete"), None],
        "change": [earlier, without_images("mongodb_update")],
        "patch": [earlier, with_patch()],
    }
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    archive.mkdir()
    for name, values in of_topic.items():
        topic = f"{CUSTOMERS}_{name}"
        write_records(archive / f"{name}.jsonl", [record(topic, offset, key, value) for offset, value in enumerate(values)])
    write_records(archive / "keys.jsonl", of_keys(f"{CUSTOMERS}_keys"))

    report = apply(archive, lake)

    assert by_flow(report) == {
        f"{CUSTOMERS}_create": EventCounts(read=1, merged=1),
        f"{CUSTOMERS}_update": EventCounts(read=1, merged=1),
        f"{CUSTOMERS}_delete": EventCounts(read=3, merged=1, superseded=1, tombstones=1),
        f"{CUSTOMERS}_change": EventCounts(read=2, merged=1, superseded=1),
        f"{CUSTOMERS}_patch": EventCounts(read=2, merged=1, superseded=1),
        f"{CUSTOMERS}_keys": EventCounts(read=6, merged=6),
    }
    found = {name: read_rows(spark, str(lake), f"{CUSTOMERS}_{name}") for name in (*of_topic, "keys")}
    assert {name: (table.columns, table.keys) for name, table in found.items()} == dict.fromkeys(
        found, ({"_id": "STRING", "document": "STRING"}, ("_id",))
    )
    # What is told whole stays letter by letter; what was folded is written as the update's own documents are.
    assert found["create"].rows == [{"_id": "1004", "document": create["payload"]["after"]}]
    for name in ("update", "change", "patch"):
        assert found[name].rows == [{"_id": "1004", "document": ANNE_MARIE}]
    assert found["delete"].rows == []
    assert {row["_id"]: json.loads(row["document"])["_id"] for row in found["keys"].rows} == {
        told: json.loads(identifier) for told, identifier in KEYS.items()
    }
    # ord counts below ts_ms; the update is of a transaction, so its place in the archive goes last.
    assert stored(spark, report, f"{CUSTOMERS}_create", "_id") == {"1004": (TIME * 2**32 + 31, 0, 0, "c", TIME, 1)}
    assert stored(spark, report, f"{CUSTOMERS}_change", "_id") == {"1004": (TIME * 2**32 + 1, 0, 1, "u", TIME, 1)}
