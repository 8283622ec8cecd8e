"""Bare JSON beside its connector's schema-change topic: types, keys, and when the topic does not have the word."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from fsspec.implementations.local import LocalFileSystem
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.report.apply_report import FlowStatus
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.survey import schema_changes
from airflow_cdc.pipeline.survey.schema_changes import SchemaChanges, TableChange, topics_of
from airflow_cdc.pipeline.target.target_table import columns_of
from tests.conftest import Apply
from tests.support.events import Record, mariadb, numbered, schema_change, sqlserver, write_records, write_sink_file
from tests.support.tables import read_rows

ORDERS = "mdb.shop.orders"
MICROS = 1_531_481_430_123_456


def unscaled(number: int) -> str:
    """Return a decimal's digits as the connector writes them in its precise mode."""
    return base64.b64encode(number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)).decode()


def rows_in(spark: SparkSession, lake: Path, topic: str) -> list[dict[str, Any]]:
    return [dict(row) for row in read_rows(spark, str(lake), topic).rows]


def order(op: str, position: int, **after: Any) -> Record:
    return mariadb(op, position=position, after=after, topic=ORDERS, partition=0, key={"id": after["id"]})


def created(**altered: tuple[str, int | None, int | None]) -> Record:
    columns = {"id": ("INT", 11, None), "n": ("INT", 11, None), "amount": ("DECIMAL", 10, 2), "day": ("DATE", None, None), **altered}
    return schema_change("mariadb", '"shop"."orders"', columns, prefix="mdb", keys=["id"], kind="ALTER" if altered else "CREATE")


def test_a_tables_changes_are_found_by_the_topic_of_its_events() -> None:
    assert list(topics_of("mdb", '"shop"."odd table"')) == ["mdb.shop.odd_table"]
    assert list(topics_of("server1", '"testDB"."dbo"."t"')) == ["server1.testDB.dbo.t", "server1.dbo.t"]
    assert list(topics_of("mdb", '"shop"."a""b"')) == ["mdb.shop.a_b"]


def test_values_alone_get_types_and_key_from_the_topic(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    topic = "server1.testDB.dbo.orders"
    columns = {
        "id": ("int identity", 10, 0),
        "amount": ("decimal", 10, 2),
        "at": ("datetime2", 26, 6),
        "day": ("date", 10, 0),
        "note": ("nvarchar", 20, None),
    }
    row = {"id": 1, "amount": unscaled(1250), "at": MICROS, "day": 18262, "note": "a"}
    events = [sqlserver("c", commit=10, after=row, topic=topic), sqlserver("u", commit=20, after={**row, "note": "b"}, topic=topic)]
    write_sink_file(tmp_path / "archive", numbered(events), keys=False)
    statement = schema_change("sqlserver", '"testDB"."dbo"."orders"', columns, prefix="server1", keys=["id"])
    write_sink_file(tmp_path / "archive", numbered([statement]), keys=False)

    report = apply(tmp_path / "archive", tmp_path / "lake")

    assert report.control_topics == ("server1",)
    assert columns_of(spark, str(tmp_path / "lake" / topic)) == {
        "id": "INT",
        "amount": "DECIMAL(10,2)",
        "at": "TIMESTAMP_NTZ",
        "day": "DATE",
        "note": "STRING",
    }
    at = datetime(2018, 7, 13, 11, 30, 30, 123456)  # noqa: DTZ001 - a TIMESTAMP_NTZ has none.
    assert rows_in(spark, tmp_path / "lake", topic) == [
        {"id": 1, "amount": Decimal("12.50"), "at": at, "day": date(2020, 1, 1), "note": "b"}
    ]


@pytest.mark.deep
def test_a_table_that_the_topic_made_is_read_by_it_until_one_rule_no_longer_reads_its_values(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    # The first values show the type: 12.50 in base64 is no number.
    write_records(archive / "1.jsonl", [created(), order("r", 100, id=1, n=7, amount=unscaled(1250), day=18262)])
    apply(archive, lake)
    first = [{"id": 1, "n": 7, "amount": Decimal("12.50"), "day": date(2020, 1, 1)}]
    assert rows_in(spark, lake, ORDERS) == first

    # n becomes BIGINT; 1234 alone could be a number too.
    write_records(archive / "2.jsonl", [created(n=("BIGINT", 20, None)), order("c", 200, id=2, n=2**40, amount="1234", day=18263)])
    (flow,) = apply(archive, lake).flows
    second = [*first, {"id": 2, "n": 2**40, "amount": Decimal("-26588.24"), "day": date(2020, 1, 2)}]
    assert flow.batches[0].columns_widened == ("n",)
    assert rows_in(spark, lake, ORDERS) == second

    # Nothing in the event says which scale its digits have.
    altered = created(n=("BIGINT", 20, None), amount=("DECIMAL", 20, 4))
    write_records(archive / "3.jsonl", [altered, order("c", 300, id=3, n=1, amount=unscaled(1250), day=18264)])
    (flow,) = apply(archive, lake, may_fail=True).flows
    assert flow.status is FlowStatus.FAILED
    assert flow.error is not None
    assert flow.error["type"] == "SchemaChangeError"
    assert "amount (DECIMAL(10,2))" in flow.error["message"]
    assert rows_in(spark, lake, ORDERS) == second


@pytest.mark.deep
def test_a_table_that_was_made_without_the_topic_keeps_its_reading(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write_records(archive / "1.jsonl", [order("r", 100, id=1, n=7, amount=unscaled(1250), day=18262)])
    flows = {ORDERS: CdcFlow(ORDERS, on_unknown_types=OnUnknownTypes.GUESS)}
    apply(archive, lake, flows=flows)

    # A new column is the topic's own.
    statement = schema_change("mariadb", '"shop"."orders"', {"day": ("DATE", None, None), "due": ("DATE", None, None)}, prefix="mdb")
    write_records(archive / "2.jsonl", [statement, order("c", 200, id=2, n=8, amount=unscaled(1251), day=18263, due=18264)])
    apply(archive, lake, flows=flows)

    assert rows_in(spark, lake, ORDERS) == [
        {"id": 1, "n": 7, "amount": "BOI=", "day": 18262, "due": None},
        {"id": 2, "n": 8, "amount": "BOM=", "day": 18263, "due": date(2020, 1, 3)},
    ]


@pytest.mark.deep
def test_a_topic_without_the_tables_beginning_proves_nothing(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    cut_off = schema_change("mariadb", '"shop"."orders"', {"day": ("DATE", None, None)}, prefix="mdb", kind="ALTER")
    write_records(tmp_path / "archive/1.jsonl", [cut_off, order("r", 100, id=1, day=18262)])

    apply(tmp_path / "archive", tmp_path / "lake", flows={ORDERS: CdcFlow(ORDERS, on_unknown_types=OnUnknownTypes.GUESS)})

    assert rows_in(spark, tmp_path / "lake", ORDERS) == [{"id": 1, "day": 18262}]


def changes_by(*kinds_and_ids: tuple[str, str]) -> SchemaChanges:
    changes = [TableChange(kind, identifier, ("id",), ()) for kind, identifier in kinds_and_ids]
    archive, ledger = ArchiveState(LocalFileSystem(), "lake", "archive"), Ledger()
    return SchemaChanges(cast("SparkSession", None), archive, ledger, {ORDERS: changes})


def test_changes_count_only_of_one_table_and_from_its_beginning() -> None:
    whole = changes_by(("CREATE", '"shop"."orders"'), ("ALTER", '"shop"."orders"'))

    assert [change.kind for change in whole.of(ORDERS)] == ["CREATE", "ALTER"]
    assert whole.of("mdb.shop.others") == ()
    assert changes_by(("ALTER", '"shop"."orders"'), ("CREATE", '"shop"."orders"')).of(ORDERS) == ()
    assert changes_by(("CREATE", '"shop"."orders"'), ("CREATE", '"shop"."or ders"')).of(ORDERS) == ()


@pytest.mark.deep
def test_where_there_are_more_changes_than_are_read_none_counts(
    apply: Apply, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_changes, "MOST_CHANGES", 1)
    write_records(tmp_path / "archive/1.jsonl", [created(), created(), order("r", 100, id=1, day=18262)])

    apply(tmp_path / "archive", tmp_path / "lake", flows={ORDERS: CdcFlow(ORDERS, on_unknown_types=OnUnknownTypes.GUESS)})

    assert rows_in(spark, tmp_path / "lake", ORDERS) == [{"id": 1, "day": 18262}]


@pytest.mark.deep
def test_an_odd_record_of_another_connector_does_not_take_the_topics_word(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    good = [order("c", 100 + number, id=number, day=18262) for number in range(3)]
    odd = order("c", 200, id=9, day=1)
    odd["value"]["source"]["connector"] = "sqlserver-like"
    write_records(tmp_path / "archive/1.jsonl", [created(), *good, odd])

    report = apply(tmp_path / "archive", tmp_path / "lake")

    assert report.flows[0].events.rejected == 1
    assert [row["day"] for row in rows_in(spark, tmp_path / "lake", ORDERS)] == [date(2020, 1, 1)] * 3
