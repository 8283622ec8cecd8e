"""The MongoDB connector reference's own example events and keys, letter by letter, through a real archive into real tables."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.report.batch_report import EventCounts
from tests.conftest import Apply
from tests.golden.test_reference_events import by_flow, message, record, stored
from tests.support.events import write_records
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

CUSTOMERS = "fulfillment.inventory.customers"
KEYS = {
    "1234": "1234",
    "12.34": "12.34",
    '"1234"': '"1234"',
    '{"hi" : "kafka", "nums" : [10.0, 100.0, 1000.0]}': '{ "hi" : "kafka", "nums" : [10.0, 100.0, 1000.0] }',
    '{"$oid" : "596e275826f08b2730779e1f"}': '{"$oid" : "596e275826f08b2730779e1f"}',
    '{"$binary" : "a2Fma2E=", "$type" : "00"}': '{"$binary" : "a2Fma2E=", "$type" : "00"}',
}
"""``_id`` of a document by the key's payload, as the connector's reference lists them."""
ANNE_MARIE = '{"_id": {"$numberLong": "1004"},"first_name": "Anne Marie","last_name": "Kretchmar","email": "annek@noanswer.org"}'
TIME = 1558965508000


def without_images(name: str) -> dict[str, Any]:
    """Return the document's event as a connector sends it that neither looks documents up nor has pre-images."""
    event = copy.deepcopy(message(name))
    del event["payload"]["before"], event["payload"]["after"]
    return event


def with_patch() -> dict[str, Any]:
    """Return the update as the document's schema has it beside ``after``: sent by ``patch`` and ``filter``."""
    event = without_images("mongodb_update")
    del event["payload"]["updateDescription"]
    patch, document = '{"$set" : {"first_name" : "Anne Marie"}}', '{"_id" : {"$numberLong" : "1004"}}'
    return {**event, "payload": {**event["payload"], "patch": patch, "filter": document}}


def key_of(identifier: str) -> dict[str, Any]:
    """Return the document's key message for another document."""
    return {**message("mongodb_key"), "payload": {"id": identifier}}


def creates() -> dict[str, dict[str, Any]]:
    """Return by key the create of a document with each of the identifiers."""
    found = {}
    for key, identifier in KEYS.items():
        found[key] = copy.deepcopy(message("mongodb_create"))
        found[key]["payload"]["after"] = f'{{"_id" : {identifier}}}'
    return found


def test_the_documents_events_and_keys(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    create, update = message("mongodb_create"), message("mongodb_update")
    # The examples' positions contradict their order: all three have the same time, and the create's ord is the greatest.
    earlier = copy.deepcopy(create)
    earlier["payload"]["source"]["ord"] = 0
    events = {
        "1": [create],
        "2": [update],
        "3": [update, message("mongodb_delete"), None],
        "4": [earlier, without_images("mongodb_update")],
        "5": [earlier, with_patch()],
        **{key: [event] for key, event in creates().items()},
    }
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    archive.mkdir()
    sent = [(key_of(key), value) for key, values in events.items() for value in values]
    write_records(archive / "1.jsonl", [record(CUSTOMERS, offset, key, value) for offset, (key, value) in enumerate(sent)])

    report = apply(archive, lake)

    assert by_flow(report) == {CUSTOMERS: EventCounts(read=15, merged=11, superseded=3, tombstones=1)}
    table = read_rows(spark, str(lake), CUSTOMERS)
    assert (table.columns, table.keys) == ({"_id": "STRING", "document": "STRING"}, ("_id",))
    # What is sent whole stays letter by letter; what was folded is written as the update's own documents are.
    assert {row["_id"]: row["document"] for row in table.rows} == {
        "1": create["payload"]["after"],
        **dict.fromkeys(("2", "4", "5"), ANNE_MARIE),
        **{key: event["payload"]["after"] for key, event in creates().items()},
    }
    # ord counts below ts_ms; the update is of a transaction, so its place in the archive goes last.
    positions = stored(spark, report, CUSTOMERS, "_id")
    assert positions["1"] == (TIME * 2**32 + 31, 0, 0, "c", TIME, 1)
    assert positions["4"] == (TIME * 2**32 + 1, 0, 6, "u", TIME, 1)
