"""Renamed columns: the table's column takes the new name with its values, and late events still find it under the old one."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.settle.find_renames import renames_in, stated_renames
from airflow_cdc.pipeline.survey.schema_changes import ChangedColumn, TableChange
from tests.conftest import Apply
from tests.stories.test_widening import decimal, plain, typed
from tests.support.events import Record, mariadb, postgresql, schema_change, sqlserver, write_records
from tests.support.tables import read_rows

TOPIC = "mdb.shop.orders"
RENAME = "ALTER TABLE `shop`.`orders` RENAME COLUMN `n` TO `the number`"


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("ALTER TABLE t RENAME COLUMN a TO b", [("a", "b")]),
        ('alter table "T" rename column "a "" b" to "B"', [('a " b', "B")]),
        ("ALTER TABLE t CHANGE a b INT NOT NULL, CHANGE COLUMN `c``d` `e f` varchar(3)", [("a", "b"), ("c`d", "e f")]),
        ("ALTER TABLE t CHANGE COLUMN IF EXISTS a b INT", [("a", "b")]),
        ("ALTER TABLE t RENAME TO u, ADD COLUMN change_no INT", []),
    ],
)
def test_what_a_statement_renames(ddl: str, expected: list[tuple[str, str]]) -> None:
    assert renames_in(ddl) == expected


def change(*names: str, ddl: str = "") -> TableChange:
    return TableChange("ALTER" if ddl else "CREATE", '"t"', ("id",), tuple(ChangedColumn(name, "INT", None, None) for name in names), ddl)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # once, twice, and back
        ([change("id", "a"), change("id", "b", ddl="RENAME COLUMN a TO b")], {"a": "b"}),
        (
            [change("id", "a"), change("id", "b", ddl="RENAME COLUMN a TO b"), change("id", "c", ddl="CHANGE b c INT")],
            {"a": "c", "b": "c"},
        ),
        ([change("id", "a"), change("id", "b", ddl="RENAME COLUMN a TO b"), change("id", "a", ddl="CHANGE b a INT")], {"b": "a"}),
        # an old name that another column has by now proves nothing
        ([change("id", "a"), change("id", "b", ddl="RENAME COLUMN a TO b"), change("id", "b", "a", ddl="ADD a INT")], {}),
        # words that the columns do not bear out: another table's, a comment's, one that came to nothing
        ([change("id", "a"), change("id", "a", ddl="RENAME COLUMN a TO b")], {}),
        ([change("id", "a"), change("id", "a", "b", ddl="ADD b INT COMMENT 'RENAME COLUMN a TO b'")], {}),
        ([change("id", "a"), change("id", "b", ddl="")], {}),
    ],
)
def test_a_rename_is_one_where_the_columns_bear_it_out(changes: Sequence[TableChange], expected: dict[str, str]) -> None:
    assert stated_renames(changes) == expected


class Orders:
    """One table's events, bare; each load is a run."""

    def __init__(self, apply: Apply, folder: Path, *, flow: CdcFlow | None = None) -> None:
        self.apply, self.archive, self.lake, self.flow = apply, folder / "archive", folder / "lake", flow or CdcFlow(TOPIC)
        self._loads = 0

    def altered(self, ddl: str | None, **columns: str) -> None:
        definitions = {name: (kind, None, None) for name, kind in columns.items()}
        kind = "ALTER" if ddl else "CREATE"
        made = schema_change("mariadb", '"shop"."orders"', definitions, prefix="mdb", keys=["id"], kind=kind, ddl=ddl)
        write_records(self.archive / f"schema-{len(list(self.archive.glob('schema*')))}.jsonl", [made])

    def load(self, *events: Record, **options: Any) -> FlowOutcome:
        self._loads += 1
        write_records(self.archive / f"{self._loads:03d}.jsonl", events)
        return self.run(**options)

    def run(self, **options: Any) -> FlowOutcome:
        outcome: FlowOutcome = self.apply(self.archive, self.lake, flows={self.flow.topic: self.flow}, **options).flows[-1]
        return outcome

    def rows(self, spark: SparkSession) -> list[dict[str, Any]]:
        return [dict(row) for row in read_rows(spark, str(self.lake), self.flow.topic).rows]


def order(op: str, position: int, **image: Any) -> Record:
    side = "before" if op == "d" else "after"
    return mariadb(op, position=position, topic=TOPIC, partition=0, key={"id": image["id"]}, **{side: image})


NEW = "the number"


@pytest.mark.parametrize("on_delete", [OnDelete.REMOVE, pytest.param(OnDelete.FLAG, marks=pytest.mark.deep)])
def test_a_rename_in_the_schema_change_topic_keeps_the_values(
    on_delete: OnDelete, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    orders = Orders(apply, tmp_path, flow=CdcFlow(TOPIC, on_delete=on_delete))
    orders.altered(None, id="INT", n="INT", note="VARCHAR")
    orders.load(*(order("c", number, id=number, n=number * 10, note="x") for number in (1, 2, 3, 4)))
    orders.altered(RENAME, id="INT", **{NEW: "INT"}, note="VARCHAR")

    # Events of before and after the rename in one microbatch.
    outcome = orders.load(
        order("u", 5, id=2, n=21, note="x"), order("u", 7, id=3, note="x", **{NEW: 31}), order("d", 8, id=4, note="x", **{NEW: 40})
    )
    assert outcome.batches[0].columns_renamed == {"n": NEW}
    assert outcome.batches[0].columns_added == ()
    assert orders.rows(spark) == [
        {"id": 1, NEW: 10, "note": "x"},
        {"id": 2, NEW: 21, "note": "x"},
        {"id": 3, NEW: 31, "note": "x"},
    ]

    # Late ones by the old name: a row that is newer stays, one that was not there comes.
    outcome = orders.load(order("u", 6, id=3, n=30, note="late"), order("c", 4, id=9, n=90, note="late"))
    assert (outcome.error, outcome.events.stale, outcome.batches[0].columns_added) == (None, 1, ())
    assert orders.rows(spark)[2:] == [{"id": 3, NEW: 31, "note": "x"}, {"id": 9, NEW: 90, "note": "late"}]


@pytest.mark.deep
def test_without_the_word_of_a_statement_a_rename_is_a_drop_and_an_add(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(apply, tmp_path)
    orders.altered(None, id="INT", n="INT")
    orders.load(order("c", 1, id=1, n=10), order("c", 2, id=2, n=20))
    orders.altered("ALTER TABLE orders DROP COLUMN n, ADD COLUMN m INT", id="INT", m="INT")
    outcome = orders.load(order("u", 3, id=2, m=7))
    assert (outcome.batches[0].columns_renamed, outcome.batches[0].columns_added) == ({}, ("m",))
    assert orders.rows(spark) == [{"id": 1, "m": None, "n": 10}, {"id": 2, "m": 7, "n": 20}]


@pytest.mark.deep
def test_a_run_that_is_cut_off_while_it_renames_is_taken_up(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    orders = Orders(apply, tmp_path)
    orders.altered(None, id="INT", n="INT")
    orders.load(order("c", 1, id=1, n=10), order("c", 2, id=2, n=20))
    orders.altered(RENAME, id="INT", **{NEW: "INT"})
    write_records(orders.archive / "002.jsonl", [order("u", 3, id=2, **{NEW: 21})])
    for crashed in ("renames known", "names in rows", "rename", "merge"):

        def crash(effect: str, at: str = crashed) -> None:
            if effect == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            orders.run(after_effect=crash)
    orders.run()
    assert orders.rows(spark) == [{"id": 1, NEW: 10}, {"id": 2, NEW: 21}]


@pytest.mark.deep
def test_the_flow_may_declare_it_and_schemas_are_read_by_either_name(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """For PostgreSQL no topic has it. The decimal's scale changes with the name, and its digits may be a number or base64."""
    topic = "server1.testDB.dbo.grown"
    old = [plain("id", "int32"), decimal("price", 10, 2), plain("gone", "string")]
    new = [plain("id", "int32"), decimal("cost", 12, 4), plain("gone", "string")]
    orders = Orders(apply, tmp_path, flow=CdcFlow(topic, renamed_columns={"price": "cost"}))

    def event(op: str, fields: list[dict[str, Any]], number: int, at: int, value: Any) -> Record:
        image = {"id": number, fields[1]["field"]: value, "gone": "g"}
        return typed(sqlserver(op, commit=at, change=at, offset=at, topic=topic, after=image), fields)

    base64_of_125 = base64.b64encode((125).to_bytes(1, "big")).decode()
    orders.load(event("c", old, 1, 1, base64_of_125), event("c", old, 2, 2, 1234), event("u", new, 1, 3, base64_of_125))
    assert [row["cost"] for row in orders.rows(spark)] == [Decimal("0.0125"), Decimal("1234.0000")]
    outcome = orders.load(event("u", old, 3, 4, 1234))
    assert outcome.error is None
    assert [row["cost"] for row in orders.rows(spark)] == [Decimal("0.0125"), Decimal("1234.0000"), Decimal("1234.0000")]
    assert list(orders.rows(spark)[0]) == ["id", "cost", "gone"]


@pytest.mark.deep
def test_a_value_that_events_leave_out_follows_its_column(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """The row remembers by a column's name what its events left out, and the image before has it under the old one."""
    topic = "pg.public.customers"
    unavailable = "__debezium_unavailable_value"
    orders = Orders(apply, tmp_path, flow=CdcFlow(topic))

    def event(op: str, at: int, **images: Any) -> Record:
        return postgresql(op, commit=at, change=at, offset=at, topic=topic, **images)

    # What row 2 left out comes late; row 1's is in its image before.
    orders.load(event("u", 5, after={"id": 2, "note": unavailable, "n": 5}), event("c", 6, after={"id": 1, "note": "first", "n": 1}))
    assert [row["note"] for row in orders.rows(spark)] == ["first", None]
    orders.flow = CdcFlow(topic, renamed_columns={"note": "text"})
    before = {"id": 1, "note": "known before", "n": 1}
    orders.load(event("u", 7, before=before, after={"id": 1, "note": unavailable, "n": 2}))
    outcome = orders.load(
        event("c", 4, after={"id": 2, "note": "known late", "n": 4}), event("u", 8, after={"id": 1, "text": unavailable, "n": 3})
    )
    assert outcome.error is None
    assert orders.rows(spark) == [{"id": 1, "text": "known before", "n": 3}, {"id": 2, "text": "known late", "n": 5}]


@pytest.mark.deep
def test_a_name_beside_the_other_is_a_column_of_its_own(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    flow = CdcFlow(TOPIC, renamed_columns={"n": "m", "id": "no"})
    orders = Orders(apply, tmp_path, flow=flow)
    orders.load(order("c", 1, id=1, n=10, m=1), order("c", 2, id=2, n=20))
    assert orders.rows(spark) == [{"id": 1, "n": 10, "m": 1}, {"id": 2, "n": 20, "m": None}]


@pytest.mark.parametrize("settings", [{"stored_as_scd_type": 2}, {"keys": ("id",), "write_disposition": "append"}])
def test_what_keeps_events_by_their_names_refuses_the_setting(settings: dict[str, Any], apply: Apply, tmp_path: Path) -> None:
    flow = CdcFlow.from_mapping({"topic": TOPIC, "renamed_columns": {"n": "m"}, **settings})
    outcome = Orders(apply, tmp_path, flow=flow).load(order("c", 1, id=1, n=10), may_fail=True)
    assert (outcome.error or {})["type"] == "ConfigurationError"
