"""Where a topic's rows go: to the table that a route or a flow names, under the name that it gives them, and to no other one later."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import Route, RoutedFlows
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild
from tests.conftest import Apply
from tests.support.events import sqlserver, write_records
from tests.support.tables import read_rows

ORDERS, CARTS = "server1.testDB.dbo.orders", "server1.testDB.dbo.carts"
ROUTE = Route(r"server1\.testDB\.(\w+)\.(\w+)", r"gold/\1/\2", (r"routing_\1", r"\2"))
ROUTED = RoutedFlows({}, [ROUTE])


def archive_one(archive: Path, number: int, *topics: str) -> None:
    for topic in topics:
        item = sqlserver("c", commit=10 * number, after={"id": number, "topic": topic}, topic=topic, offset=number)
        write_records(archive / f"{topic}-{number}.jsonl", [item])


def ids(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["id"] for row in spark.sql(f"SELECT id FROM {table}").collect())


def error_of(report: ApplyReport) -> dict[str, Any]:
    (failed,) = [flow for flow in report.flows if flow.status is FlowStatus.FAILED]
    assert failed.error
    return failed.error


@pytest.fixture(autouse=True)
def schemas(spark: SparkSession) -> Iterator[None]:
    """The catalog is the Spark application's; the next test shall find none of this one's names."""
    yield
    for name in ("routing_dbo", "routing_shop"):
        spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def test_topics_are_routed_with_and_without_a_flow_and_have_names(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    flows = RoutedFlows({CARTS: CdcFlow(CARTS, table="mine", keys=("id",))}, [ROUTE])
    archive_one(archive, 1, ORDERS, CARTS)
    tables = {flow.flow: flow.table for flow in apply(archive, lake, flows=flows).flows}
    assert tables == {ORDERS: f"{lake}/gold/dbo/orders", CARTS: f"{lake}/mine"}
    versions = [spark.sql(f"DESCRIBE HISTORY delta.`{table}`").count() for table in tables.values()]
    archive_one(archive, 2, ORDERS)
    apply(archive, lake, flows=flows)
    assert (ids(spark, "routing_dbo.orders"), ids(spark, "spark_catalog.routing_dbo.carts")) == ([1, 2], [1])
    assert [row["id"] for row in read_rows(spark, str(lake), ORDERS).rows] == [1, 2]
    # Registering made no commit.
    assert versions == [2, 2]
    (detail,) = spark.sql("DESCRIBE DETAIL routing_dbo.orders").collect()
    assert detail["location"] == f"file:{lake}/gold/dbo/orders"
    types = {row["col_name"]: row["data_type"] for row in spark.sql("DESCRIBE TABLE EXTENDED routing_dbo.orders").collect()}
    assert types["Type"] == "EXTERNAL"


def test_a_run_that_finds_nothing_new_registers_all_the_same(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    archive_one(archive, 1, ORDERS)
    apply(archive, lake)
    named = {ORDERS: CdcFlow(ORDERS, catalog_table=("spark_catalog", "routing_shop", "orders"))}
    assert [apply(archive, lake, flows=named).flows[0].status for _ in range(2)] == [FlowStatus.UP_TO_DATE] * 2
    assert ids(spark, "routing_shop.orders") == [1]


def test_a_flow_without_a_table_yet_has_no_name(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [sqlserver("c", commit=1, after={"id": None}, topic=ORDERS, offset=0)])
    archive_one(archive, 2, CARTS)
    apply(archive, lake, flows={ORDERS: CdcFlow(ORDERS, catalog_table=("routing_shop", "orders"))}, tables=(ORDERS,), may_fail=True)
    assert not spark.catalog.tableExists("routing_shop.orders")


@pytest.mark.parametrize("kind", ["table", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("view", "gone"))])
def test_a_name_that_stands_for_something_else_stops_its_flow_alone(
    kind: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    spark.sql("CREATE SCHEMA routing_shop")
    if kind == "view":
        spark.sql("CREATE VIEW routing_shop.orders AS SELECT 7 AS id")
    else:
        spark.sql(f"CREATE TABLE routing_shop.orders (id INT) USING delta LOCATION '{other}'")
    if kind == "gone":
        shutil.rmtree(other)
    archive_one(archive, 1, ORDERS, CARTS)
    flows = {topic: CdcFlow(topic, catalog_table=("routing_shop", topic.rpartition(".")[2])) for topic in (ORDERS, CARTS)}
    error = error_of(apply(archive, lake, flows=flows, may_fail=True))
    assert (error["type"], error["transient"]) == ("CatalogTableError", False)
    assert f"Flow {ORDERS}: " in error["message"]
    assert str(lake / ORDERS) in error["message"]
    assert "`routing_shop`.`orders`" in error["message"]
    assert kind == "view" or str(other) in error["message"]
    assert "catalog_table" in error["next_step"]
    assert ids(spark, "routing_shop.carts") == [1]
    assert ids(spark, f"delta.`{lake}/{ORDERS}`") == [1]


@pytest.mark.parametrize(
    "name", [("routing_shop", "a.b"), pytest.param(("no_such_catalog", "routing_shop", "orders"), marks=pytest.mark.deep)]
)
def test_a_name_that_the_catalog_refuses_is_reported(name: tuple[str, ...], apply: Apply, archive: Path, lake: Path) -> None:
    archive_one(archive, 1, ORDERS)
    error = error_of(apply(archive, lake, flows={ORDERS: CdcFlow(ORDERS, catalog_table=name)}, may_fail=True))
    assert error["type"] == "CatalogTableError"
    assert "cannot be registered as `" in error["message"]


def test_topics_of_one_table_stop_the_run_before_anything_is_merged(apply: Apply, archive: Path, lake: Path) -> None:
    archive_one(archive, 1, ORDERS, CARTS)
    flows = RoutedFlows({}, [Route(r".*\.(\w)\w*", "gold/all")])
    with pytest.raises(ConfigurationError, match=f"Topics {CARTS} and {ORDERS} would share a table.*{lake}/gold/all"):
        apply(archive, lake, flows=flows)
    # Also where the other is not asked for: it has rows there, or will.
    with pytest.raises(ConfigurationError, match="would share a table"):
        apply(archive, lake, flows=flows, tables=(CARTS,))
    assert not (lake / "gold").exists()


MOVED: Mapping[str, Mapping[str, CdcFlow]] = {"flow": {ORDERS: CdcFlow(ORDERS, table="silver/orders")}, "route": ROUTED}


@pytest.mark.parametrize("by", ["flow", pytest.param("route", marks=pytest.mark.deep)])
def test_a_table_is_not_begun_anew_elsewhere_when_the_settings_change(
    by: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    archive_one(archive, 1, ORDERS)
    apply(archive, lake)
    archive_one(archive, 2, ORDERS)
    now = MOVED[by][ORDERS].table
    error = error_of(apply(archive, lake, flows=MOVED[by], may_fail=True))
    assert error["type"] == "ConfigurationError"
    assert f"its rows up to microbatch 1 are in {lake}/{ORDERS}; the settings name {lake}/{now}, where no table is" in error["message"]
    assert not (lake / str(now)).exists()
    # Whoever moves the table's folder goes on with it.
    (lake / str(now)).parent.mkdir(parents=True)
    (lake / ORDERS).rename(lake / str(now))
    apply(archive, lake, flows=MOVED[by])
    assert ids(spark, f"delta.`{lake}/{now}`") == [1, 2]


@pytest.mark.deep
def test_a_rebuild_takes_neither_the_place_nor_the_name(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    archive_one(archive, 1, ORDERS)
    apply(archive, lake, flows=ROUTED)
    report = rebuild(Rebuild(spark, str(archive), str(lake), (ORDERS,), flows=ROUTED))
    assert report.ok
    assert report.flows[0].table == f"{report.lake}/{ORDERS}"
    (detail,) = spark.sql("DESCRIBE DETAIL routing_dbo.orders").collect()
    assert detail["location"] == f"file:{lake}/gold/dbo/orders"


@pytest.mark.deep
def test_flows_of_other_places_are_not_asked_about_names(apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("airflow_cdc.pipeline.run.flow_run.register_table", lambda spark, flow, uri: asked.append(flow.topic))
    archive_one(archive, 1, ORDERS, CARTS)
    archive_one(archive, 2, ORDERS)
    flow = replace(CdcFlow(ORDERS, max_microbatch_bytes=1), catalog_table=("routing_shop", "orders"))
    report = apply(archive, lake, flows={ORDERS: flow})
    assert [len(each.batches) for each in report.flows] == [1, 2]
    assert asked == [ORDERS]
