"""MongoDB's events through a real archive into a real table: documents, and what updates changed in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, WriteDisposition
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import EventCounts
from tests.conftest import Apply
from tests.support.events import mongodb, record, tombstone, write_records, write_sink_file
from tests.support.tables import read_quarantine, read_rows

TOPIC = "mg.shop.orders"


def documents(spark: SparkSession, lake: Path) -> dict[str, str | None]:
    return {row["_id"]: row["document"] for row in read_rows(spark, str(lake), TOPIC).rows}


def counts(report: ApplyReport) -> EventCounts:
    return report.flows[0].events


def unresolved(report: ApplyReport) -> list[int]:
    return [batch.unavailable_unresolved for batch in report.flows[0].batches]


@pytest.mark.deep
def test_what_updates_changed_is_folded_whenever_it_comes(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    # load 1: a document and its change in one transaction, so at one cluster time; a change of a document that
    # is unknown, and of one that only its event carries
    first = [
        mongodb("c", "1", second=10, offset=10, after='{"_id": 1,"n": 0}', transaction=7),
        mongodb("u", "1", second=10, offset=11, updated='{"n": 1}', transaction=7),
        mongodb("u", "1", second=10, offset=12, updated='{"n": 2}', transaction=7),
        mongodb("u", "2", second=11, offset=13, updated='{"n": 5}'),
        mongodb("r", "3", second=1, offset=14, after='{ "_id" : 3, "f" : NaN }'),
        mongodb("c", "4", second=12, offset=15, after='{"_id": 4}'),
        mongodb("u", "5", second=13, offset=16, before='{"_id": 5}', updated='{"n": 1}'),
    ]
    write_records(archive / "1.jsonl", first)
    report = apply(archive, lake)

    assert counts(report) == EventCounts(read=7, merged=5, superseded=2)
    assert unresolved(report) == [1]
    whole = {"3": '{ "_id" : 3, "f" : NaN }', "4": '{"_id": 4}', "5": '{"_id": 5,"n": 1}'}
    assert documents(spark, lake) == {"1": '{"_id": 1,"n": 2}', "2": None, **whole}

    # load 2: changes of documents that only the target holds; one goes
    second = [
        mongodb("u", "1", second=30, offset=30, updated='{"late": 3,"x.y": true}'),
        mongodb("u", "3", second=31, offset=31, removed=["f"]),
        mongodb("d", "4", second=32, offset=32),
        tombstone({"id": "4"}, topic=TOPIC, offset=33),
    ]
    write_records(archive / "2.jsonl", second)
    report = apply(archive, lake)

    assert counts(report) == EventCounts(read=4, merged=3, tombstones=1)
    assert unresolved(report) == [0]
    expected = {"1": '{"_id": 1,"n": 2,"late": 3,"x": {"y": true}}', "2": None, "3": '{"_id": 3}', "5": '{"_id": 5,"n": 1}'}
    assert documents(spark, lake) == expected

    # load 3 comes late: a change before one that was applied, the create of the document that was unknown, a change of one that is
    # gone, and a copy of what is known
    late = [
        mongodb("c", "2", second=2, offset=2, after='{"_id": 2,"m": 1}'),
        mongodb("u", "1", second=20, offset=20, updated='{"late": 2,"n": 9}'),
        mongodb("u", "4", second=21, offset=21, updated='{"n": 1}'),
        mongodb("u", "3", second=31, offset=40, removed=["f"]),
    ]
    write_records(archive / "3.jsonl", late)
    report = apply(archive, lake)

    assert counts(report) == EventCounts(read=4, merged=2, stale=2)
    assert unresolved(report) == [0]
    expected = {
        "1": '{"_id": 1,"n": 9,"late": 3,"x": {"y": true}}',
        "2": '{"_id": 2,"m": 1,"n": 5}',
        "3": '{"_id": 3}',
        "5": '{"_id": 5,"n": 1}',
    }
    assert documents(spark, lake) == expected


@pytest.mark.deep
def test_values_without_keys_are_keyed_by_the_documents_own(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    patch = {"op": "u", "patch": '{"$set": {"n": 1}}', "filter": '{"_id": {"$oid": "596e275826f08b2730779e1f"}}', "after": None}
    source = mongodb("u", "", second=3, offset=None)["value"]["source"]
    values = [
        mongodb("c", "", second=1, offset=0, after='{"_id" : {"$oid" : "596e275826f08b2730779e1f"}}')["value"],
        mongodb("c", "", second=2, offset=1, after='{"_id": {"$numberLong": "1004"}}')["value"],
        {**patch, "source": source},
        mongodb("d", "", second=4, offset=3, before='{"_id": {"$numberLong": "1004"}}')["value"],
        mongodb("d", "", second=4, offset=4)["value"],
    ]
    records = [record(TOPIC, None, value, offset) for offset, value in enumerate(values)]
    write_sink_file(archive, records, keys=False)
    report = apply(archive, lake)

    # A delete without its document is nobody's.
    assert counts(report) == EventCounts(read=5, merged=2, superseded=2, rejected=1)
    assert [row["reason"] for row in read_quarantine(spark, str(lake), (TOPIC,))] == ["missing_key"]
    key = '{"$oid": "596e275826f08b2730779e1f"}'
    assert documents(spark, lake) == {key: f'{{"_id": {key},"n": 1}}'}


def test_an_update_without_content_is_set_aside(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [mongodb("c", "1", second=1, offset=0, after="{}"), mongodb("u", "1", second=2, offset=1)])
    report = apply(archive, lake)

    assert counts(report) == EventCounts(read=2, merged=1, rejected=1)
    assert report.flows[0].batches[0].rejects == {"missing_image": 1}


CHANGES = [
    mongodb("c", "1", second=1, offset=0, after='{"_id": 1}'),
    mongodb("u", "1", second=2, offset=1, updated='{"n": 1}'),
    mongodb("d", "1", second=3, offset=2),
]


def test_versions_need_whole_documents(apply: Apply, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", CHANGES)
    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, stored_as_scd_type=2)}, may_fail=True)

    assert report.flows[0].status is FlowStatus.FAILED
    assert report.flows[0].error is not None
    assert report.flows[0].error["type"] == "UnsupportedConnectorError"


@pytest.mark.deep
@pytest.mark.parametrize("together", [True, False])
def test_a_deleted_document_that_is_flagged_keeps_what_updates_changed(
    together: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    for number, records in enumerate([CHANGES] if together else [[change] for change in CHANGES]):
        write_records(archive / f"{number}.jsonl", records)
        apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, on_delete=OnDelete.FLAG)})

    rows = spark.sql(f"SELECT document, __cdc_deleted FROM delta.`{lake}/{TOPIC}`").collect()
    assert [tuple(row) for row in rows] == [('{"_id": 1,"n": 1}', True)]


@pytest.mark.deep
def test_a_change_log_shows_which_events_carry_no_document(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", CHANGES)
    apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND)})

    rows = spark.sql(f"SELECT __cdc_op, document, __cdc_unavailable FROM delta.`{lake}/{TOPIC}` ORDER BY __cdc_position").collect()
    assert [tuple(row) for row in rows] == [("c", '{"_id": 1}', None), ("u", None, ["document"]), ("d", None, None)]
