"""The native engine and Spark give the same table, delete markers and report, microbatch by microbatch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from airflow_cdc.model.columns import VALUE_POSITIONS
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.native import connect_duckdb
from tests.conftest import Apply
from tests.support.crashes import apply_through_crashes
from tests.support.events import (
    Record,
    Row,
    db2,
    mariadb,
    numbered,
    oracle,
    postgresql,
    sqlserver,
    tombstone,
    write_records,
    write_sink_files,
)
from tests.support.stories import PLACEHOLDER
from tests.support.tables import read_rows

pytest.importorskip("duckdb")

TOPIC = "source.dbo.engines"
Change = Callable[..., Record]

DIALECTS: Mapping[str, Change] = {
    "sqlserver": lambda op, at, transaction, **images: sqlserver(op, commit=transaction, change=at, topic=TOPIC, **images),
    "postgresql": lambda op, at, transaction, **images: postgresql(
        op, commit=None if op == "r" else transaction, change=at, topic=TOPIC, **images
    ),
    "oracle": lambda op, at, transaction, **images: oracle(
        op, commit=transaction, change=at, transaction=f"t{transaction}", topic=TOPIC, **images
    ),
    "mariadb": lambda op, at, transaction, **images: mariadb(
        op, position=at, gtid=None if op == "r" else f"0-1-{transaction}", topic=TOPIC, **images
    ),
    "db2": lambda op, at, transaction, **images: db2(op, commit=transaction, change=at, topic=TOPIC, **images),
}


class Source:
    """A table whose rows change at random; a key that is gone may come back in a later transaction.

    :param histories: so many tables of sixty keys, side by side in one: no key of one has anything to do with another's.
    """

    def __init__(self, change: Change, seed: int, *, copies: bool = True, histories: int = 1) -> None:
        self._change, self._pick, self._keys = change, random.Random(seed), 60 * histories
        self._times = [1, 1, 1, 1, 2] if copies else [1]
        self.rows: dict[int, Row] = {}
        """As they are now, by key."""
        self._place = 1_000

    def load(self, keys: int) -> list[Record]:
        """Return creates of keys."""
        return [record for key in range(keys) for record in self._write("c", key)]

    def snapshot(self, keys: int, *, again: bool) -> list[Record]:
        """Return a first snapshot's reads of keys, at one position.

        :param again: whether some come twice: the delete of such a row is folded by Spark.
        """
        reads: list[Record] = []
        for key in range(keys):
            self.rows[key] = self._row(key)
            read = self._change("r", self._place, self._place, before=None, after=self.rows[key], key={"id": key}, partition=key % 3)
            if key >= keys - 3:
                read["value"]["source"]["snapshot"] = "last_in_data_collection"
            reads += [read] * (self._pick.choice([1, 1, 1, 2]) if again else 1)
        return reads

    def changes(self, count: int) -> list[Record]:
        """Return changes, each in a transaction of its own; some come twice, one behind the other."""
        records: list[Record] = []
        for _ in range(count):
            key = self._pick.randrange(self._keys)
            op = "c" if key not in self.rows else self._pick.choice("uuud")
            records += self._write(op, key)
        return records

    def _write(self, op: str, key: int) -> Iterator[Record]:
        self._place += self._pick.randrange(1, 9)
        row = self._row(key)
        before = self.rows.pop(key, None)
        after = None if op == "d" else row
        if after:
            self.rows[key] = after
        partition = key % 3
        written = self._change(op, self._place, self._place, before=before, after=after, key={"id": key}, partition=partition)
        yield from [written] * self._pick.choice(self._times)
        if op == "d" and self._pick.random() < 0.7:
            yield tombstone({"id": key}, topic=TOPIC, partition=partition)

    def _row(self, key: int) -> Row:
        amount, share = self._pick.randrange(-(10**9), 10**9), self._pick.random()
        return {"id": key, "name": self._text(), "amount": amount, "share": share, "open": True}

    def _text(self) -> str | None:
        return self._pick.choice([None, "", "plain", 'a "quoted" \\ one', "naïve ☃", "two\nlines", "null", "12.50", "e30="])


class LargeValues:
    """Rows of PostgreSQL with two columns that its updates may leave out."""

    def __init__(self, seed: int) -> None:
        self._pick = random.Random(seed)
        self._place = 1_000
        self._carried: dict[int, set[str]] = {}
        """By key: the columns that the file's events carry so far."""
        self.keys: list[int] = []

    def file(self, changes: int, *, asks_table: bool, again: bool = False) -> list[Record]:
        """Return creates and updates.

        :param asks_table: whether an update may leave out a value that no event of the file carries, also of a row that nobody created.
        :param again: whether some events come twice, the last one surely.
        """
        self._carried = {}
        records: list[Record] = []
        for _ in range(changes):
            unseen = [1_000, 1_001] if asks_table else []
            key = self._pick.choice([*self.keys, *unseen, len(self.keys)]) if self._pick.random() < 0.5 else len(self.keys)
            if key == len(self.keys):
                self.keys.append(key)
                records.append(self._event("c", key, set()))
                continue
            may_leave_out = {"name", "note"} if asks_table else self._carried.get(key, set())
            left_out = {column for column in sorted(may_leave_out) if self._pick.random() < 0.6}
            records += [self._event("u", key, left_out)] * (self._pick.choice([1, 1, 1, 2]) if again else 1)
        return records + [self._event("u", self.keys[0], {"name", "note"})] * (2 if again else 0)

    def _event(self, op: str, key: int, left_out: set[str]) -> Record:
        # A create stands alone in its transaction; two updates in a row may be of one.
        self._place = self._place + 2 if op == "u" else self._place // 4 * 4 + 6
        self._carried.setdefault(key, set()).update({"name", "note"} - left_out)
        values = {column: PLACEHOLDER if column in left_out else self._text() for column in ("name", "note")}
        return postgresql(op, commit=self._place // 4, change=self._place, after={"id": key, **values, "n": self._place}, topic=TOPIC)

    def _text(self) -> str | None:
        return self._pick.choice([None, "", f"text {self._pick.random()}"])


REPEATED = "some events may be copies of applied ones"
WENT_BACK = "the source's log may have gone back"
CUT = "a transaction that an earlier microbatch holds in part"
FILLS = "a late event, among values that other events left out"
RECORDS, VALUES, PAIRED = "records", "values", "values and keys"


def archive_of(
    change: Change,
    seed: int,
    folder: Path,
    *,
    files: int,
    changes: int,
    begin: str = "creates",
    layout: str = RECORDS,
    copies: bool = True,
    histories: int = 1,
) -> dict[int, Row]:
    """Write a table's events: a load, or a snapshot's reads with or without changes behind them; then files of changes.

    :return: the source's rows at the end, by key.
    :param changes: of each history in each file.
    :param copies: whether some changes come twice.
    :param layout: whole records; or a sink's files of values, one for each partition, with or without companions.
    """
    source = Source(change, seed, copies=copies, histories=histories)
    next_offset = 0
    first = source.load(30 * histories) if begin == "creates" else source.snapshot(30 * histories, again=copies and begin == "reads")
    first += source.changes(20 * histories) if begin == "reads and changes" else []
    for number, records in enumerate([first, *(source.changes(changes * histories) for _ in range(files))]):
        archived = numbered(records, first=next_offset)
        suffix = ("", ".gz", ".zst")[number % 3]
        next_offset += len(records)
        if layout == RECORDS:
            write_records(folder / f"{number:03d}.jsonl{suffix}", archived)
            continue
        write_sink_files(folder, archived, keys=layout == PAIRED, suffix=suffix)
    return source.rows


def flow_by(engine: Engine, *, at_once: bool = False, **settings: Any) -> CdcFlow:
    """Return a flow that takes one file in each microbatch, or all at once."""
    most = 10**9 if at_once else 1
    return CdcFlow(TOPIC, keys=("id",), columns={"share": "DOUBLE"}, engine=engine, max_microbatch_bytes=most, **settings)


def apply_by(engine: Engine, apply: Apply, archive: Path, lake: Path, **settings: Any) -> list[BatchReport]:
    report: ApplyReport = apply(archive, lake, flows={TOPIC: flow_by(engine, **settings)})
    return list(report.flows[0].batches)


def same(one: BatchReport) -> BatchReport:
    """Return a report without what engines may do differently."""
    return replace(one, started_at=None, seconds=0.0, stage_seconds={}, merge_plan="", engine="", engine_reason="", asks_target=False)


def assert_same_rows(spark: SparkSession, found: Path, expected: Path, place: str) -> None:
    one, other = (spark.read.format("delta").load(str(lake / place)) for lake in (found, expected))
    assertDataFrameEqual(one, other, rtol=0, atol=0)


def check(spark: SparkSession, apply: Apply, tmp_path: Path, change: Change, seed: int, **sizes: Any) -> list[BatchReport]:
    archive_of(change, seed, tmp_path / "archive", **sizes)
    return compare(spark, apply, tmp_path)


def compare(spark: SparkSession, apply: Apply, tmp_path: Path, **settings: Any) -> list[BatchReport]:
    """Apply the archive in a folder by both engines, compare what they give, and return the reports of the native one.

    :param settings: of the flow, see :func:`flow_by`.
    """
    return compare_flow(spark, apply, tmp_path, flow_by(Engine.NATIVE, **settings))


def compare_flow(spark: SparkSession, apply: Apply, tmp_path: Path, flow: CdcFlow) -> list[BatchReport]:
    """As :func:`compare`, of any flow."""
    lakes = {engine: tmp_path / engine.value for engine in (Engine.SPARK, Engine.NATIVE)}
    by_spark, natively = (
        list(apply(tmp_path / "archive", lake, flows={flow.topic: replace(flow, engine=engine)}).flows[0].batches)
        for engine, lake in lakes.items()
    )
    assert [same(batch) for batch in natively] == [same(batch) for batch in by_spark]
    for place in (flow.topic, f"_cdc/flows/{flow.topic}/delete_markers"):
        if not (lakes[Engine.SPARK] / place).exists():
            assert not (lakes[Engine.NATIVE] / place).exists()
            continue
        assert_same_rows(spark, lakes[Engine.NATIVE], lakes[Engine.SPARK], place)
    return natively


BEGINS = ("creates", "reads", "reads and changes")


FIRST_LOADS = {"sqlserver": "reads and changes", "postgresql": "reads", "oracle": "creates", "mariadb": "reads", "db2": "reads and changes"}


@pytest.mark.deep
@pytest.mark.parametrize(("dialect", "begin"), FIRST_LOADS.items())
def test_both_engines_give_the_same_table_markers_and_reports(
    dialect: str, begin: str, spark: SparkSession, apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several threads, as for large microbatches: no order may depend on which one is first.
    monkeypatch.setattr(connect_duckdb, "THREADED_FROM_BYTES", 0)
    batches = check(spark, apply, tmp_path, DIALECTS[dialect], 1, files=2, changes=40, begin=begin)
    assert [batch.engine for batch in batches] == ["native"] * 3, [batch.engine_reason for batch in batches]


def test_both_engines_give_the_same_of_a_sink_s_files_in_one_microbatch(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    archive_of(DIALECTS["postgresql"], 1, tmp_path / "archive", files=2, changes=40, begin="reads and changes", layout=PAIRED)
    (batch,) = compare(spark, apply, tmp_path, at_once=True)
    # A row that a snapshot read twice, or that goes behind its read, is folded by Spark.
    assert (batch.engine, batch.engine_reason) == ("native", "")


@pytest.mark.deep
@pytest.mark.parametrize("layout", [VALUES, PAIRED])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_both_engines_give_the_same_of_values_in_a_sink_s_files(
    dialect: str, layout: str, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    for seed, begin in enumerate(BEGINS):
        folder = tmp_path / begin
        archive_of(DIALECTS[dialect], seed, folder / "archive", files=2, changes=40, begin=begin, layout=layout)
        batches = compare(spark, apply, folder)
        assert {batch.engine_reason for batch in batches} <= {"", WENT_BACK, CUT}
        assert [batch.engine for batch in batches].count("native") >= 5, [batch.engine_reason for batch in batches]


def test_both_engines_give_the_same_of_values_that_events_leave_out(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source = LargeValues(1)
    first = source.file(90, asks_table=False)
    write_records(tmp_path / "archive" / "0.jsonl", numbered(first))
    write_records(tmp_path / "archive" / "1.jsonl", numbered(source.file(40, asks_table=True), first=len(first)))
    batches = compare(spark, apply, tmp_path)
    assert [(batch.engine, batch.engine_reason) for batch in batches] == [("native", "")] * 2
    assert batches[1].unavailable_unresolved > 0
    assert older_values(spark, tmp_path) > 5


def older_values(spark: SparkSession, folder: Path) -> int:
    """Return the number of rows with values that are older than they."""
    return spark.read.format("delta").load(str(folder / "native" / TOPIC)).filter(f"size({VALUE_POSITIONS}) > 0").count()


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(1, 8))
def test_both_engines_give_the_same_of_left_out_values_in_several_microbatches(
    seed: int, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    source, first = LargeValues(seed), 0
    for number, (changes, asks_table, again) in enumerate([(30, False, False), (60, True, False), (20, True, True), (60, True, False)]):
        records = source.file(changes, asks_table=asks_table, again=again)
        write_records(tmp_path / "archive" / f"{number}.jsonl", numbered(records, first=first))
        first += len(records)
    batches = compare(spark, apply, tmp_path)
    reasons = {batch.engine_reason for batch in batches}
    # A transaction that two files share may be late.
    assert reasons <= {"", WENT_BACK, CUT, FILLS, "an unavailable value of a key whose events are not surely one row's"}, reasons
    assert batches[2].engine == "spark"
    assert [batch.engine for batch in batches].count("native") >= 1
    assert older_values(spark, tmp_path) > 5


def test_a_crash_after_every_effect_of_the_native_engine_loses_and_doubles_nothing(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    rows = archive_of(DIALECTS["postgresql"], 3, tmp_path / "archive", files=2, changes=40)
    report, crashed = apply_through_crashes(apply, tmp_path / "archive", tmp_path / "crashed", flow_by(Engine.NATIVE))
    assert {"intent", "target", "delete_markers", "merge", "commit"} <= crashed
    assert {row["id"]: row for row in read_rows(spark, str(tmp_path / "crashed"), TOPIC).rows} == rows
    merges = [row for row in spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path / 'crashed' / TOPIC}`").collect() if row["operation"] == "MERGE"]
    assert len(merges) == 3
    assert {row["engineInfo"].partition("/")[0] for row in merges} == {"airflow-cdc"}
    assert report.ok


@pytest.mark.deep
@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_both_engines_give_the_same_of_many_histories(dialect: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    for seed in range(2, 12):
        batches = check(spark, apply, tmp_path / str(seed), DIALECTS[dialect], seed, files=4, changes=300, begin=BEGINS[seed % 3])
        assert [batch.engine for batch in batches] == ["native"] * 5


@pytest.mark.deep
@pytest.mark.parametrize(("dialect", "begin"), FIRST_LOADS.items())
def test_both_engines_give_the_same_of_a_thousand_histories(
    dialect: str, begin: str, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    batches = check(spark, apply, tmp_path, DIALECTS[dialect], 99, files=3, changes=40, begin=begin, histories=1_000)
    assert [batch.engine for batch in batches] == ["native"] * 4
    assert sum(batch.events.read for batch in batches) > 150_000
