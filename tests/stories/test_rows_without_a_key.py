"""Tables without a key: as many equal rows as the source has, whatever comes late, twice or in another order."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, OnSnapshot
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.record.row_log import content_of
from airflow_cdc.pipeline.repair.reprocess import Reprocessing, reprocess
from tests.conftest import Apply
from tests.support.events import Record, postgresql, record, write_records
from tests.support.tables import read_quarantine, read_rows

TOPIC = "pg.public.log"
PLACEHOLDER = "__debezium_unavailable_value"
Row = dict[str, Any]
A, B, C, D = ({"v": v, "note": f"note {v}"} for v in (1, 2, 3, 4))


def event(op: str, change: int, after: Row | None = None, *, before: Row | None = None, snapshot: str | None = None) -> Record:
    made = postgresql(op, commit=None if op == "r" else change - 1, change=change, before=before, after=after, key={}, topic=TOPIC)
    source = {**made["value"]["source"], **({"snapshot": snapshot} if snapshot else {})}
    return {**made, "key": None, "value": {**made["value"], "source": source}}


def snapshot(change: int, *rows: Row) -> list[Record]:
    marks = ["first_in_data_collection", *["true"] * (len(rows) - 2), "last_in_data_collection"]
    return [event("r", change, row, snapshot=mark) for row, mark in zip(rows, marks, strict=True)]


class Table:
    """One table without a key, to which an archive is applied load by load; offsets follow each other unless an event has one."""

    def __init__(self, apply: Apply, spark: SparkSession, folder: Path) -> None:
        self._apply, self._spark, self._folder = apply, spark, folder
        self._loads = self._offset = 0

    def load(self, *events: Record, flow: CdcFlow | None = None, may_fail: bool = False) -> FlowOutcome:
        """Archive one more file, and apply the archive."""
        self._loads += 1
        given = [{**item, "offset": self._offset + place} if item["offset"] is None else item for place, item in enumerate(events)]
        self._offset += len(events)
        write_records(self._folder / "archive" / f"{self._loads:03d}.jsonl", given)
        flows = {TOPIC: flow} if flow else None
        outcome: FlowOutcome = self._apply(self._folder / "archive", self._folder / "lake", flows=flows, may_fail=may_fail).flows[0]
        return outcome

    def rows(self) -> Counter[int]:
        """Return how many rows have which ``v``."""
        return Counter(row["v"] for row in read_rows(self._spark, str(self._folder / "lake"), TOPIC).rows)


@pytest.fixture
def table(apply: Apply, spark: SparkSession, tmp_path: Path) -> Table:
    return Table(apply, spark, tmp_path)


def sent(at: int, nanoseconds: int) -> Record:
    """Return one of the rows that a COPY wrote as one record of the log; only the connector's times distinguish them."""
    made = event("c", 25, C)
    return {**made, "value": {**made["value"], "ts_ms": at, "ts_ns": at * 10**6 + nanoseconds}}


def test_equal_rows_are_as_many_as_the_source_has(table: Table) -> None:
    became_a, removed_a = event("u", 21, A, before=B), event("d", 22, before=A)
    copied = [sent(5_000, 1), sent(5_000, 2), sent(5_001, 1)]
    first = table.load(*snapshot(10, A, A, B), event("c", 20, A), became_a, removed_a, record(TOPIC, None, None, None), *copied)
    assert table.rows() == {1: 3, 3: 3}
    assert (first.events.merged, first.events.tombstones, first.batches[-1].rows.inserted) == (9, 1, 6)

    # The connector crashed and sends its last events once more, part of the COPY too; the sink repeats a record.
    again = table.load(became_a, removed_a, sent(9_000, 1), sent(9_000, 2), event("c", 30, B), event("c", 30, B))
    assert table.rows() == {1: 3, 2: 1, 3: 3}
    assert (again.events.merged, again.events.redelivered, again.events.stale) == (3, 1, 2)

    # A later snapshot that may remove nothing adds the B and the D that it read; of an A and three Cs it knows nothing.
    kept = CdcFlow(TOPIC, on_snapshot=OnSnapshot.KEEP)
    (later,) = table.load(*snapshot(50, A, A, B, B, D), event("d", 60, before=A), flow=kept).batches
    assert table.rows() == {1: 2, 2: 2, 3: 3, 4: 1}
    assert later.rows_unconfirmed == 4


@pytest.mark.deep
def test_a_delete_that_comes_before_its_row_waits_for_it(table: Table) -> None:
    early = table.load(event("c", 20, A), {**event("d", 30, before=B), "offset": 9}, {**event("u", 31, C, before=A), "offset": 10})
    assert table.rows() == {3: 1}
    assert early.batches[-1].rows_missing == 1
    # Of the last row the archive does not hold the beginning: that it goes says nothing about one that comes later.
    late = [{**event("c", 21, B), "offset": 2}, {**event("c", 22, B), "offset": 3}]
    outcome = table.load(*late, {**event("d", 40, before=D), "offset": 20}, {**event("c", 41, D), "offset": 21})
    assert table.rows() == {2: 1, 3: 1, 4: 1}
    assert outcome.batches[-1].rows_missing == 1


@pytest.mark.deep
def test_a_truncate_and_a_second_complete_snapshot_take_what_was_there(table: Table) -> None:
    read_again = [{**item, "offset": 21 + place} for place, item in enumerate(snapshot(50, A, B, B))]
    table.load(*snapshot(10, A, A, B), event("c", 20, C), event("t", 30), event("c", 31, B), *read_again[:2])
    assert table.rows() == {2: 1}, "half of a snapshot says nothing yet"
    table.load(read_again[2], {**event("c", 60, A), "offset": 24})
    assert table.rows() == {1: 2, 2: 2}
    # An event that the snapshot has read, and the same snapshot sent again by a connector that crashed in it.
    table.load({**event("c", 39, C), "offset": 19}, *({**item, "offset": 25 + place} for place, item in enumerate(read_again)))
    assert table.rows() == {1: 2, 2: 2}


@pytest.mark.deep
def test_a_later_snapshot_that_may_remove_nothing_adds_the_rows_that_it_read(table: Table) -> None:
    # The insert of another A, and the deletes of B and C, are lost.
    kept = CdcFlow(TOPIC, on_snapshot=OnSnapshot.KEEP)
    table.load(*snapshot(10, A, B), event("c", 20, C), event("c", 21, D), flow=kept)
    read_again = [{**item, "offset": 10 + place} for place, item in enumerate([*snapshot(50, A, A, D), event("d", 60, before=A)])]
    (batch,) = table.load(*read_again, flow=kept).batches
    assert table.rows() == {1: 1, 2: 1, 3: 1, 4: 1}
    assert batch.rows_unconfirmed == 2
    # The lost insert comes late: the snapshot has counted its row.
    table.load({**event("c", 30, A), "offset": 4}, {**event("c", 70, C), "offset": 14}, flow=kept)
    assert table.rows() == {1: 1, 2: 1, 3: 2, 4: 1}


@pytest.mark.deep
def test_a_row_stays_the_same_when_a_column_is_added_or_a_large_value_left_out(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    table.load(event("c", 20, A), event("c", 21, A), event("c", 22, B))
    wide = {**A, "more": None}
    table.load(event("d", 30, before=wide), event("u", 31, {"v": 9, "note": PLACEHOLDER, "more": "x"}, before={**B, "more": None}))
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [{**A, "more": None}, {"v": 9, "note": "note 2", "more": "x"}]


def test_an_event_without_its_whole_row_goes_to_the_quarantine(table: Table, spark: SparkSession, tmp_path: Path) -> None:
    outcome = table.load(
        event("c", 20, A),
        event("u", 21, B),
        event("d", 22),
        event("u", 23, B, before={"v": 1}),
        event("u", 24, B, before={"v": 1, "note": PLACEHOLDER}),
        event("r", 25, A, snapshot="incremental"),
    )
    assert table.rows() == {1: 1}
    assert outcome.batches[-1].rejects == {"row_not_told": 5}
    details = [item["detail"] for item in read_quarantine(spark, str(tmp_path / "lake"))]
    assert details[:3] == ["the event has no image before"] * 2 + ["the image before lacks note"]


@pytest.mark.deep
def test_what_needs_a_key_is_refused(table: Table, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    refused = table.load(event("c", 20, A), flow=CdcFlow(TOPIC, on_delete=OnDelete.FLAG), may_fail=True).error
    assert refused
    assert (refused["type"], "keeps history (scd1-flagged)" in refused["message"]) == ("KeysUnknownError", True)
    table.load(event("c", 21, B))
    with pytest.raises(ConfigurationError, match="has no key"):
        reprocess(Reprocessing(spark, str(tmp_path / "archive"), str(tmp_path / "lake"), TOPIC))
    keyed = table.load(event("c", 22, C), flow=CdcFlow(TOPIC, keys=("v",)), may_fail=True).error
    assert keyed
    assert "was made without a key" in keyed["message"]
    assert table.rows() == {1: 1, 2: 1}
    shutil.rmtree(tmp_path / "lake/_cdc/flows" / TOPIC / "events")
    gone = table.load(event("c", 24, C), may_fail=True).error
    assert gone
    assert gone["type"] == "StateUnreadableError"


def test_the_hash_of_a_row_is_exact_and_leaves_nulls_out(spark: SparkSession) -> None:
    types = {"n": "DECIMAL(38,9)", "t": "TIMESTAMP_NTZ", "b": "BINARY", "d": "DOUBLE", "s": "STRING", "m": "STRING"}
    rows = [
        {"n": "1BD"},
        {"n": "1.000000001BD"},
        {"t": "TIMESTAMP_NTZ'2026-01-01 00:00:00.000001'"},
        {"t": "TIMESTAMP_NTZ'2026-01-01 00:00:00.000002'"},
        {"b": "X'FF'"},
        {"b": "X'FE'"},
        {"d": "double('NaN')"},
        {"s": "'NaN'"},
        {"d": "0.1D + 0.2D"},
        {"d": "0.3D"},
        {"s": "''"},
        {},
        {"s": "'1'", "m": "'2'"},
        {"s": "'2'", "m": "'1'"},
        {"s": '\'1","value":"2\''},
    ]
    hashes = [content_of({name: row.get(name, "NULL") for name in types}, types) for row in rows]
    found = list(spark.sql(f"SELECT array({', '.join(hashes)})").collect()[0][0])
    assert len(set(found)) == len(rows)
    narrow = content_of(rows[0], types)
    assert spark.sql(f"SELECT {narrow}").collect()[0][0] == found[0]
