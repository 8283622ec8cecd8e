"""Tables end together where the source's log went back: identifiers and positions of one epoch say nothing of another's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.cut import AwaitedTransaction
from airflow_cdc.model.report.apply_report import FlowStatus
from tests.conftest import Apply
from tests.stories.test_consistent import outcome
from tests.support.events import Record, postgresql, record, write_records

ORDERS, ITEMS, TRANSACTIONS = "shop.db.orders", "shop.db.items", "shop.transaction"
DAY, START = 86_400_000, 1_700_000_000_000


class Shop:
    """A PostgreSQL with two tables that is restored after a day: positions and transaction numbers begin low again."""

    def __init__(self, folder: Path, apply: Apply, spark: SparkSession, *, topic: bool = True) -> None:
        self.archive, self.lake = folder / "archive", folder / "lake"
        self.apply_archive, self.spark, self.has_topic = apply, spark, topic
        self.offsets: dict[str, int] = {}
        self.day, self.files = 0, 0

    def reads(self, *, at: int, orders: Iterable[int], items: Iterable[int]) -> dict[str, list[Record]]:
        """Return an initial snapshot's reads; what they read was written by transaction 0."""
        by_topic: dict[str, list[Record]] = {}
        for topic, ids in ((ORDERS, [*orders]), (ITEMS, [*items])):
            for row in ids:
                event = postgresql("r", commit=None, change=at, after={"id": row, "tx": 0}, topic=topic)
                event["value"]["source"]["snapshot"] = "last" if row == ids[-1] else "true"
                by_topic.setdefault(topic, []).append(self._placed(event, at))
        return by_topic

    def transaction(self, number: int, *, at: int, orders: Iterable[int] = (), items: Iterable[int] = ()) -> dict[str, list[Record]]:
        """Return a transaction's records by topic; it writes its place in the log into each row."""
        by_topic: dict[str, list[Record]] = {}
        for topic, ids in ((ORDERS, orders), (ITEMS, items)):
            for place, row in enumerate(ids, start=1):
                event = postgresql("c", commit=at, change=at + place, after={"id": row, "tx": at}, topic=topic)
                identity = {"id": f"{number}:{at + place}", "total_order": place, "data_collection_order": place}
                event["value"]["transaction"] = identity
                by_topic.setdefault(topic, []).append(self._placed(event, at))
        if self.has_topic:
            counts = [{"data_collection": topic.removeprefix("shop."), "event_count": len(by_topic[topic])} for topic in by_topic]
            end = {"status": "END", "id": f"{number}:{at + 9}", "ts_ms": self._time(at), "data_collections": counts}
            by_topic[TRANSACTIONS] = [self._numbered(record(TRANSACTIONS, None, end, 0))]
        return by_topic

    def _placed(self, event: Record, at: int) -> Record:
        event["value"]["source"]["ts_ms"] = event["value"]["ts_ms"] = self._time(at)
        return self._numbered(event)

    def _time(self, at: int) -> int:
        return START + self.day * DAY + at

    def _numbered(self, item: Record) -> Record:
        self.offsets[item["topic"]] = self.offsets.get(item["topic"], -1) + 1
        return {**item, "offset": self.offsets[item["topic"]]}

    def lands(self, *by_topic: dict[str, list[Record]]) -> None:
        """Write each topic's records into a file."""
        self.files += 1
        for topic in (ORDERS, ITEMS, TRANSACTIONS):
            if records := [event for some in by_topic for event in some.get(topic, [])]:
                write_records(self.archive / f"{self.files:03d}-{topic}.jsonl", records)

    def apply(self, **settings: Any) -> Any:
        return self.apply_archive(self.archive, self.lake, **{"consistent": True, **settings})

    @property
    def rows(self) -> dict[str, list[tuple[int, int]]]:
        """(id, tx) of each table's rows."""
        found = {}
        for topic in (ORDERS, ITEMS):
            rows = self.spark.sql(f"SELECT id, tx FROM delta.`{self.lake}/{topic}` ORDER BY id").collect()
            found[topic.removeprefix("shop.db.")] = [(row["id"], row["tx"]) for row in rows]
        return found


def first_epoch(shop: Shop) -> list[dict[str, list[Record]]]:
    return [
        shop.reads(at=1000, orders=[1, 2], items=[10, 20]),
        shop.transaction(7, at=1010, orders=[3], items=[30]),
        shop.transaction(8, at=1020, orders=[4], items=[40]),
    ]


def second_epoch(shop: Shop) -> list[dict[str, list[Record]]]:
    """The restore lost transaction 8; numbers 7 and 8 come again, as other transactions."""
    shop.day = 1
    return [
        shop.reads(at=10, orders=[1, 3], items=[10, 30]),
        shop.transaction(7, at=20, orders=[5], items=[50, 51]),
        shop.transaction(8, at=30, orders=[6], items=[60, 61]),
    ]


RESTORED = {"orders": [(1, 0), (3, 0), (5, 20)], "items": [(10, 0), (30, 0), (50, 20), (51, 20)]}
WHOLE = {"orders": [*RESTORED["orders"], (6, 30)], "items": [*RESTORED["items"], (60, 30), (61, 30)]}


def torn(by_topic: dict[str, list[Record]]) -> tuple[dict[str, list[Record]], dict[str, list[Record]]]:
    """Divide a transaction: what is archived of it, and the items that come later."""
    return {**by_topic, ITEMS: by_topic[ITEMS][:1]}, {ITEMS: by_topic[ITEMS][1:]}


@pytest.mark.deep
@pytest.mark.parametrize("in_one_run", [True, False])
def test_a_run_that_cuts_behind_a_restore_applies_the_epoch_before_it_first(
    in_one_run: bool, tmp_path: Path, apply: Apply, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, apply, spark)
    before = first_epoch(shop)
    if not in_one_run:
        shop.lands(*before)
        shop.apply()
    reads, whole, last = second_epoch(shop)
    part, rest = torn(last)
    shop.lands(*(before if in_one_run else ()), reads, whole, part)

    report = shop.apply()

    # Transaction 8 of the first epoch is whole, that of the second is not: its number says nothing of it.
    assert [(cut.before, cut.waits_for) for cut in report.cuts] == [(30, (AwaitedTransaction("8", True),))]
    assert shop.rows == RESTORED
    assert outcome(report, ORDERS).batches[-1].epochs.newest == 1
    assert (outcome(report, ORDERS).cut_records, outcome(report, ITEMS).cut_records) == (1, 1)

    shop.lands(rest)
    report = shop.apply()
    assert [cut.before for cut in report.cuts] == [None]
    assert shop.rows == WHOLE
    assert [flow.events.stale for flow in report.flows] == [0, 0]
    assert {flow.status for flow in shop.apply().flows} == {FlowStatus.UP_TO_DATE}


@pytest.mark.deep
def test_a_transaction_that_the_log_lost_holds_nothing_back_behind_it(tmp_path: Path, apply: Apply, spark: SparkSession) -> None:
    shop = Shop(tmp_path, apply, spark)
    reads, whole, last = first_epoch(shop)
    shop.lands(reads, whole, last)
    # The connector died in the middle of transaction 9; the server was restored.
    shop.lands({ORDERS: shop.transaction(9, at=1030, orders=[9], items=[90])[ORDERS]})
    assert [cut.before for cut in shop.apply().cuts] == [1030]
    shop.offsets[ITEMS] -= 1
    shop.offsets[TRANSACTIONS] -= 1
    shop.lands(*second_epoch(shop))

    report = shop.apply()

    assert [cut.before for cut in report.cuts] == [None]
    assert shop.rows == WHOLE


@pytest.mark.deep
def test_without_a_transaction_topic_tables_end_together_in_the_newest_epoch(tmp_path: Path, apply: Apply, spark: SparkSession) -> None:
    shop = Shop(tmp_path, apply, spark, topic=False)
    before = first_epoch(shop)
    reads, whole, last = second_epoch(shop)
    shop.lands(*before, reads, whole, {ORDERS: last[ORDERS]})

    assert [cut.before for cut in shop.apply().cuts] == [21]
    assert shop.rows == RESTORED
    shop.lands({ITEMS: last[ITEMS]})
    shop.apply()
    assert shop.rows == WHOLE


@pytest.mark.deep
def test_a_table_that_is_quiet_since_the_restore_is_not_held_by_its_higher_positions(
    tmp_path: Path, apply: Apply, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, apply, spark)
    before = first_epoch(shop)
    shop.day = 1
    reads = shop.reads(at=10, orders=[1, 3], items=[])
    whole = shop.transaction(7, at=20, orders=[5, 6])
    shop.lands(*before, reads, {**whole, ORDERS: whole[ORDERS][:1]})

    report = shop.apply()

    assert [cut.before for cut in report.cuts] == [20]
    assert shop.rows == {"orders": [(1, 0), (3, 0)], "items": [(10, 0), (20, 0), (30, 1010), (40, 1020)]}
    shop.lands({ORDERS: whole[ORDERS][1:]}, shop.transaction(8, at=30, orders=[7]))
    shop.apply()
    assert shop.rows["orders"] == [(1, 0), (3, 0), (5, 20), (6, 20), (7, 30)]


@pytest.mark.deep
def test_events_that_a_restarted_connector_sends_again_begin_no_epoch_of_a_consistent_run(
    tmp_path: Path, apply: Apply, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, apply, spark)
    before = first_epoch(shop)
    shop.lands(*before)
    shop.apply()
    again = {topic: [shop._numbered(event) for event in events] for topic, events in before[1].items()}
    third = shop.transaction(9, at=1030, orders=[5], items=[50, 51])
    part, rest = torn(third)
    shop.lands(again, part)

    report = shop.apply()

    assert [cut.before for cut in report.cuts] == [1030]
    assert shop.rows["orders"][-1] == (4, 1020)
    assert not outcome(report, ORDERS).batches[-1].epochs.begins
    shop.lands(rest)
    shop.apply()
    assert (shop.rows["orders"][-1], shop.rows["items"][-1]) == ((5, 1030), (51, 1030))


@pytest.mark.deep
def test_a_check_of_transactions_knows_those_of_an_earlier_epoch_from_their_namesakes(
    tmp_path: Path, apply: Apply, spark: SparkSession
) -> None:
    shop = Shop(tmp_path, apply, spark)
    shop.lands(*first_epoch(shop))
    shop.apply(consistent=False, check_transactions=True)
    reads, whole, last = second_epoch(shop)
    part, _ = torn(last)
    shop.lands(reads, whole, part)

    report = shop.apply(consistent=False, check_transactions=True)

    (by_topic,) = report.transactions
    assert [str(item) for item in by_topic.lacking] == [f"transaction 8: 1 of 2 events of topic {ITEMS} are archived"]
