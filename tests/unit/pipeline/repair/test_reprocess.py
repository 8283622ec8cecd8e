"""What was applied is read again: a live table gets back what it lost, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ArchivedFileMissingError, ConcurrentRunError, ConfigurationError
from airflow_cdc.model.position.as_of import AsOf, parse_as_of
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import RowCounts
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.repair.reprocess import Reprocessed, Reprocessing, reprocess
from tests.conftest import Apply
from tests.support.events import TOPIC, lsn, numbered, postgresql, sqlserver, write_records
from tests.support.tables import read_quarantine

PG = "pg.public.customers"
NOTHING = RowCounts()


def row(number: int, name: str) -> dict[str, object]:
    return {"id": number, "name": name}


# A transaction a number; the files' borders lie behind 2 and 4.
HISTORY = numbered(
    [
        sqlserver("c", commit=1, serial=1, after=row(1, "ann")),
        sqlserver("c", commit=1, serial=2, after=row(2, "ben")),
        sqlserver("c", commit=2, after=row(3, "cat")),
        sqlserver("u", commit=3, after=row(1, "ann b.")),
        sqlserver("d", commit=4, before=row(2, "ben")),
        sqlserver("c", commit=5, after=row(4, "dan")),
    ]
)
ROWS = {1: "ann b.", 3: "cat", 4: "dan"}


class Live:
    """A lake to which three files were applied, one microbatch each."""

    def __init__(self, spark: SparkSession, apply: Apply, folder: Path) -> None:
        self.spark, self.apply = spark, apply
        self.archive, self.lake = folder / "archive", folder / "lake"
        self.order = Reprocessing(spark, str(self.archive), str(self.lake), TOPIC)

    def bring(self, name: str, records: list[dict[str, object]]) -> ApplyReport:
        write_records(self.archive / name, records)
        return self.apply(self.archive, self.lake)

    def again(self, first: int | None = None, last: int | None = None, *, dry_run: bool = False) -> Reprocessed:
        """Reprocess from a transaction to another."""
        done = reprocess(replace(self.order, first=moment(first), last=moment(last), dry_run=dry_run))
        for counts in [done.found.events, *([done.report.flows[0].events] if done.report else [])]:
            assert counts.accounted() == counts.read, counts
        if done.report:
            assert done.report.ok, done.report.flows[0].error
            assert done.report.flows[0].rows == done.found.rows, "the dry run reports what the real one does"
        return done

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("TABLE", f"delta.`{self.lake}/{TOPIC}`"))

    def rows(self) -> dict[int, str]:
        return {item["id"]: item["name"] for item in self.spark.sql(f"SELECT * FROM delta.`{self.lake}/{TOPIC}`").collect()}

    def written_by(self) -> dict[int, int]:
        """Return by id the number of the microbatch that wrote the row last."""
        return {item["id"]: item["__cdc_microbatch"] for item in self.spark.sql(f"SELECT * FROM delta.`{self.lake}/{TOPIC}`").collect()}

    @property
    def state(self) -> FlowState:
        return FlowState(fsspec.filesystem("file"), str(self.lake), TOPIC)


def moment(number: int | None) -> AsOf | None:
    return None if number is None else parse_as_of(lsn(number))


@pytest.fixture
def live(spark: SparkSession, apply: Apply, tmp_path: Path) -> Live:
    made = Live(spark, apply, tmp_path)
    for number, records in enumerate((HISTORY[:3], HISTORY[3:5], HISTORY[5:]), start=1):
        made.bring(f"{number}.jsonl", records)
    assert made.rows() == ROWS
    return made


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_row_removed_by_hand_comes_back_and_rows_that_are_right_are_not_rewritten(live: Live) -> None:
    before = live.written_by()
    live.sql("DELETE FROM TABLE WHERE id = 3")
    done = live.again()
    assert live.rows() == ROWS
    assert (done.found.rows, done.found.events.read, done.found.events.stale) == (RowCounts(inserted=1), 6, 3)
    assert live.written_by() == {**before, 3: 4}
    # Once more there is nothing to do, and no microbatch is made of it.
    done = live.again()
    assert (done.found.rows, done.found.events.stale, done.report) == (NOTHING, 4, None)
    assert live.state.checkpoint().number == 4


@pytest.mark.deep
def test_a_dry_run_reports_what_would_be_done_and_changes_nothing(live: Live) -> None:
    live.sql("DELETE FROM TABLE WHERE id IN (1, 4)")
    before = files_below(live.lake)
    done = live.again(dry_run=True)
    assert (done.found.rows, done.found.events.stale, done.report) == (RowCounts(inserted=2), 2, None)
    assert files_below(live.lake) == before


@pytest.mark.deep
def test_only_what_stands_in_the_range_is_read_again(live: Live) -> None:
    live.sql("DELETE FROM TABLE")
    done = live.again(2, 3)
    # Files 1 and 2 hold it, each of them more than that.
    assert (done.found.files, done.found.events.read, done.found.rows) == (2, 2, RowCounts(inserted=2))
    assert live.rows() == {1: "ann b.", 3: "cat"}
    done = live.again(5)
    assert (done.found.files, done.found.events.read) == (1, 1)
    assert live.rows() == ROWS
    assert live.again(6, dry_run=True).found.files == 0


@pytest.mark.deep
def test_a_deleted_row_stays_deleted_though_the_range_ends_before_its_delete(live: Live) -> None:
    done = live.again(None, 1)
    assert (done.found.events.read, done.found.rows, done.found.events.stale) == (2, NOTHING, 2)
    assert live.rows() == ROWS


@pytest.mark.deep
def test_a_row_that_came_back_by_hand_is_deleted_again_only_by_a_later_event(live: Live) -> None:
    live.sql("INSERT INTO TABLE (id, name) VALUES (2, 'ghost')")
    assert live.again().found.rows == NOTHING
    assert live.rows() == {**ROWS, 2: "ghost"}


@pytest.mark.deep
def test_the_microbatch_owns_nothing_new_and_the_flow_goes_on_behind_it(live: Live) -> None:
    live.sql("DELETE FROM TABLE WHERE id = 1")
    before = live.state.checkpoint()
    done = live.again(3, 3)
    after = live.state.checkpoint()
    assert (after.number, after.planned, after.held, after.offsets) == (4, before.planned, before.held, before.offsets)
    assert after.events.read == before.events.read + 1
    assert done.report is not None
    (batch,) = done.report.flows[0].batches
    assert batch.merge_plan.startswith("guarded merge: late events (")
    assert (batch.microbatch, batch.offsets.repeated, batch.offsets.without_offsets) == (4, 0, 0)
    intent = live.state.intent(4)
    assert intent is not None
    assert (intent.is_again, Microbatch.from_json(intent.to_json())) == (True, intent)

    report = live.bring("4.jsonl", [{**sqlserver("u", commit=6, after=row(3, "cathy")), "offset": 6}])
    assert (report.flows[0].batches[0].microbatch, report.flows[0].events.read) == (5, 1)
    assert live.rows() == {**ROWS, 3: "cathy"}
    assert live.apply(live.archive, live.lake).flows[0].status is FlowStatus.UP_TO_DATE


@pytest.mark.deep
def test_files_that_are_not_applied_yet_are_left_to_the_next_run(live: Live) -> None:
    live.sql("DELETE FROM TABLE WHERE id = 4")
    write_records(live.archive / "4.jsonl", [{**sqlserver("c", commit=6, after=row(5, "eve")), "offset": 6}])
    assert live.again().found.events.read == 6
    assert live.rows() == ROWS
    assert live.apply(live.archive, live.lake).flows[0].events.read == 1
    assert live.rows() == {**ROWS, 5: "eve"}


@pytest.mark.deep
def test_of_a_file_that_was_applied_in_part_only_that_part_is_read_again(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    live = Live(spark, apply, tmp_path)
    other = "server1.testDB.dbo.orders"
    write_records(live.archive / "1.jsonl", HISTORY)
    write_records(live.archive / "other.jsonl", numbered([sqlserver("c", commit=3, after=row(1, "first"), topic=other)]))
    apply(live.archive, live.lake, consistent=True)
    assert live.rows() == {1: "ann b.", 2: "ben", 3: "cat"}
    live.sql("DELETE FROM TABLE WHERE id = 2")
    assert live.again().found.events.read == 4
    assert live.rows() == {1: "ann b.", 2: "ben", 3: "cat"}
    live.apply(live.archive, live.lake)
    assert live.rows() == ROWS
    # Now all of it is applied, in two parts.
    live.sql("DELETE FROM TABLE")
    assert live.again().found.events.read == 6
    assert live.rows() == ROWS


def test_a_row_whose_key_changed_without_a_large_value_is_right_as_it_is(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    live = Live(spark, apply, tmp_path)
    moved = {"id": 2, "n": 1, "big": "__debezium_unavailable_value"}
    events = [
        postgresql("c", commit=10, change=11, after={"id": 1, "n": 1, "big": "a long text"}),
        postgresql("d", commit=20, change=21, before={"id": 1, "n": None, "big": None}),
        postgresql("c", commit=20, change=21, after=moved),
    ]
    live.bring("1.jsonl", numbered(events))
    assert reprocess(replace(live.order, flow=PG)).found.rows == NOTHING
    rows = spark.sql(f"SELECT * FROM delta.`{live.lake}/{PG}`").collect()
    assert [(item["id"], item["big"]) for item in rows] == [(2, "a long text")]


@pytest.mark.deep
def test_values_that_are_missing_are_filled_by_the_event_that_carries_them(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    live = Live(spark, apply, tmp_path)
    unavailable = "__debezium_unavailable_value"
    whole = postgresql("c", commit=10, change=11, after={"id": 1, "n": 1, "big": "a long text"})
    later = postgresql("u", commit=20, change=21, after={"id": 1, "n": 2, "big": unavailable})
    for number, event in enumerate(numbered([whole, later]), start=1):
        live.bring(f"{number}.jsonl", [event])
    table = f"delta.`{live.lake}/{PG}`"
    # The row is lost, and comes back first from the event that does not carry all of it.
    spark.sql(f"DELETE FROM {table}")
    order = replace(live.order, flow=PG)
    assert reprocess(replace(order, first=parse_as_of("20"))).found.rows == RowCounts(inserted=1)
    assert [(item["n"], item["big"]) for item in spark.sql(f"SELECT * FROM {table}").collect()] == [(2, None)]
    assert reprocess(order).found.rows == RowCounts(updated=1)
    assert [(item["n"], item["big"]) for item in spark.sql(f"SELECT * FROM {table}").collect()] == [(2, "a long text")]
    assert reprocess(order).found.rows == NOTHING


@pytest.mark.deep
def test_rejected_records_of_the_range_are_reported_and_not_dropped(live: Live) -> None:
    misfit = {**sqlserver("c", commit=6, after={"id": "no number", "name": "x"}), "offset": 6}
    live.bring("4.jsonl", [misfit])
    live.sql("DELETE FROM TABLE WHERE id = 4")
    done = live.again(5, 6)
    assert (done.found.events.read, done.found.rejects, done.found.rows) == (2, {"value_does_not_fit_column": 1}, RowCounts(inserted=1))
    records = read_quarantine(live.spark, str(live.lake))
    assert [(item["file"], item["microbatch"]) for item in records] == [("4.jsonl", 4), ("4.jsonl", 5)]


class CrashError(Exception):
    """Stands for a killed driver."""


@pytest.mark.deep
@pytest.mark.parametrize("effect", ["intent", "stage", "target", "merge", "commit"])
def test_after_a_crash_the_next_run_of_the_flow_finishes_it(effect: str, live: Live) -> None:
    live.sql("DELETE FROM TABLE WHERE id = 3")

    def crash(done: str) -> None:
        if done == effect:
            raise CrashError(effect)

    crashed = reprocess(replace(live.order, after_effect=crash)).report
    assert crashed is not None
    assert crashed.flows[0].status is FlowStatus.FAILED
    if effect != "commit":
        with pytest.raises(ConcurrentRunError, match="microbatch 4 is planned and not done"):
            live.again(dry_run=True)
    live.apply(live.archive, live.lake)
    assert live.rows() == ROWS
    assert live.state.checkpoint().number == 4
    assert live.again().found.rows == NOTHING


@pytest.mark.deep
@pytest.mark.parametrize("effect", ["intent", "merge"])
def test_after_a_crash_the_same_order_finishes_it_and_what_else_there_is(effect: str, live: Live) -> None:
    live.sql("DELETE FROM TABLE WHERE id = 3")

    def crash(done: str) -> None:
        if done == effect:
            raise CrashError(effect)

    reprocess(replace(live.order, after_effect=crash))
    live.sql("DELETE FROM TABLE WHERE id = 4")
    done = reprocess(live.order).report
    assert done is not None
    assert done.ok
    assert live.rows() == ROWS
    # At the intent nothing is merged yet: the microbatch puts both rows back. Behind the merge it is one more.
    assert [batch.microbatch for batch in done.flows[0].batches] == ([4] if effect == "intent" else [4, 5])


@pytest.mark.deep
def test_a_microbatch_of_new_files_is_left_to_the_run_that_planned_it(live: Live) -> None:
    write_records(live.archive / "4.jsonl", [{**sqlserver("c", commit=6, after=row(5, "eve")), "offset": 6}])

    def crash(done: str) -> None:
        if done == "intent":
            raise CrashError(done)

    live.apply(live.archive, live.lake, after_effect=crash, may_fail=True)
    with pytest.raises(ConcurrentRunError, match="microbatch 4 is planned and not done"):
        live.again()


@pytest.mark.deep
def test_what_cannot_be_read_leaves_no_intent_in_the_flow_s_way(live: Live) -> None:
    live.sql("DELETE FROM TABLE WHERE id = 3")
    (live.archive / "1.jsonl").unlink()
    with pytest.raises(ArchivedFileMissingError):
        live.again()
    assert live.state.intent(4) is None
    # What does not need the file can be read all the same.
    assert live.again(5, dry_run=True).found.events.read == 1


@pytest.mark.deep
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda order: replace(order, flow="nobody"), "knows no flow nobody"),
        (lambda order: replace(order, archive=f"{order.archive}2"), f"knows no flow {TOPIC} of archive"),
        (lambda order: replace(order, first=parse_as_of("0/16B3748")), "is no position of its connector sqlserver"),
        (lambda order: replace(order, first=moment(3), last=moment(2)), "is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: Callable[[Reprocessing], Reprocessing], message: str, live: Live) -> None:
    with pytest.raises(ConfigurationError, match=message):
        reprocess(change(live.order))


def ring(spark: SparkSession, apply: Apply, folder: Path) -> Live:
    """Two rows, and in a microbatch of its own a transaction that moves each to the next key."""
    live = Live(spark, apply, folder)
    started = [sqlserver("c", commit=1, serial=number, after=row(number, name)) for number, name in ((1, "ann"), (2, "ben"))]
    moved = [
        sqlserver("d", commit=2, change=1, before=row(1, "ann")),
        sqlserver("c", commit=2, change=2, after=row(2, "ann")),
        sqlserver("d", commit=2, change=3, before=row(2, "ben")),
        sqlserver("c", commit=2, change=4, after=row(3, "ben")),
    ]
    events = numbered([*started, *moved])
    live.bring("1.jsonl", events[:2])
    live.bring("2.jsonl", events[2:])
    assert live.rows() == {2: "ann", 3: "ben"}
    return live


@pytest.mark.deep
def test_keys_that_a_transaction_handed_on_are_right_again(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    live = ring(spark, apply, tmp_path)
    assert live.again().found.rows == NOTHING
    live.sql("DELETE FROM TABLE")
    assert live.again().found.rows == RowCounts(inserted=2)
    assert live.rows() == {2: "ann", 3: "ben"}


@pytest.mark.deep
def test_without_the_row_that_had_the_key_before_a_range_does_not_show_whether_one_is_left(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    live = ring(spark, apply, tmp_path)
    live.sql("DELETE FROM TABLE")
    assert live.again(2).found.rows == RowCounts(inserted=1)
    assert live.rows() == {3: "ben"}
