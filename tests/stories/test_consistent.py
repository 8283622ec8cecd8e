"""Tables that belong together end together: a run that is asked to be consistent stops at the last whole transaction."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.cut import AwaitedTransaction, Cut
from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from airflow_cdc.model.errors import SparkFailedError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.pipeline.run import end_together
from tests.conftest import Apply
from tests.support.events import Record, lsn, postgresql, record, sqlserver, tombstone, write_records
from tests.support.tables import read_quarantine, read_rows

ORDERS, ITEMS, TRANSACTIONS = "shop.db.orders", "shop.db.items", "shop.transaction"


class Shop:
    """A source with two tables whose transactions are archived a file at a time."""

    def __init__(self, folder: Path, *, topic: bool = True) -> None:
        self.archive, self.lake = folder / "archive", folder / "lake"
        self.has_topic = topic
        self.offsets: dict[str, int] = {}

    def transaction(self, number: int, *, orders: Iterable[int] = (), items: Iterable[int] = ()) -> dict[str, list[Record]]:
        """Write each row with the transaction's number, and return the records by topic."""
        by_topic: dict[str, list[Record]] = {}
        for topic, ids in ((ORDERS, orders), (ITEMS, items)):
            for place, row in enumerate(ids, start=1):
                event = sqlserver("c", commit=number, change=number, serial=row, after={"id": row, "tx": number}, topic=topic)
                value = {**event["value"], "transaction": {"id": lsn(number), "total_order": place, "data_collection_order": place}}
                by_topic.setdefault(topic, []).append(self._numbered({**event, "value": value}))
        if self.has_topic:
            collections = [{"data_collection": topic.removeprefix("shop."), "event_count": len(by_topic[topic])} for topic in by_topic]
            by_topic[TRANSACTIONS] = [self._numbered(record(TRANSACTIONS, None, value, 0)) for value in self._marks(number, collections)]
        return by_topic

    def _marks(self, number: int, collections: list[dict[str, Any]]) -> list[dict[str, Any]]:
        common = {"id": lsn(number), "ts_ms": 1_700_000_000_000 + number}
        return [{"status": "BEGIN", **common}, {"status": "END", **common, "data_collections": collections}]

    def _numbered(self, item: Record) -> Record:
        offset = self.offsets.get(item["topic"], 0)
        self.offsets[item["topic"]] = offset + 1
        return {**item, "offset": offset}

    def write(self, name: str, *records: Iterable[Record | str]) -> None:
        write_records(self.archive / name, [item for some in records for item in some])

    def rows(self, spark: SparkSession) -> dict[str, list[tuple[int, int]]]:
        """Return (id, tx) of each table's rows."""
        found = {}
        for topic in (ORDERS, ITEMS):
            table = self.lake / topic
            rows = read_rows(spark, str(self.lake), topic).rows if table.exists() else []
            found[topic.removeprefix("shop.db.")] = [(row["id"], row["tx"]) for row in rows]
        return found


def outcome(report: ApplyReport, topic: str) -> FlowOutcome:
    (found,) = (flow for flow in report.flows if flow.flow == topic)
    return found


def position(number: int) -> int:
    """Return a transaction's commit position."""
    return sqlserver_lsn(lsn(number))


def test_two_tables_archived_to_different_places_show_the_same_transactions_and_the_rest_comes_with_the_next_files(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    first, second, third = (shop.transaction(number, orders=[number], items=[number * 10, number * 10 + 1]) for number in (1, 2, 3))
    # The orders' sink is ahead: transactions 1, 2, 3; the items' stopped inside 2, the transactions' behind 2.
    shop.write("orders-1.jsonl", first[ORDERS], second[ORDERS], third[ORDERS])
    shop.write("items-1.jsonl", first[ITEMS], second[ITEMS][:1])
    shop.write("transactions-1.jsonl", first[TRANSACTIONS], second[TRANSACTIONS])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert shop.rows(spark) == {"orders": [(1, 1)], "items": [(10, 1), (11, 1)]}
    assert report.cuts == (
        Cut(
            "shop",
            is_proven=True,
            before=position(2),
            waits_for=(AwaitedTransaction(lsn(2), True), AwaitedTransaction(lsn(3), False)),
            awaited=2,
        ),
    )
    orders, items = outcome(report, ORDERS), outcome(report, ITEMS)
    assert (orders.status, orders.events.read, orders.cut_files, orders.cut_records) == (FlowStatus.APPLIED, 1, 1, 2)
    assert (items.status, items.events.read, items.cut_files, items.cut_records) == (FlowStatus.APPLIED, 2, 1, 1)
    assert ApplyReport.from_json(report.to_json()) == report

    # Nothing new: nothing is done, and what waits is still reported.
    again = apply(shop.archive, shop.lake, consistent=True)
    assert [(flow.status, flow.cut_files, flow.cut_records) for flow in again.flows] == [
        (FlowStatus.WAITING, 1, 1),
        (FlowStatus.WAITING, 1, 2),
    ]
    assert again.cuts == report.cuts
    assert shop.rows(spark) == {"orders": [(1, 1)], "items": [(10, 1), (11, 1)]}

    # The rest of the items, and a transaction that began behind them.
    fourth = shop.transaction(4, orders=[4], items=[40])
    shop.write("items-2.jsonl", second[ITEMS][1:], third[ITEMS], fourth[ITEMS])
    shop.write("transactions-2.jsonl", third[TRANSACTIONS], fourth[TRANSACTIONS])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert [cut.before for cut in report.cuts] == [position(4)]
    assert shop.rows(spark) == {"orders": [(1, 1), (2, 2), (3, 3)], "items": [(10, 1), (11, 1), (20, 2), (21, 2), (30, 3), (31, 3)]}
    assert [flow.events.read for flow in report.flows] == [4, 2]
    # Each archived offset counts once, though its file was taken in parts.
    assert [batch.offsets.repeated for flow in report.flows for batch in flow.batches] == [0, 0]

    shop.write("orders-2.jsonl", fourth[ORDERS])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert [(cut.before, cut.awaited) for cut in report.cuts] == [(None, 0)]
    assert shop.rows(spark)["orders"][-1] == (4, 4)
    assert shop.rows(spark)["items"][-1] == (40, 4)
    assert [flow.cut_files for flow in report.flows] == [0, 0]


@pytest.mark.deep
def test_a_transaction_that_never_completes_holds_and_is_named_until_a_run_without_the_switch_takes_all(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    shop = Shop(tmp_path)
    first = shop.transaction(1, orders=[1], items=[10])
    straggler = shop.transaction(1, orders=[99])[ORDERS]
    second, third = (shop.transaction(number, orders=[number], items=[number * 10]) for number in (2, 3))
    shop.write("1.jsonl", *first.values(), *third.values(), second[ORDERS], second[TRANSACTIONS])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert shop.rows(spark) == {"orders": [(1, 1)], "items": [(10, 1)]}
    (by_topic,) = [line for line in report.transaction_lines() if "cut" in line]
    assert by_topic == f"shop: cut before commit position {position(2)}; what stands there waits for transaction {lsn(2)} (lacks events)"
    assert f"shop: transaction {lsn(2)}: 0 of 1 events of topic {ITEMS} are archived" in report.transaction_lines()
    waiting = [line for line in outcome(report, ORDERS).gap_lines() if "new table" not in line]
    assert waiting == [
        f"{ORDERS}: topic {ORDERS}, partition 0: offsets 1–1 are missing, inside 1.jsonl",
        f"{ORDERS}: 2 records in 1 files wait behind the cut",
    ]

    # An event from before the cut that comes late is no reason to wait.
    fourth = shop.transaction(4, orders=[4], items=[40])
    shop.write("2.jsonl", straggler, *fourth.values())
    apply(shop.archive, shop.lake, consistent=True)
    assert shop.rows(spark) == {"orders": [(1, 1), (99, 1)], "items": [(10, 1)]}

    taken = apply(shop.archive, shop.lake)
    assert (taken.cuts, [flow.cut_files for flow in taken.flows]) == ((), [0, 0])
    assert shop.rows(spark) == {"orders": [(1, 1), (2, 2), (3, 3), (4, 4), (99, 1)], "items": [(10, 1), (30, 3), (40, 4)]}
    assert [flow.status for flow in apply(shop.archive, shop.lake).flows] == [FlowStatus.UP_TO_DATE] * 2

    # What the tables show in part already can hold nothing back any more.
    fifth = shop.transaction(5, orders=[5], items=[50])
    shop.write("3.jsonl", *fifth.values())
    assert [cut.before for cut in apply(shop.archive, shop.lake, consistent=True).cuts] == [None]
    assert (shop.rows(spark)["orders"][-2:], shop.rows(spark)["items"][-1]) == ([(5, 5), (99, 1)], (50, 5))


@pytest.mark.deep
def test_every_record_of_a_file_that_is_taken_in_parts_counts_once(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first, second = (shop.transaction(number, orders=[number], items=[number * 10]) for number in (1, 2))
    gone = {**sqlserver("d", commit=2, change=2, serial=9, before={"id": 1, "tx": 1}, topic=ORDERS), "offset": 60}
    marked = [{**tombstone({"id": 1}, topic=ORDERS), "offset": 61}]
    misfit = {**sqlserver("c", commit=2, change=2, serial=10, after={"id": "no number", "tx": 2}, topic=ORDERS), "offset": 62}
    placeless = {**sqlserver("c", commit=2, after={"id": 7, "tx": 2}, topic=ORDERS), "offset": 63}
    placeless["value"]["source"]["commit_lsn"] = None
    keyless = {**sqlserver("c", commit=2, change=2, serial=11, after={"id": 8, "tx": 2}, key={"id": None}, topic=ORDERS), "offset": 64}
    keyless["value"]["after"]["id"] = None
    shop.write("1.jsonl", first[ORDERS], second[ORDERS], [gone], marked, [misfit, placeless, keyless, "{not json"])
    shop.write("2.jsonl", first[ITEMS], first[TRANSACTIONS], second[TRANSACTIONS])
    typed = {ORDERS: CdcFlow(ORDERS, columns={"id": "BIGINT"})}

    counts = outcome(apply(shop.archive, shop.lake, flows=typed, consistent=True), ORDERS).events
    # What has no position belongs to the first part: the tombstone, the broken line, the event without one.
    assert (counts.read, counts.merged, counts.tombstones, counts.rejected) == (4, 1, 1, 2)
    assert shop.rows(spark)["orders"] == [(1, 1)]

    shop.write("3.jsonl", second[ITEMS])
    counts = outcome(apply(shop.archive, shop.lake, flows=typed, consistent=True), ORDERS).events
    assert (counts.read, counts.merged, counts.tombstones, counts.rejected) == (4, 2, 0, 2)
    assert shop.rows(spark) == {"orders": [(2, 2)], "items": [(10, 1), (20, 2)]}
    # With the numbers that the lines have in the whole file.
    assert {(row["line"], row["microbatch"], row["reason"]) for row in read_quarantine(spark, str(shop.lake))} == {
        (6, 1, "missing_position"),
        (8, 1, "malformed_json"),
        (5, 2, "value_does_not_fit_column"),
        (7, 2, "missing_key"),
    }


@pytest.mark.deep
def test_without_the_topic_tables_end_where_the_one_that_is_furthest_behind_ends(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    shop = Shop(tmp_path, topic=False)
    first, second, third = (shop.transaction(number, orders=[number], items=[number * 10]) for number in (1, 2, 3))
    shop.write("orders.jsonl", first[ORDERS], second[ORDERS], third[ORDERS])
    shop.write("items.jsonl", first[ITEMS], second[ITEMS])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert report.cuts == (Cut("shop", is_proven=False, before=position(2) + 1),)
    assert report.transactions == ()
    assert shop.rows(spark) == {"orders": [(1, 1), (2, 2)], "items": [(10, 1), (20, 2)]}
    # The items have nothing more to say: a quiet table holds nobody back.
    report = apply(shop.archive, shop.lake, consistent=True)
    assert report.cuts == (Cut("shop", is_proven=False),)
    assert shop.rows(spark)["orders"] == [(1, 1), (2, 2), (3, 3)]
    assert [flow.status for flow in apply(shop.archive, shop.lake, consistent=True).flows] == [FlowStatus.UP_TO_DATE] * 2


@pytest.mark.deep
def test_reads_of_a_full_snapshot_do_not_wait_though_their_position_lies_behind_the_cut(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    def of(number: int, event: Record) -> Record:
        metadata = {"id": f"{number}:{number}", "total_order": 1, "data_collection_order": 1}
        return {**event, "topic": ITEMS, "value": {**event["value"], "transaction": metadata}}

    shop = Shop(tmp_path)
    # PostgreSQL under load: the reads say 99, and 50 and 60 are streamed behind them, because they do not contain these.
    reads = [{**postgresql("r", commit=99, change=99, after={"id": row, "tx": 0}), "topic": ITEMS} for row in (1, 2)]
    changes = [
        of(50, postgresql("u", commit=49, change=50, after={"id": 1, "tx": 50})),
        of(60, postgresql("u", commit=59, change=60, after={"id": 2, "tx": 60})),
    ]
    records = [{**item, "offset": offset} for offset, item in enumerate([*reads, *changes])]
    ended = {"status": "END", "id": "50:51", "ts_ms": 1, "data_collections": [{"data_collection": "db.items", "event_count": 1}]}
    shop.write("1.jsonl", records, [record(TRANSACTIONS, None, ended, 0)])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert [(cut.before, cut.waits_for) for cut in report.cuts] == [(59, (AwaitedTransaction("60", False),))]
    assert shop.rows(spark)["items"] == [(1, 50), (2, 0)]
    ended = {**ended, "id": "60:61"}
    shop.write("2.jsonl", [record(TRANSACTIONS, None, ended, 1)])
    assert [cut.before for cut in apply(shop.archive, shop.lake, consistent=True).cuts] == [None]
    assert shop.rows(spark)["items"] == [(1, 50), (2, 60)]


class CrashError(Exception):
    """Stands for a killed driver."""


@pytest.mark.deep
def test_a_crash_after_each_effect_of_a_run_that_cuts_loses_and_doubles_nothing(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    first, second = (shop.transaction(number, orders=[number], items=[number * 10]) for number in (1, 2))
    shop.write("1.jsonl", first[ORDERS], second[ORDERS], ["{not json"])
    shop.write("others.jsonl", first[ITEMS], first[TRANSACTIONS], second[TRANSACTIONS])
    crashed: set[tuple[str, int]] = set()

    def crash_once(effect: str) -> None:
        batches = len(list((shop.lake / "_cdc/flows" / ORDERS / "commits").glob("*.json")))
        if (effect, batches) not in crashed:
            crashed.add((effect, batches))
            raise CrashError(effect)

    def run_until_done() -> ApplyReport:
        for _ in range(40):
            try:
                report = apply(shop.archive, shop.lake, tables=("*orders",), consistent=True, after_effect=crash_once, may_fail=True)
            except CrashError:
                continue
            if report.ok:
                return report
        raise AssertionError(f"it crashes for ever: {crashed}")

    run_until_done()
    assert shop.rows(spark)["orders"] == [(1, 1)]
    shop.write("2.jsonl", second[ITEMS])
    report = run_until_done()
    assert shop.rows(spark)["orders"] == [(1, 1), (2, 2)]
    assert {effect for effect, batches in crashed if batches == 0} >= {"survey", "intent", "stage", "quarantine", "target", "merge"}
    assert {effect for effect, batches in crashed if batches == 1} >= {"commit", "survey", "intent", "stage", "target", "merge"}
    assert [(flow.status, flow.cut_files) for flow in report.flows] == [(FlowStatus.UP_TO_DATE, 0)]
    assert len(read_quarantine(spark, str(shop.lake))) == 1
    merges = spark.sql(f"DESCRIBE HISTORY delta.`{shop.lake / ORDERS}`").filter("operation = 'MERGE'").count()
    assert merges == 2


@pytest.mark.deep
def test_a_transaction_put_together_again_takes_of_an_earlier_file_only_the_part_that_was_merged(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    def order(op: str, row: int, offset: int, *, commit: int, change: int) -> Record:
        # What is deleted was written by the first transaction.
        image = {"before": {"id": row, "tx": 1}} if op == "d" else {"after": {"id": row, "tx": commit}}
        event = sqlserver(op, commit=commit, change=change, key={"id": row}, topic=ORDERS, **image)
        return {**event, "offset": offset}

    def item(number: int) -> Record:
        return {**sqlserver("c", commit=number, after={"id": number, "tx": number}, topic=ITEMS), "offset": number}

    shop = Shop(tmp_path, topic=False)
    # Transaction 5 shifts both keys; its second half comes in a file of its own, when transaction 9 still waits.
    whole = [order("c", 1, 0, commit=1, change=1), order("c", 2, 1, commit=1, change=2)]
    first_half = [order("d", 1, 2, commit=5, change=50), order("c", 2, 3, commit=5, change=51)]
    shop.write("1.jsonl", whole, first_half, [order("u", 2, 6, commit=9, change=90)], [item(5)])
    apply(shop.archive, shop.lake, consistent=True)
    assert shop.rows(spark)["orders"] == [(2, 5)]

    shop.write("2.jsonl", [order("d", 2, 4, commit=5, change=52), order("c", 3, 5, commit=5, change=53)], [item(7)])
    report = apply(shop.archive, shop.lake, consistent=True)
    assert [cut.before for cut in report.cuts] == [position(7) + 1]
    assert shop.rows(spark)["orders"] == [(2, 5), (3, 5)]

    apply(shop.archive, shop.lake, consistent=True)
    assert shop.rows(spark)["orders"] == [(2, 9), (3, 5)]


def test_where_the_transactions_cannot_be_looked_at_nothing_is_merged(
    apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise PySparkException("no space left")

    monkeypatch.setattr(end_together, "check_transactions", fails)
    shop = Shop(tmp_path)
    shop.write("1.jsonl", *shop.transaction(1, orders=[1], items=[10]).values())
    with pytest.raises(SparkFailedError, match="no space left"):
        apply(shop.archive, shop.lake, consistent=True)
    assert not (shop.lake / ORDERS).exists()
