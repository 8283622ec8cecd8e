"""The connector documents' own example events, letter by letter, through a real archive into a real table.

``reference/*.json`` holds each example with its place in the document; what the document elides is filled in, and noted there.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.batch_report import EventCounts
from airflow_cdc.model.state.lake import ArchiveState
from tests.conftest import Apply
from tests.support.events import Record, write_records
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

REFERENCE = Path(__file__).parent / "reference"

CUSTOMERS, CUSTOMERS_1_0 = "server1.testDB.dbo.customers", "server1.dbo.customers"
SNAPSHOT, IN_TRANSACTION = "server1.testDB.dbo.MyFirstTable", "server1.testDB.dbo.tablea"
SCHEMA_CHANGES, TRANSACTIONS = "server1", "server1.transaction"

JOHN = {"id": 1005, "first_name": "john", "last_name": "doe", "email": "john.doe@example.org"}
REACHABLE_JOHN = {**JOHN, "email": "noreply@example.org"}
TYPES = {"id": "INT", "first_name": "STRING", "last_name": "STRING", "email": "STRING"}


def message(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((REFERENCE / f"{name}.json").read_text(encoding="utf-8"))
    assert set(document) <= {"_source", "_note", "message"}
    found: dict[str, Any] = document["message"]
    return found


def key_of(number: int) -> dict[str, Any]:
    """Return the document's key message for another row."""
    return {**message("key"), "payload": {"id": number}}


def record(topic: str, offset: int, key: dict[str, Any] | None, value: dict[str, Any] | None) -> Record:
    return {"topic": topic, "partition": 0, "offset": offset, "timestamp": 1559729471800, "headers": [], "key": key, "value": value}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "archive").mkdir()
    return tmp_path / "archive"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def by_flow(report: ApplyReport) -> dict[str, EventCounts]:
    return {flow.flow: flow.events for flow in report.flows}


def stored(spark: SparkSession, report: ApplyReport, topic: str, key: str) -> dict[Any, tuple[int, int, int, str, int, int]]:
    """Return by key what our own columns of a table hold: position, operation, commit time in milliseconds, microbatch."""
    (table,) = (flow.table for flow in report.flows if flow.flow == topic)
    ours = ("__cdc_position.*", "__cdc_op", "unix_millis(__cdc_committed_at) AS committed_at", "__cdc_microbatch")
    rows = spark.read.format("delta").load(table).selectExpr(key, *ours).collect()
    return {row[0]: (int(row["commit"]), int(row["change"]), row["serial"], row["__cdc_op"], row["committed_at"], row[-1]) for row in rows}


def rows(spark: SparkSession, lake: Path, topic: str = CUSTOMERS) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), topic).rows


@pytest.mark.deep
def test_the_documents_events_of_a_row_and_everything_beside_them(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    # load 1: the row is created; with it come an older connector's create, an incremental snapshot's read, a create within a
    # transaction, the transaction's bounds and a schema change
    first = [
        record(SCHEMA_CHANGES, 0, message("schema_change_key"), message("schema_change")),
        record(CUSTOMERS, 0, key_of(1005), message("create")),
        record(CUSTOMERS_1_0, 0, key_of(1005), message("create_1_0")),
        record(SNAPSHOT, 0, {"pk": "1"}, message("incremental_snapshot")),
        record(TRANSACTIONS, 0, {"id": "00000025:00000d08:0025"}, message("transaction_begin")),
        record(IN_TRANSACTION, 0, {"pk": "2"}, message("create_in_transaction")),
        record(TRANSACTIONS, 1, {"id": "00000025:00000d08:0025"}, message("transaction_end")),
    ]
    write_records(archive / "1.jsonl", first)
    report = apply(archive, lake)

    tables = (CUSTOMERS, CUSTOMERS_1_0, SNAPSHOT, IN_TRANSACTION)
    assert by_flow(report) == dict.fromkeys(tables, EventCounts(read=1, merged=1))
    assert report.control_topics == (SCHEMA_CHANGES, TRANSACTIONS)
    ledger = ArchiveState(fsspec.filesystem("file"), str(lake), str(archive)).ledger()
    assert ledger.kinds == {
        CUSTOMERS: ("c",),
        CUSTOMERS_1_0: ("c",),
        SNAPSHOT: ("r",),
        IN_TRANSACTION: ("c",),
        SCHEMA_CHANGES: ("schema_change",),
        TRANSACTIONS: ("transaction",),
    }

    # The LSNs 00000027:00000758:0005 and …:0003 as numbers; the serial number stands in the example as text.
    created = (0x2700000758_0005, 0x2700000758_0003, 1, "c", 1559729468470, 1)
    for topic in (CUSTOMERS, CUSTOMERS_1_0):
        found = read_rows(spark, str(lake), topic)
        assert (found.rows, found.columns, found.keys) == ([JOHN], TYPES, ("id",))
        assert stored(spark, report, topic, "id") == {1005: created}

    found = read_rows(spark, str(lake), SNAPSHOT)
    assert (found.rows, found.columns, found.keys) == ([{"pk": "1", "value": "New data"}], {"pk": "STRING", "value": "STRING"}, ("pk",))
    # A read stands before all that is streamed from its commit on.
    assert stored(spark, report, SNAPSHOT, "pk") == {"1": (0x2500000D98_00A2, -1, -1, "r", 0, 1)}

    found = read_rows(spark, str(lake), IN_TRANSACTION)
    assert (found.rows, found.columns, found.keys) == ([{"pk": "2", "aa": "1"}], {"pk": "STRING", "aa": "STRING"}, ("pk",))
    assert stored(spark, report, IN_TRANSACTION, "pk") == {"2": created}

    # load 2: the row is updated
    write_records(archive / "2.jsonl", [record(CUSTOMERS, 1, key_of(1005), message("update"))])
    report = apply(archive, lake, tables=(CUSTOMERS,))
    assert by_flow(report) == {CUSTOMERS: EventCounts(read=1, merged=1)}
    assert rows(spark, lake) == [REACHABLE_JOHN]
    assert stored(spark, report, CUSTOMERS, "id") == {1005: (0x2700000AC0_0007, 0x2700000AC0_0002, 2, "u", 1559729995937, 2)}

    # load 3: the row is deleted
    deleted = [record(CUSTOMERS, 2, key_of(1005), message("delete")), record(CUSTOMERS, 3, key_of(1005), None)]
    write_records(archive / "3.jsonl", deleted)
    report = apply(archive, lake, tables=(CUSTOMERS,))
    assert by_flow(report) == {CUSTOMERS: EventCounts(read=2, merged=1, tombstones=1)}
    assert rows(spark, lake) == []


def key_change(old: int, new: int, first_offset: int) -> list[Record]:
    """Return a key change as the document describes it: delete, tombstone, create; one commit and change LSN, serial 1 and 2."""
    delete = copy.deepcopy(message("delete"))
    delete["payload"]["before"] = {**JOHN, "id": old}
    create = copy.deepcopy(message("create"))
    create["payload"]["after"] = {**JOHN, "id": new}
    create["payload"]["source"] = {**delete["payload"]["source"], "event_serial_no": "2"}
    events: Iterable[tuple[int, dict[str, Any] | None]] = ((old, delete), (old, None), (new, create))
    return [record(CUSTOMERS, offset, key_of(number), value) for offset, (number, value) in enumerate(events, start=first_offset)]


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.deep)], ids=["in one microbatch", "in two"])
def test_a_key_change_as_the_document_describes_it_moves_the_row(
    together: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    create, change = record(CUSTOMERS, 0, key_of(1005), message("create")), key_change(1005, 1006, first_offset=1)
    if together:
        write_records(archive / "1.jsonl", [create, *change])
    else:
        write_records(archive / "1.jsonl", [create])
        apply(archive, lake)
        write_records(archive / "2.jsonl", change)

    report = apply(archive, lake)

    counts = EventCounts(read=4, merged=2, superseded=1, tombstones=1) if together else EventCounts(read=3, merged=2, tombstones=1)
    assert by_flow(report) == {CUSTOMERS: counts}
    assert rows(spark, lake) == [{**JOHN, "id": 1006}]
    moved = (0x2700000DB0_0007, 0x2700000DB0_0005, 2, "c", 1559730445243, 1 if together else 2)
    assert stored(spark, report, CUSTOMERS, "id") == {1006: moved}
