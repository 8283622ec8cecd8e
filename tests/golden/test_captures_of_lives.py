"""Captures of topics made anew, logs that went back, shared topics and later snapshots: the tables equal their databases."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES
from tests.support.events import write_records
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

TABLES = {
    "pg_recreated": ("*.customers", "*.lines", "*.tags"),
    "pg_restored": ("*.customers", "*.lines", "*.tags"),
    "maria_reset": ("*.customers", "*.items", "*.stock"),
    "pg_routed": ("*_all",),
    "pg_blocking": ("*.alpha", "*.beta", "*.gamma"),
    "maria_blocking": ("*.alpha", "*.beta", "*.gamma"),
}
ONE = {
    "pg_recreated": "*.tags",
    "pg_restored": "*.tags",
    "maria_reset": "*.stock",
    "pg_routed": "*_all",
    "pg_blocking": "*.beta",
    "maria_blocking": "*.beta",
}
"""A table of each that is judged in other forms too."""


@pytest.fixture(scope="module")
def finals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the lakes of final rows, each made by the first test that needs it."""
    return tmp_path_factory.mktemp("finals")


def judge(capture: str, lake: Path, finals: Path, apply: Apply, spark: SparkSession, *, tables: tuple[str, ...]) -> None:
    """Compare a lake with the database's final rows."""
    apply(CAPTURES / capture / "final/schema", finals / capture, tables=tables)
    found = compare_lakes(spark, str(lake), str(finals / capture), tables).tables
    assert found
    assert [table for table in found if not table.equal] == []


@pytest.mark.deep
@pytest.mark.parametrize("capture", TABLES)
def test_a_capture_of_lives_gives_the_database_s_final_rows(
    capture: str, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    report = apply(CAPTURES / capture / "archive/schema", tmp_path / "lake", tables=TABLES[capture])

    judge(capture, tmp_path / "lake", finals, apply, spark, tables=TABLES[capture])
    assert sum(flow.events.rejected for flow in report.flows) == 0


def lives_of(capture: str, table: str) -> Iterator[tuple[str, list[list[dict[str, Any]]]]]:
    """Yield topics with their records, by life of the topic."""
    for path in sorted((CAPTURES / capture / "archive/schema").glob(f"{table}.jsonl.gz")):
        lives: list[list[dict[str, Any]]] = [[]]
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if lives[-1] and record["offset"] == 0:
                    lives.append([])
                lives[-1].append(record)
        yield path.name.removesuffix(".jsonl.gz"), lives


def in_partitions(records: list[dict[str, Any]], partitions: int) -> list[dict[str, Any]]:
    """Return the records of one life as a topic of several partitions holds them: by the hash of the key."""
    offsets = dict.fromkeys(range(partitions), 0)
    placed = []
    for record in records:
        partition = zlib.crc32(json.dumps(record["key"], sort_keys=True).encode()) % partitions if record["key"] else 0
        placed.append({**record, "partition": partition, "offset": offsets[partition]})
        offsets[partition] += 1
    return placed


def land(
    archive: Path,
    capture: str,
    table: str,
    *,
    partitions: int,
    files: int,
    shuffled: bool = False,
    copies: int = 1,
    backwards: bool = False,
) -> None:
    """Write a capture's topics anew: by partition, each life in some files, all of them a number of times.

    :param shuffled: whether the files of one life are named in any order; those of lives stay in theirs.
    :param backwards: whether the files of a later life come first.
    """
    for topic, forwards in lives_of(capture, table):
        lives = forwards[::-1] if backwards else forwards
        place = 0
        for copy in range(copies):
            for life in lives:
                records = in_partitions(life, partitions)
                size = len(records) // files + 1
                parts = [records[first : first + size] for first in range(0, len(records), size)]
                if shuffled:
                    random.Random(len(records)).shuffle(parts)
                for part in parts:
                    archive.mkdir(parents=True, exist_ok=True)
                    with gzip.open(archive / f"{topic}-{copy}-{place:03d}.jsonl.gz", "wt", encoding="utf-8") as file:
                        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in part)
                    place += 1


@pytest.mark.deep
@pytest.mark.parametrize("capture", ONE)
def test_a_capture_of_lives_in_three_partitions_gives_the_database_s_final_rows(
    capture: str, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    land(tmp_path / "archive", capture, ONE[capture], partitions=3, files=1)
    apply(tmp_path / "archive", tmp_path / "lake", tables=(ONE[capture],))
    judge(capture, tmp_path / "lake", finals, apply, spark, tables=(ONE[capture],))


@pytest.mark.both_engines(by_spark=("pg_recreated", "maria_blocking"))
@pytest.mark.deep
@pytest.mark.parametrize("capture", ONE)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_capture_of_lives_applied_file_by_file_and_twice_gives_the_database_s_final_rows(
    capture: str, partitions: int, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    land(tmp_path / "archive", capture, ONE[capture], partitions=partitions, files=3, copies=2)
    topics = {topic: CdcFlow(topic, max_microbatch_bytes=1) for topic, _ in lives_of(capture, ONE[capture])}
    apply(tmp_path / "archive", tmp_path / "lake", flows=topics, tables=(ONE[capture],))
    judge(capture, tmp_path / "lake", finals, apply, spark, tables=(ONE[capture],))


@pytest.mark.deep
@pytest.mark.parametrize("capture", ["pg_recreated", "pg_blocking", "pg_routed", "maria_blocking"])
def test_a_capture_of_lives_whose_files_are_shuffled_gives_the_database_s_final_rows(
    capture: str, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    land(tmp_path / "archive", capture, ONE[capture], partitions=3, files=4, shuffled=True)
    topics = {topic: CdcFlow(topic, max_microbatch_bytes=1) for topic, _ in lives_of(capture, ONE[capture])}
    apply(tmp_path / "archive", tmp_path / "lake", flows=topics, tables=(ONE[capture],))
    judge(capture, tmp_path / "lake", finals, apply, spark, tables=(ONE[capture],))


@pytest.mark.deep
@pytest.mark.parametrize("capture", ["pg_restored", "maria_reset"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_capture_of_a_log_that_went_back_whose_files_are_shuffled_in_one_run_gives_the_database_s_final_rows(
    capture: str, partitions: int, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    # The offsets prove the order, within one run.
    land(tmp_path / "archive", capture, ONE[capture], partitions=partitions, files=5, shuffled=True)
    apply(tmp_path / "archive", tmp_path / "lake", tables=(ONE[capture],))
    judge(capture, tmp_path / "lake", finals, apply, spark, tables=(ONE[capture],))


@pytest.mark.deep
@pytest.mark.parametrize("max_bytes", [1, 2**30], ids=["file by file", "in one run"])
def test_a_topic_made_anew_whose_files_of_the_later_life_come_first_gives_the_database_s_final_rows(
    max_bytes: int, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    land(tmp_path / "archive", "pg_recreated", "*.tags", partitions=1, files=1, backwards=True)
    topics = {topic: CdcFlow(topic, max_microbatch_bytes=max_bytes) for topic, _ in lives_of("pg_recreated", "*.tags")}
    apply(tmp_path / "archive", tmp_path / "lake", flows=topics, tables=("*.tags",))
    judge("pg_recreated", tmp_path / "lake", finals, apply, spark, tables=("*.tags",))


@pytest.mark.deep
@pytest.mark.parametrize("capture", ONE)
def test_versions_of_a_capture_of_lives_end_with_the_database_s_final_rows(
    capture: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    land(tmp_path / "archive", capture, ONE[capture], partitions=3, files=2)
    topics = [topic for topic, _ in lives_of(capture, ONE[capture])]
    flows = {topic: CdcFlow(topic, stored_as_scd_type=2) for topic in topics}
    apply(tmp_path / "archive", tmp_path / "lake", flows=flows, tables=(ONE[capture],))
    apply(CAPTURES / capture / "final/schema", tmp_path / "final", tables=(ONE[capture],))

    for topic in topics:
        current = read_rows(spark, str(tmp_path / "lake"), topic).rows
        assert current == read_rows(spark, str(tmp_path / "final"), topic).rows


MOMENTS = {
    "pg_restored": [
        # The driver's steps: in the first life, its end, while nothing listened, and in the second life.
        ("117540000@1", (0, 117540000)),
        ("0/7027CE0@1", (0, 117603552)),
        ("2026-11-23T12:29:53.210Z", (0, 117603552)),
        ("22355584@2", (1, 22355584)),
        ("22400000@2", (1, 22400000)),
    ],
    "maria_reset": [
        ("binlog.000005:100000@1", (0, (5 << 64) + 100000)),
        ("binlog.000006:150992@1", (0, (6 << 64) + 150992)),
        ("binlog.000001:100000@2", (1, (1 << 64) + 100000)),
    ],
}


def commit_of(source: dict[str, Any]) -> int:
    """Return where an event stands, read from the connector's reference and not by our decoder."""
    if source["connector"] == "postgresql":
        last, own = json.loads(source["sequence"])
        return int(last or own)
    return (int(source["file"].rpartition(".")[2]) << 64) + int(source["pos"])


def rows_at(records: list[dict[str, Any]], moment: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the rows of a topic after the transaction at (epoch, commit), as reads: its records one by one, in the archive's order."""
    rows: dict[str, dict[str, Any]] = {}
    epoch, has_streamed = 0, False
    for record in records:
        event = (record["value"] or {}).get("payload")
        if event is None:
            continue
        if event["op"] == "r" and has_streamed:
            # A log that went back: the connector reads everything anew.
            epoch, has_streamed = epoch + 1, False
            if (epoch, commit_of(event["source"])) <= moment:
                rows.clear()
        has_streamed = has_streamed or event["op"] != "r"
        if (epoch, commit_of(event["source"])) > moment:
            continue
        key = json.dumps(record["key"]["payload"], sort_keys=True)
        if event["op"] == "d":
            del rows[key]
        else:
            read = {**event, "op": "r", "before": None, "source": {**event["source"], "snapshot": "true"}}
            rows[key] = {**record, "value": {**record["value"], "payload": read}}
    return [{**row, "offset": offset} for offset, row in enumerate(rows.values())]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("capture", "moment", "place"), [(capture, moment, place) for capture, moments in MOMENTS.items() for moment, place in moments]
)
def test_a_capture_rebuilt_as_of_a_moment_of_either_epoch_gives_the_rows_of_its_events_till_then(
    capture: str, moment: str, place: tuple[int, int], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    topics = [topic for table in TABLES[capture] for topic, _ in lives_of(capture, table)]
    rows = {topic: rows_at(lives[0], place) for table in TABLES[capture] for topic, lives in lives_of(capture, table)}
    for topic, records in rows.items():
        write_records(tmp_path / f"rows/{topic}.jsonl", records)
    apply(tmp_path / "rows", tmp_path / "expected")

    order = Rebuild(spark, str(CAPTURES / capture / "archive/schema"), str(tmp_path / "lake"), tuple(topics), into=str(tmp_path / "new"))
    report = rebuild(replace(order, as_of=parse_as_of(moment)))

    assert report.ok, report.flows
    found = compare_lakes(spark, str(tmp_path / "new"), str(tmp_path / "expected"), TABLES[capture]).tables
    assert [(table, table.equal) for table in found] == [(table, True) for table in found]
    assert len(found) == len(topics)
