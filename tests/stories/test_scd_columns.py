"""Stories of tables of versions whose flow chooses the columns' names: what the table shows, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.columns import VERSION_COLUMNS
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnSnapshot
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild
from airflow_cdc.pipeline.target.table_properties import SCD_COLUMNS_PROPERTY
from airflow_cdc.pipeline.target.target_table import latest_version
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun, maintain
from airflow_cdc.pipeline.upkeep.verify import verify_history, verify_lakes
from tests.conftest import Apply
from tests.support.events import Record, mongodb, write_records
from tests.support.stories import CHOSEN, TOPIC, Table, event, milliseconds, truncate, under_default_names
from tests.support.tables import read_quarantine, read_rows

PLAIN = ScdColumns(valid_from="valid_from", valid_to="valid_to", is_current="is_current", previous_key="previous_key")
FLOW = CdcFlow(TOPIC, stored_as_scd_type=2, scd_columns=PLAIN)
DEFAULT = replace(FLOW, scd_columns=ScdColumns())
SOURCE = ["id", "v", "note"]

Failed = Callable[[], dict[str, Any]]
Version = tuple[int, str, int | None, int | None, bool, int | None]


@pytest.fixture
def table(apply: Apply, spark: SparkSession, tmp_path: Path) -> Table:
    return Table(apply, spark, tmp_path, FLOW)


@pytest.fixture
def failed(table: Table, apply: Apply, archive: Path, lake: Path) -> Failed:
    """Apply what the table's archive holds; the flow must fail for good."""

    def run() -> dict[str, Any]:
        (flow,) = apply(archive, lake, flows={TOPIC: table.flow}, may_fail=True).flows
        assert flow.error, flow
        assert flow.error["transient"] is False
        return flow.error

    return run


def at(offset: int, record: Record) -> Record:
    return {**record, "offset": offset}


def versions(spark: SparkSession, lake: Path | str) -> list[Version]:
    """Return key, value, start, end, flag and previous key, as `show --history` reads them under the chosen names."""
    return [
        (
            row["id"],
            row["v"],
            milliseconds(row["valid_from"]),
            milliseconds(row["valid_to"]),
            row["is_current"],
            row["previous_key"] and row["previous_key"]["id"],
        )
        for row in read_rows(spark, str(lake), TOPIC, history=True).rows
    ]


def columns(spark: SparkSession, lake: Path) -> list[str]:
    return spark.read.format("delta").load(str(lake / TOPIC)).columns


def whole_life(table: Table) -> FlowOutcome:
    """A snapshot, an update, a key change, a delete, a late event, and a truncate."""
    reads = event("r", 10, 1, "one", snapshot="first"), event("r", 10, 2, "two", snapshot="last")
    table.load(at(0, reads[0]), at(1, reads[1]))
    table.load(at(10, event("u", 20, 1, "changed")))
    table.load(at(11, event("d", 30, 2)), at(12, event("c", 30, 7, "two")))
    table.load(at(13, event("d", 40, 1)))
    table.load(at(5, event("u", 15, 1, "late")))
    return table.load(at(14, truncate(50)), at(15, event("c", 60, 1, "again")))


ENDED: list[Version] = [
    (1, "one", 10, 15, False, None),
    (1, "late", 15, 20, False, None),
    (1, "changed", 20, 40, False, None),
    (1, "again", 60, None, True, None),
    (2, "two", 10, 30, False, None),
    (7, "two", 30, 50, False, 2),
]


def test_a_table_of_versions_has_the_names_that_its_flow_chose(table: Table, failed: Failed, spark: SparkSession, lake: Path) -> None:
    # load 1: a snapshot
    table.load(at(0, event("r", 10, 1, "one", snapshot="first")), at(1, event("r", 10, 2, "two", snapshot="last")))
    named = PLAIN.by_default
    assert columns(spark, lake) == [*SOURCE, *(named.get(name, name) for name in VERSION_COLUMNS)]
    assert versions(spark, lake) == [(1, "one", 10, None, True, None), (2, "two", 10, None, True, None)]
    # load 2: an update, a key change and a delete
    table.load(at(10, event("u", 20, 1, "changed")), at(11, event("d", 30, 2)), at(12, event("c", 30, 7, "two")), at(13, event("d", 40, 1)))
    moved = [(2, "two", 10, 30, False, None), (7, "two", 30, None, True, 2)]
    assert versions(spark, lake) == [(1, "one", 10, 20, False, None), (1, "changed", 20, 40, False, None), *moved]
    # load 3: a late event, and one that comes again
    again = table.load(at(5, event("u", 15, 1, "late")), at(10, event("u", 20, 1, "changed")))
    assert (again.events.stale, again.events.merged) == (1, 1)
    assert versions(spark, lake) == [*ENDED[:3], *moved]
    # load 4: a truncate
    outcome = table.load(at(14, truncate(50)), at(15, event("c", 60, 1, "again")))
    assert versions(spark, lake) == ENDED
    # Where the table's rows are read as the source's, our columns are left out.
    assert list(outcome.columns) == SOURCE
    assert (table.live(), list(read_rows(spark, str(lake), TOPIC).columns)) == ([(1, "again")], SOURCE)
    (summary,) = summarize_flows(spark, str(lake))
    assert (summary.rows, summary.rejected) == (1, 0)
    (verified,) = verify_history(spark, str(lake)).tables
    assert (verified.equal, verified.rows) == (True, len(ENDED))
    # load 5: other names stop the flow
    table.archive(at(16, event("u", 70, 1, "more")))
    was = latest_version(spark, str(lake / TOPIC))
    table.flow = DEFAULT
    check_refusal(failed(), PLAIN, ScdColumns())
    assert latest_version(spark, str(lake / TOPIC)) == was


@pytest.mark.deep
@pytest.mark.parametrize("names", [PLAIN, CHOSEN, ScdColumns()], ids=["the same names", "other names", "the default names"])
def test_a_rebuild_is_the_same_history_under_the_names_of_its_flow(
    names: ScdColumns, table: Table, spark: SparkSession, archive: Path, lake: Path, tmp_path: Path
) -> None:
    whole_life(table)
    into = str(tmp_path / "rebuilt")
    order = Rebuild(spark, str(archive), str(lake), (TOPIC,), into=into, flows={TOPIC: replace(FLOW, scd_columns=names)})
    assert rebuild(order).ok

    told = [
        (name, under_default_names(read_rows(spark, root, TOPIC, history=True).rows, of))
        for name, root, of in [
            ("live", str(lake), PLAIN),
            ("rebuilt", into, names),
        ]
    ]
    histories = {name: [{column: row[column] for column in row if column != "__cdc_microbatch"} for row in rows] for name, rows in told}
    assert histories["live"] == histories["rebuilt"]
    assert len(histories["live"]) == len(ENDED)
    # Two lakes are compared by the source's columns, whatever ours are called.
    assert compare_lakes(spark, str(lake), into).equal
    assert verify_lakes(spark, str(lake), into).equal
    assert verify_history(spark, into).equal


@pytest.mark.deep
def test_a_snapshot_that_removes_nothing_counts_the_current_versions_that_it_did_not_find(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    unconfirmed = {}
    for name, flow in (("chosen", replace(FLOW, scd_columns=CHOSEN)), ("default", DEFAULT)):
        table = Table(apply, spark, tmp_path / name, replace(flow, on_snapshot=OnSnapshot.KEEP))
        table.load(event("c", 10, 1, "one"), event("c", 11, 2, "two"), event("c", 12, 3, "three"), event("d", 13, 3))
        outcome = table.load(event("r", 50, 1, "one", snapshot="first"), event("r", 50, 4, "four", snapshot="last"))
        unconfirmed[name] = outcome.batches[-1].rows_unconfirmed
        assert [row[0] for row in table.live()] == [1, 2, 4]
    assert unconfirmed == {"chosen": 1, "default": 1}


@pytest.mark.deep
def test_maintenance_clusters_a_table_by_a_chosen_name(table: Table, spark: SparkSession, lake: Path) -> None:
    table.load(event("c", 10, 1, "one"), event("u", 20, 1, "two"))
    flows = {TOPIC: replace(FLOW, cluster_by=("valid_from",))}
    report = maintain(MaintenanceRun(spark, str(lake), flows))
    assert [flow.error for flow in report.flows] == [None]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{lake / TOPIC}`").collect()[0]
    assert detail["clusteringColumns"] == ["valid_from"]
    table.load(event("u", 30, 1, "three"))
    assert [version[:4] for version in versions(spark, lake)] == [(1, "one", 10, 20), (1, "two", 20, 30), (1, "three", 30, None)]


# A table keeps its names


def check_refusal(error: dict[str, Any], made: ScdColumns, asked: ScdColumns) -> None:
    assert error["type"] == "TableModeError"
    assert f"Flow {TOPIC}" in error["message"]
    assert f"was made with scd_columns {made.to_json()}, the flow's settings ask for {asked.to_json()}" in error["message"]
    assert "Set scd_columns back" in error["next_step"]
    assert "rebuild the flow" in error["next_step"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("made", "asked"),
    [(PLAIN, ScdColumns()), (ScdColumns(), PLAIN), (PLAIN, replace(PLAIN, valid_from="Valid_From"))],
    ids=["without the setting", "with the setting", "in another case"],
)
def test_other_names_than_those_of_the_table_stop_the_flow(
    made: ScdColumns, asked: ScdColumns, table: Table, failed: Failed, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    table.flow = replace(FLOW, scd_columns=made)
    table.load(event("c", 10, 1, "one"))
    was = latest_version(spark, str(lake / TOPIC))
    table.archive(event("u", 20, 1, "two"))

    table.flow = replace(FLOW, scd_columns=asked)
    check_refusal(failed(), made, asked)
    assert latest_version(spark, str(lake / TOPIC)) == was
    table.flow = replace(FLOW, scd_columns=made)
    apply(archive, lake, flows={TOPIC: table.flow})
    assert [(row["v"], row["__cdc_is_current"]) for row in table.rows()] == [("one", False), ("two", True)]


@pytest.mark.deep
def test_a_table_that_records_no_names_goes_on_under_the_default_ones(
    table: Table, failed: Failed, spark: SparkSession, lake: Path
) -> None:
    table.flow = DEFAULT
    table.load(event("c", 10, 1, "one"))
    # As tables of earlier versions are.
    spark.sql(f"ALTER TABLE delta.`{lake / TOPIC}` UNSET TBLPROPERTIES ('{SCD_COLUMNS_PROPERTY}')")
    table.load(event("u", 20, 1, "two"))
    assert [(row["v"], row["__cdc_is_current"]) for row in table.rows()] == [("one", False), ("two", True)]
    table.archive(event("u", 30, 1, "three"))
    table.flow = FLOW
    assert f"was made with scd_columns {ScdColumns().to_json()}" in failed()["message"]


# A source column cannot have a chosen name


def with_column(record: Record, name: str, value: str | None) -> Record:
    return {**record, "value": {**record["value"], "after": {**record["value"]["after"], name: value}}}


@pytest.mark.parametrize(("name", "value"), [("valid_from", "spring"), pytest.param("Valid_From", None, marks=pytest.mark.deep)])
def test_a_source_column_with_a_chosen_name_stops_the_flow_before_anything_is_written(
    name: str, value: str | None, table: Table, failed: Failed, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    table.archive(with_column(event("c", 10, 1, "one"), name, value))

    error = failed()

    assert error["type"] == "ConfigurationError"
    assert f"Flow {TOPIC}: scd_columns chooses names that columns of the source have" in error["message"]
    assert f"{{'{name}': 'valid_from'}}" in error["message"]
    assert "Choose other names under scd_columns" in error["next_step"]
    assert not (lake / TOPIC).exists()
    assert not (lake / "_cdc" / "flows" / TOPIC / "events").exists()
    assert read_quarantine(spark, str(lake)) == []
    # There is no table yet, so other names need no rebuild.
    table.flow = replace(FLOW, scd_columns=replace(PLAIN, valid_from="began"))
    apply(archive, lake, flows={TOPIC: table.flow})
    (row,) = table.rows()
    assert (row["v"], milliseconds(row["__cdc_valid_from"])) == ("one", 10)
    assert row.get("valid_from") == value


@pytest.mark.deep
def test_so_does_one_that_the_source_adds_later(table: Table, failed: Failed, spark: SparkSession, archive: Path, lake: Path) -> None:
    table.load(event("c", 10, 1, "one"))
    was = latest_version(spark, str(lake / TOPIC))
    # Among many records without the column: it is a column of the source all the same, no odd record to set aside.
    others = [event("c", 20 + number, 10 + number, "other") for number in range(40)]
    table.archive(*others, with_column(event("u", 70, 1, "two"), "IS_CURRENT", "yes"))

    error = failed()

    assert (error["type"], "{'IS_CURRENT': 'is_current'}" in error["message"]) == ("ConfigurationError", True), error
    assert latest_version(spark, str(lake / TOPIC)) == was
    assert versions(spark, lake) == [(1, "one", 10, None, True, None)]
    assert read_quarantine(spark, str(lake)) == []
    # The table has the names already: others are refused too, and a rebuild takes them.
    table.flow = replace(FLOW, scd_columns=replace(PLAIN, is_current="lives"))
    assert failed()["type"] == "TableModeError"
    into = str(archive.parent / "rebuilt")
    assert rebuild(Rebuild(spark, str(archive), str(lake), (TOPIC,), into=into, flows={TOPIC: table.flow})).ok
    rebuilt = read_rows(spark, into, TOPIC, history=True).rows
    assert [(row["v"], row["lives"], row["IS_CURRENT"]) for row in rebuilt if row["id"] == 1] == [
        ("one", False, None),
        ("two", True, "yes"),
    ]


@pytest.mark.deep
def test_the_columns_of_documents_cannot_have_a_chosen_name_either(apply: Apply, archive: Path, lake: Path) -> None:
    topic = "mg.shop.orders"
    write_records(archive / "1.jsonl", [mongodb("c", "1", second=1, offset=0, after='{"_id": 1}')])
    flow = replace(FLOW, topic=topic, scd_columns=ScdColumns(valid_from="Document"))
    (outcome,) = apply(archive, lake, flows={topic: flow}, may_fail=True).flows
    assert outcome.error
    assert outcome.error["type"] == "ConfigurationError"
    assert "{'document': 'valid_from'}" in outcome.error["message"]
    assert not (lake / topic).exists()
    apply(archive, lake, flows={topic: replace(flow, scd_columns=PLAIN)})
    assert (lake / topic).exists()
