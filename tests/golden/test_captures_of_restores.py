"""Captures of databases restored, recovered, moved and failed over, and of shards that come later: the tables equal their databases."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnLogWentBack, OnSnapshot
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

ACCEPT = {"on_log_went_back": OnLogWentBack.ACCEPT}
DECIDED: dict[str, dict[str, object]] = {
    "sqlserver_restored": {},
    # Changes of the restored database were archived before its snapshot.
    "sqlserver_late_snapshot": {**ACCEPT, "on_snapshot": OnSnapshot.REPLACE},
    # Nothing was missed, and no snapshot taken.
    "sqlserver_moved": ACCEPT,
    "oracle_resetlogs": {},
    "maria_failover": {},
    # The connector went on at its GTID.
    "maria_failover_gtid": ACCEPT,
    "maria_shards": {},
    "maria_partitions": {},
}
"""The captures, and what a person has to say about each."""
TABLE_COLUMNS = {"msh.shop.parts_all": "origin"}
AMBIGUOUS = "msh.shop.stock_all"
"""Its tables lie in several databases and have one name, and its keys do not say which one a row is of."""
QUICK = {"sqlserver_restored": "msr.testDB.dbo.ring"}
"""A table of a database that was restored: every run judges it, the deep run all tables of all captures."""


def topics_of(capture: str) -> list[str]:
    """Return the topics of a capture's tables."""
    tables = json.loads((CAPTURES / capture / "tables.json").read_text()).values()
    return [table["topic"] for table in tables if table["topic"] != AMBIGUOUS]


def flows_of(capture: str, **settings: object) -> dict[str, CdcFlow]:
    """Return the flows of a capture with what a person has to say, and more settings."""
    decided = {**DECIDED[capture], **settings}
    return {topic: CdcFlow(topic, table_column=TABLE_COLUMNS.get(topic), **decided) for topic in topics_of(capture)}  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def finals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the lakes of final rows, each made by the first test that needs it."""
    return tmp_path_factory.mktemp("finals")


def judge(capture: str, lake: Path, finals: Path, apply: Apply, spark: SparkSession, topics: Sequence[str] = ()) -> None:
    """Compare a lake with the database's final rows, in all tables or some."""
    topics = topics or topics_of(capture)
    apply(CAPTURES / capture / "final/schema", finals / capture, tables=tuple(topics))
    found = compare_lakes(spark, str(lake), str(finals / capture), tuple(topics)).tables
    assert len(found) == len(topics)
    assert [table for table in found if not table.equal] == []


def land(archive: Path, capture: str, *, files: int, copies: int) -> None:
    """Write a capture's topics anew, each in some files, all of them a number of times."""
    archive.mkdir(parents=True)
    for topic in topics_of(capture):
        with gzip.open(CAPTURES / capture / f"archive/schema/{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
            kept = list(lines)
        size = len(kept) // files + 1
        for place in range(files * copies):
            first = place % files * size
            with gzip.open(archive / f"{topic}-{place:03d}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(kept[first : first + size])


@pytest.mark.parametrize(
    ("capture", "topics"),
    [
        *[pytest.param(capture, (topic,), id=f"{capture}, one table") for capture, topic in QUICK.items()],
        *[pytest.param(capture, tuple(topics_of(capture)), id=capture, marks=pytest.mark.deep) for capture in DECIDED],
    ],
)
def test_a_capture_of_a_restore_gives_the_database_s_final_rows(
    capture: str, topics: tuple[str, ...], apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    archive = CAPTURES / capture / "archive/schema"
    report = apply(archive, tmp_path / "lake", flows=flows_of(capture), tables=topics)

    judge(capture, tmp_path / "lake", finals, apply, spark, topics)
    assert sum(flow.events.rejected for flow in report.flows) == 0

    again = apply(archive, tmp_path / "lake", flows=flows_of(capture), tables=topics)
    assert sum(flow.events.read for flow in again.flows) == 0


@pytest.mark.both_engines(by_spark=("sqlserver_restored", "oracle_resetlogs"))
@pytest.mark.parametrize(
    ("capture", "topics"),
    [
        # A truncate of one of its tables meets deletes of cut transactions, which show no table.
        pytest.param("maria_shards", ("msh.shop.parts_all",), id="maria_shards, one table"),
        *[pytest.param(capture, tuple(topics_of(capture)), id=capture, marks=pytest.mark.deep) for capture in DECIDED],
    ],
)
def test_a_capture_of_a_restore_applied_file_by_file_and_twice_gives_the_database_s_final_rows(
    capture: str, topics: tuple[str, ...], apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    land(tmp_path / "archive", capture, files=3, copies=2)
    flows = flows_of(capture, max_microbatch_bytes=1)
    report = apply(tmp_path / "archive", tmp_path / "lake", flows=flows, tables=topics)

    judge(capture, tmp_path / "lake", finals, apply, spark, topics)
    assert {len(flow.batches) for flow in report.flows} == {6}


@pytest.mark.deep
@pytest.mark.parametrize("capture", [capture for capture, decided in DECIDED.items() if "on_log_went_back" in decided])
def test_changes_of_a_log_that_went_back_without_a_snapshot_stop_the_flow_until_a_person_has_decided(
    capture: str, apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    archive, topics = CAPTURES / capture / "archive/schema", tuple(topics_of(capture))
    report = apply(archive, tmp_path / "lake", tables=topics, may_fail=True)

    assert [flow.batches for flow in report.flows] == [()] * len(topics)
    for flow in report.flows:
        assert "SourceLogWentBackError" in str(flow.error)
        assert "set on_log_went_back to accept" in str(flow.error)

    apply(archive, tmp_path / "lake", flows=flows_of(capture), tables=topics)
    judge(capture, tmp_path / "lake", finals, apply, spark)


@pytest.mark.deep
def test_a_snapshot_behind_accepted_changes_that_no_mark_proves_keeps_the_rows_which_it_did_not_find_and_counts_them(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    capture, topic = "sqlserver_late_snapshot", "msl.testDB.dbo.items"
    archive, final = CAPTURES / capture / "archive/schema", CAPTURES / capture / "final/schema"
    flows = {topic: CdcFlow(topic, on_log_went_back=OnLogWentBack.ACCEPT)}
    report = apply(archive, tmp_path / "lake", flows=flows, tables=(topic,))
    apply(final, tmp_path / "final", tables=(topic,))

    keys = [{(row["order_id"], row["line"]) for row in read_rows(spark, str(tmp_path / lake), topic).rows} for lake in ("lake", "final")]
    dead = keys[0] - keys[1]
    assert keys[1] <= keys[0]
    # The driver: rows that the restore took back. Those whose keys came again since are right by their events.
    assert len(dead) == 36
    assert sum(batch.rows_unconfirmed for flow in report.flows for batch in flow.batches) >= len(dead)


def truncates_of(topic: str) -> list[str]:
    """Return the tables that a topic's truncates name."""
    with gzip.open(CAPTURES / "maria_shards/archive/schema" / f"{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
        events = [event["payload"] for line in lines if (event := json.loads(line)["value"])]
    return [f"{event['source']['db']}.{event['source']['table']}" for event in events if event["op"] == "t"]


@pytest.mark.parametrize(
    ("topic", "settings", "way"),
    [
        ("msh.shop.parts_all", {}, "table_column"),
        (AMBIGUOUS, {}, "key.enforce.uniqueness"),
        # The column holds the database's name; with the table's, which all of them share, it would show nothing.
        (AMBIGUOUS, {"table_column": "shard"}, "key.enforce.uniqueness"),
    ],
)
def test_a_truncate_of_a_shard_stops_the_flow_where_the_shard_s_rows_are_not_known(
    topic: str, settings: dict[str, str], way: str, apply: Apply, tmp_path: Path
) -> None:
    flows = {topic: CdcFlow(topic, **settings)}  # type: ignore[arg-type]

    report = apply(CAPTURES / "maria_shards/archive/schema", tmp_path / "lake", flows=flows, tables=(topic,), may_fail=True)

    assert truncates_of(topic)
    (flow,) = report.flows
    assert "TruncateRefusedError" in str(flow.error)
    assert way in str(flow.error)
    assert flow.batches == ()
