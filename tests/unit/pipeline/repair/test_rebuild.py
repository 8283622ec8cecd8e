"""A flow is made anew from its archive, as of any moment, beside the live table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.support.events import TOPIC, Record, lsn, numbered, postgresql, sqlserver, write_records
from tests.support.tables import read_rows

PG, ORDERS = "pg.public.customers", "server1.testDB.dbo.orders"
# What each transaction did, and what the table then held.
HISTORY = [
    sqlserver("c", commit=1, serial=1, after={"id": 1, "name": "ann"}),
    sqlserver("c", commit=1, serial=2, after={"id": 2, "name": "ben"}),
    sqlserver("u", commit=2, serial=1, after={"id": 1, "name": "ann b."}),
    sqlserver("d", commit=2, serial=2, before={"id": 2, "name": "ben"}),
    sqlserver("c", commit=3, serial=1, after={"id": 2, "name": "bea"}),
    sqlserver("d", commit=3, serial=2, before={"id": 1, "name": "ann b."}),
]
STATES = {1: {1: "ann", 2: "ben"}, 2: {1: "ann b."}, 3: {2: "bea"}}


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(spark: SparkSession, lake: Path | str, flow: str = TOPIC) -> dict[int, str]:
    return {row["id"]: row["name"] for row in read_rows(spark, str(lake), flow).rows}


def position(number: int) -> str:
    """Return a transaction's commit position as our tables show it."""
    return str(sqlserver_lsn(lsn(number)))


@pytest.fixture
def order(spark: SparkSession, archive: Path, lake: Path, tmp_path: Path) -> Rebuild:
    return Rebuild(spark, str(archive), str(lake), (TOPIC,), into=str(tmp_path / "new"))


def as_of(order: Rebuild, text: str, into: Path) -> ApplyReport:
    report = rebuild(replace(order, as_of=parse_as_of(text), into=str(into)))
    assert report.ok, report.flows
    return report


@pytest.mark.deep
def test_without_a_moment_everything_is_rebuilt_and_the_live_lake_stays_as_it_is(
    spark: SparkSession, apply: Apply, archive: Path, lake: Path, tmp_path: Path, order: Rebuild
) -> None:
    events = numbered(HISTORY)
    write_records(archive / "1.jsonl", events[:3])
    write_records(archive / "2.jsonl", events[3:])
    apply(archive, lake)
    before = files_below(lake)
    lines: list[str] = []

    report = rebuild(replace(order, into=None, progress=lines.append))

    (new,) = (lake / "_cdc" / "rebuilds").iterdir()
    assert report.lake == str(new)
    assert lines[0] == f"{TOPIC}: rebuilding into {new}"
    assert not [line for line in lines if "looking into" in line], "the live lake has surveyed the archive"
    assert (report.flows[0].events.read, report.flows[0].table) == (6, f"{new}/{TOPIC}")
    assert compare_lakes(spark, str(lake), str(new)).equal
    assert {name: data for name, data in files_below(lake).items() if "_cdc/rebuilds/" not in name} == before


OTHER_SPELLINGS = (position(2), f"{position(2)}/{position(2)}/1", "2023-11-14T22:13:20.002Z")


@pytest.mark.parametrize(
    "spelled",
    ["2023-11-14T23:13:20.002+01:00", *(pytest.param(other, marks=pytest.mark.deep) for other in (lsn(2), *OTHER_SPELLINGS))],
)
def test_a_moment_ends_the_table_behind_its_transaction_however_it_is_spelled(
    spelled: str, spark: SparkSession, archive: Path, tmp_path: Path, order: Rebuild
) -> None:
    # The border of the files cuts the transactions.
    events = numbered(HISTORY)
    write_records(archive / "1.jsonl", events[:3])
    write_records(archive / "2.jsonl", events[3:5])
    write_records(archive / "3.jsonl", events[5:])
    report = as_of(order, spelled, tmp_path / "new")
    assert names(spark, tmp_path / "new") == STATES[2]
    outcome = report.flows[0]
    assert (outcome.events.read, outcome.cut_records, outcome.cut_files) == (4, 2, 2)


@pytest.mark.deep
def test_a_lake_that_ends_at_a_moment_goes_on_from_there_when_it_is_applied_to(
    spark: SparkSession, apply: Apply, archive: Path, tmp_path: Path, order: Rebuild
) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    as_of(order, position(1), tmp_path / "new")
    assert names(spark, tmp_path / "new") == STATES[1]
    report = apply(archive, tmp_path / "new")
    assert report.flows[0].events.read == 4
    assert names(spark, tmp_path / "new") == STATES[3]


@pytest.mark.deep
def test_a_moment_before_all_events_leaves_nothing_to_apply(archive: Path, lake: Path, tmp_path: Path, order: Rebuild) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    report = as_of(order, "2020-01-01", tmp_path / "new")
    assert (report.flows[0].status, report.flows[0].cut_records) == (FlowStatus.WAITING, 6)
    assert not (tmp_path / "new" / TOPIC).exists()


@pytest.mark.deep
def test_a_time_behind_all_events_leaves_nothing_out(spark: SparkSession, archive: Path, tmp_path: Path, order: Rebuild) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    report = as_of(order, "2023-11-14T22:13:20.003", tmp_path / "new")
    assert (report.flows[0].events.read, report.flows[0].cut_records) == (6, 0)
    assert names(spark, tmp_path / "new") == STATES[3]


def snapshots() -> list[Record]:
    """A snapshot under load, which says 99 and does not contain what is streamed behind it; then one that heals a loss."""

    def read(number: int, at: int, name: str, mark: str) -> Record:
        # Without a last commit: reads of an initial snapshot, the only kind that removes rows by itself.
        found: dict[str, Any] = postgresql("r", commit=None, change=at, after={"id": number, "name": name})
        found["value"]["source"]["snapshot"] = mark
        return found

    return numbered(
        [
            read(1, 99, "ann", "first"),
            read(2, 99, "ben", "last"),
            postgresql("u", commit=49, change=50, after={"id": 1, "name": "ann b."}),
            postgresql("u", commit=59, change=60, after={"id": 2, "name": "bea"}),
            read(1, 300, "anna", "first"),
            read(3, 300, "cat", "last"),
            postgresql("u", commit=310, change=311, after={"id": 3, "name": "cathy"}),
        ]
    )


@pytest.mark.deep
@pytest.mark.parametrize(
    ("moment", "rows"),
    [
        # The archive begins with the first snapshot: whatever position it has, nothing older is known.
        ("48", {1: "ann", 2: "ben"}),
        ("49", {1: "ann b.", 2: "ben"}),
        ("0/3B", {1: "ann b.", 2: "bea"}),
        # The second one is what the table became, not what it was.
        ("299", {1: "ann b.", 2: "bea"}),
        ("2023-11-14T22:13:20.299Z", {1: "ann b.", 2: "bea"}),
        ("300", {1: "anna", 3: "cat"}),
        ("2023-11-14T22:13:20.300Z", {1: "anna", 3: "cat"}),
        ("310", {1: "anna", 3: "cathy"}),
    ],
)
def test_a_later_snapshot_proves_nothing_of_an_earlier_moment(
    moment: str, rows: dict[int, str], spark: SparkSession, archive: Path, tmp_path: Path, order: Rebuild
) -> None:
    write_records(archive / "1.jsonl", snapshots())
    as_of(replace(order, names=(PG,)), moment, tmp_path / "new")
    assert names(spark, tmp_path / "new", PG) == rows


@pytest.mark.deep
@pytest.mark.parametrize("ends_with_a_snapshot", [False, True])
def test_reads_that_were_left_out_come_when_the_lake_goes_on(
    ends_with_a_snapshot: bool, spark: SparkSession, apply: Apply, archive: Path, tmp_path: Path, order: Rebuild
) -> None:
    write_records(archive / "1.jsonl", snapshots()[:-1] if ends_with_a_snapshot else snapshots())
    as_of(replace(order, names=(PG,)), "2023-11-14T22:13:20.200Z", tmp_path / "new")
    assert names(spark, tmp_path / "new", PG) == {1: "ann b.", 2: "bea"}
    report = apply(archive, tmp_path / "new")
    assert report.flows[0].events.read == (2 if ends_with_a_snapshot else 3)
    assert names(spark, tmp_path / "new", PG) == {1: "anna", 3: "cat" if ends_with_a_snapshot else "cathy"}
    assert apply(archive, tmp_path / "new").flows[0].status is FlowStatus.UP_TO_DATE


@pytest.mark.deep
def test_a_table_of_its_own_place_is_not_written(
    spark: SparkSession, apply: Apply, archive: Path, lake: Path, tmp_path: Path, order: Rebuild
) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    flows = {TOPIC: CdcFlow(TOPIC, table=str(tmp_path / "live"), columns={"id": "DECIMAL(9,0)"})}
    apply(archive, lake, flows=flows)
    before = files_below(tmp_path / "live")
    report = rebuild(replace(order, flows=flows))
    assert report.flows[0].table == f"{tmp_path}/new/{TOPIC}"
    assert files_below(tmp_path / "live") == before
    # The flow's other settings count.
    assert read_rows(spark, str(tmp_path / "new"), TOPIC).columns["id"] == "DECIMAL(9,0)"


@pytest.mark.deep
def test_a_folder_that_knows_the_flow_is_refused(
    archive: Path, lake: Path, apply: Apply, order: Rebuild, spark: SparkSession, tmp_path: Path
) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    apply(archive, lake)
    before = files_below(lake)
    with pytest.raises(ConfigurationError, match="is the live lake"):
        rebuild(replace(order, into=f"{lake}/"))
    assert files_below(lake) == before
    other = tmp_path / "other"
    apply(archive, other)
    with pytest.raises(ConfigurationError, match=f"holds a table or the state of flow {TOPIC} already"):
        rebuild(replace(order, into=str(other)))
    # A table without state is somebody's too.
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/new/{TOPIC}` (id INT) USING delta")
    with pytest.raises(ConfigurationError, match="holds a table or the state"):
        rebuild(order)


class CrashError(Exception):
    """Stands for a killed driver."""


@pytest.mark.deep
def test_a_rebuild_that_was_cut_off_goes_on_where_it_stood_and_another_is_refused(
    archive: Path, lake: Path, apply: Apply, order: Rebuild, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = numbered([*HISTORY, sqlserver("c", commit=1, after={"id": 1, "name": "first"}, topic=ORDERS)])
    for number, records in enumerate((events[:3], events[3:]), start=1):
        write_records(archive / f"{number}.jsonl", records)
        apply(archive, lake)
    order = replace(order, names=(TOPIC, ORDERS), as_of=parse_as_of(position(2)))

    # While the surveys are copied …
    with monkeypatch.context() as cut_off:
        added: list[int] = []

        def add(state: ArchiveState, survey: Survey) -> bool:
            if added:
                raise CrashError("copy")
            added.append(survey.number)
            return really_add(state, survey)

        really_add = ArchiveState.add
        cut_off.setattr(ArchiveState, "add", add)
        with pytest.raises(CrashError):
            rebuild(order)

    # … and when a flow is merged, and not marked as done.
    def crash(effect: str) -> None:
        if effect == "merge":
            raise CrashError(effect)

    assert not rebuild(replace(order, after_effect=crash)).ok

    with pytest.raises(ConfigurationError, match="holds a table or the state"):
        rebuild(replace(order, as_of=None))
    lines: list[str] = []
    assert rebuild(replace(order, progress=lines.append)).ok
    assert not [line for line in lines if "looking into" in line], "the copy of the surveys was ended"
    assert (names(spark, tmp_path / "new"), names(spark, tmp_path / "new", ORDERS)) == (STATES[2], {1: "first"})
    # Once more there is nothing to do, unless a run has gone on since: the table is none of that moment any more.
    assert {flow.status for flow in rebuild(order).flows} == {FlowStatus.WAITING, FlowStatus.UP_TO_DATE}
    apply(archive, tmp_path / "new")
    with pytest.raises(ConfigurationError, match="holds a table or the state"):
        rebuild(order)


def test_a_flow_that_the_archive_does_not_hold_is_refused_and_a_name_is_no_glob(archive: Path, order: Rebuild) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    with pytest.raises(ConfigurationError) as refused:
        rebuild(replace(order, names=("server1.*",)))
    assert f"holds no flow server1.*; its flows are ['{TOPIC}']" in refused.value.message


def test_a_position_of_another_connector_fails_the_flow_before_anything_is_merged(archive: Path, tmp_path: Path, order: Rebuild) -> None:
    write_records(archive / "1.jsonl", numbered(HISTORY))
    report = rebuild(replace(order, as_of=parse_as_of("0/16B3748")))
    error = report.flows[0].error
    assert error is not None
    assert (error["type"], error["message"]) == (
        "ConfigurationError",
        f"Flow {TOPIC}: '0/16B3748' is no position of its connector sqlserver.",
    )
    assert not (tmp_path / "new" / TOPIC).exists()


@pytest.mark.deep
def test_events_without_an_order_of_transactions_cannot_be_ended(archive: Path, order: Rebuild) -> None:
    event = sqlserver("c", commit=1, after={"id": 1})
    other = json.loads(json.dumps(event))
    other["value"]["source"]["connector"] = "postgresql"
    write_records(archive / "1.jsonl", numbered([event, other]))
    report = rebuild(replace(order, as_of=parse_as_of("5")))
    error = report.flows[0].error
    assert error is not None
    assert "['postgresql', 'sqlserver'], whose positions cannot bound a flow" in error["message"]


@pytest.mark.deep
def test_rows_that_are_swapped_in_carry_on_with_the_live_flow(
    spark: SparkSession, apply: Apply, archive: Path, lake: Path, order: Rebuild
) -> None:
    """As docs/how-to/rebuild-and-reprocess.md says."""
    events = numbered(HISTORY)
    write_records(archive / "1.jsonl", events[:3])
    apply(archive, lake)
    spark.sql(f"UPDATE delta.`{lake}/{TOPIC}` SET name = 'spoiled'")
    new = rebuild(order).lake
    assert not compare_lakes(spark, str(lake), new).equal
    spark.sql("SET spark.databricks.delta.commitInfo.userMetadata = 'airflow_cdc: intended'")
    spark.sql(f"INSERT OVERWRITE delta.`{lake}/{TOPIC}` BY NAME SELECT * FROM delta.`{new}/{TOPIC}`")
    spark.sql("RESET spark.databricks.delta.commitInfo.userMetadata")
    assert compare_lakes(spark, str(lake), new).equal
    # What comes next is merged, and what comes again changes nothing.
    write_records(archive / "2.jsonl", [*events[:3], *events[3:]])
    counts = apply(archive, lake).flows[0].events
    assert (counts.read, names(spark, lake)) == (6, STATES[3])
