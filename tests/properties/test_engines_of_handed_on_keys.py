"""Keys that transactions hand on from row to row: the native engine and Spark give the same, and with whole images the source's rows."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.columns import DELETED, DELETED_AT, DEPENDS, OP
from airflow_cdc.model.flow.policies import OnDelete
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.native import fold_undecided
from airflow_cdc.pipeline.target import alter_table
from tests.conftest import Apply
from tests.properties.test_two_engines import DIALECTS, PAIRED, RECORDS, TOPIC, WENT_BACK, compare
from tests.support.events import numbered, write_records, write_sink_files
from tests.support.handed_on import KEYS, NONE, WHOLE, HandedOn
from tests.support.tables import read_rows

pytest.importorskip("duckdb")

COLUMNS = ("id", "name", "amount", "share", "open")


def archive_of(source: HandedOn, folder: Path, *, files: int, transactions: int, layout: str = RECORDS) -> None:
    """Write a load of forty keys and files of transactions over fifty."""
    first = 0
    for number, records in enumerate([source.load(40), *(source.transactions(transactions, keys=50) for _ in range(files))]):
        archived = numbered(records, first=first)
        first += len(records)
        if layout == RECORDS:
            write_records(folder / f"{number:03d}.jsonl", archived)
            continue
        write_sink_files(folder, archived, keys=True)


def check_natively(batches: Collection[BatchReport]) -> None:
    assert [(batch.engine, batch.engine_reason) for batch in batches] == [("native", "")] * len(batches)


def check_rows(spark: SparkSession, lake: Path, source: HandedOn) -> None:
    assert {row["id"]: row for row in read_rows(spark, str(lake), TOPIC).rows} == source.rows


def markers(spark: SparkSession, folder: Path) -> dict[str, int]:
    """Return the number of delete markers by operation, and of those that depend."""
    found = spark.read.format("delta").load(str(folder / "native" / f"_cdc/flows/{TOPIC}/delete_markers"))
    counts = {row[OP]: int(row["count"]) for row in found.groupBy(OP).count().collect()}
    return {**counts, "depending": found.filter(DEPENDS).count()}


@pytest.mark.parametrize(
    ("dialect", "images"), [("postgresql", KEYS), *(pytest.param(name, WHOLE, marks=pytest.mark.deep) for name in DIALECTS)]
)
def test_both_engines_give_the_same_of_keys_handed_on(dialect: str, images: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source = HandedOn(DIALECTS[dialect], 1, images=images, topic=TOPIC)
    archive_of(source, tmp_path / "archive", files=2, transactions=60)
    check_natively(compare(spark, apply, tmp_path))
    check_rows(spark, tmp_path / "native", source)
    found = markers(spark, tmp_path)
    assert min(found["d"], found["depending"]) > 0, found


@pytest.mark.deep
@pytest.mark.parametrize("images", [WHOLE, KEYS, NONE])
@pytest.mark.parametrize("seed", range(2, 6))
def test_both_engines_give_the_same_of_keys_handed_on_where_rows_are_marked(
    seed: int, images: str, spark: SparkSession, apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_table, "DELETION_VECTORS_FROM_BYTES", 0)
    source = HandedOn(DIALECTS["postgresql"], seed, images=images, topic=TOPIC)
    archive_of(source, tmp_path / "archive", files=3, transactions=60)
    check_natively(compare(spark, apply, tmp_path))
    if images == WHOLE:
        check_rows(spark, tmp_path / "native", source)


@pytest.mark.deep
@pytest.mark.parametrize("images", [WHOLE, KEYS, NONE])
def test_both_engines_give_the_same_of_keys_handed_on_among_values(images: str, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source = HandedOn(DIALECTS["postgresql"], 7, images=images, topic=TOPIC)
    archive_of(source, tmp_path / "archive", files=1, transactions=80, layout=PAIRED)
    check_natively(compare(spark, apply, tmp_path, at_once=True))
    check_rows(spark, tmp_path / "native", source)


def test_keys_handed_on_are_folded_natively_and_merged_by_spark(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    """A later file whose events are late: the markers of the first decide what they change."""
    source = HandedOn(DIALECTS["sqlserver"], 11, images=WHOLE, topic=TOPIC)
    records = numbered([*source.load(40), *source.transactions(120, keys=50)])
    thirds = [records[:40], records[40::2], records[41::2]]
    for number, part in enumerate(thirds):
        write_records(tmp_path / "archive" / f"{number}.jsonl", part)
    batches = compare(spark, apply, tmp_path)
    assert [(batch.engine, batch.engine_reason) for batch in batches] == [("native", ""), ("native", ""), ("mixed", WENT_BACK)]
    check_rows(spark, tmp_path / "native", source)


@pytest.mark.parametrize(
    ("dialect", "images", "vectors_from"),
    [("oracle", WHOLE, None), *(pytest.param(name, WHOLE, 0, marks=pytest.mark.deep) for name in DIALECTS)],
)
def test_both_engines_give_the_same_where_deleted_rows_stay(
    dialect: str,
    images: str,
    vectors_from: int | None,
    spark: SparkSession,
    apply: Apply,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if vectors_from is not None:
        monkeypatch.setattr(alter_table, "DELETION_VECTORS_FROM_BYTES", vectors_from)
    source = HandedOn(DIALECTS[dialect], 5, images=images, topic=TOPIC)
    archive_of(source, tmp_path / "archive", files=3, transactions=60)
    check_natively(compare(spark, apply, tmp_path, on_delete=OnDelete.FLAG))
    rows = spark.read.format("delta").load(str(tmp_path / "native" / TOPIC))
    live = rows.filter(f"NOT {DELETED}").select(*COLUMNS).collect()
    assert {row["id"]: row.asDict() for row in live} == source.rows
    gone = rows.filter(f"{DELETED} AND amount IS NOT NULL AND {DELETED_AT} IS NOT NULL")
    assert gone.count() > 3


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(20, 24))
@pytest.mark.parametrize("images", [WHOLE, KEYS, NONE])
def test_both_engines_give_the_same_where_deleted_rows_stay_deep(
    seed: int, images: str, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    source = HandedOn(DIALECTS["postgresql"], seed, images=images, topic=TOPIC)
    archive_of(source, tmp_path / "archive", files=3, transactions=120)
    check_natively(compare(spark, apply, tmp_path, on_delete=OnDelete.FLAG))


def test_many_keys_handed_on_are_left_to_spark(spark: SparkSession, apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_undecided, "MOST_EVENTS", 3)
    source = HandedOn(DIALECTS["db2"], 3, images=WHOLE, topic=TOPIC)
    archive_of(source, tmp_path / "archive", files=1, transactions=30)
    batches = compare(spark, apply, tmp_path)
    assert [batch.engine for batch in batches] == ["native", "spark"]
    assert batches[1].engine_reason.endswith("events of keys whose last event alone does not decide the row")
