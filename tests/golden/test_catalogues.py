"""Fields made of catalogues, against the fields that real connectors wrote for the same tables.

``catalogues/<capture>.json`` holds the rows that the server's catalogue gives of the tables in ``<capture>.sql``
(tests/system/test_source_catalogues.py asks real servers again); those of SQL Server and Oracle are written by hand.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_cdc.model.pull.settings import settings_of
from airflow_cdc.model.pull.source_column import source_column
from airflow_cdc.model.pull.tables import Table, tables_of
from airflow_cdc.pipeline.decode.types.connect_types import is_field
from tests.golden.connect_schemas import CATALOGUES, comparable, row_fields

TOPICS = {
    "pg_load": "shop.inventory.customers shop.inventory.notes shop.inventory.order_items shop.inventory.orders shop.inventory.stock",
    "pg_types_precise": "pgty.public.Odd_Table pgty.public.arr pgty.public.dflt pgty.public.evolve pgty.public.evolve_untouched"
    " pgty.public.gen pgty.public.nametype pgty.public.nn pgty.public.nopk pgty.public.parted pgty.public.special pgty.public.toasty"
    " pgty.public.toasty_full pgty.public.toasty_num pgty.public.trunc1 pgty.public.trunc2 pgty.public.typ",
    "maria_load": "msh.shop.customers msh.shop.items msh.shop.stock",
    "maria_types_precise": "mdb.shop.acct mdb.shop.dflt mdb.shop.evolve mdb.shop.evolve_untouched mdb.shop.gen mdb.shop.nn mdb.shop.nopk"
    " mdb.shop.odd_table mdb.shop.pair mdb.shop.trunc1 mdb.shop.typ",
    "sqlserver_synth": "mssql.testDB.dbo.customers mssql.testDB.dbo.items mssql.testDB.dbo.ring",
    "oracle_synth": "orcl.APP.CUSTOMERS orcl.APP.ITEMS orcl.APP.RING",
}

OTHERWISE = {
    # PostgreSQL 15 does not send generated columns to its replicas.
    ("pgty.public.gen", "b"): ({"type": "int32"}, None),
    # Added while the connector ran, as BOOLEAN: the catalogue says tinyint(1), as of every other.
    ("mdb.shop.evolve", "gone"): ({"type": "int16"}, {"type": "boolean"}),
    # The capture's simulated log took the 7 bytes of a DATE for digits of its second; a real connector does not (Debezium's reference).
    ("orcl.APP.CUSTOMERS", "BORN"): (
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
    ),
}
"""Columns for which the catalogue differs from the last event: both."""


def rows_of(capture: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CATALOGUES / f"{capture}.json").read_text(encoding="utf-8"))
    return document


@pytest.mark.parametrize(("capture", "topic"), [(capture, topic) for capture, topics in TOPICS.items() for topic in topics.split()])
def test_a_catalogue_gives_the_fields_that_the_connector_wrote(capture: str, topic: str) -> None:
    catalogue = rows_of(capture)
    settings = settings_of(catalogue["connector"], catalogue["settings"])
    there = [Table("testDB", *name.split(".", 1)) for name in catalogue["tables"]]
    table = tables_of(catalogue["connector"], [topic], there, {})[topic]
    rows = catalogue["tables"][str(table)]["columns"]

    declared = {column.name: column for column in (source_column(catalogue["connector"], row, settings) for row in rows)}

    written = row_fields(capture, topic)
    differing = {
        (topic, name): (comparable(column.field), written.get(name))
        for name, column in declared.items()
        if comparable(column.field) != written.get(name)
    }
    assert differing == {place: both for place, both in OTHERWISE.items() if place[0] == topic}
    assert set(written) <= set(declared)


def test_every_captured_table_is_compared() -> None:
    compared = sum(len(topics.split()) for topics in TOPICS.values())
    assert compared == sum(len(rows_of(capture)["tables"]) for capture in TOPICS)


@pytest.mark.parametrize("capture", TOPICS)
def test_a_field_that_is_known_can_be_read(capture: str) -> None:
    catalogue = rows_of(capture)
    settings = settings_of(catalogue["connector"], catalogue["settings"])
    columns = [
        source_column(catalogue["connector"], row, settings).connect_field()
        for each in catalogue["tables"].values()
        for row in each["columns"]
    ]
    assert [column["field"] for column in columns if not is_field(column)] == []
