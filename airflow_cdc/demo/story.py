"""The changes in the demo's two source databases: a small shop's first load and morning, then an afternoon of difficult cases."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from airflow_cdc.demo.events import (
    PostgresTable,
    Row,
    SourceTable,
    SqlServerTable,
    day,
    decimal,
    integer,
    moment,
    text,
)
from airflow_cdc.demo.sinks import write_connect_sink, write_whole_records

_NAMES = ("Ada Byron", "Blaise Pascal", "Carl Gauss", "Dorothy Vaughan", "Emmy Noether", "Fatima Fihri")
_CITIES = ("London", "Paris", "Göttingen", "Hampton", "Erlangen", "Fès")
_ORDERS = 400


def _customers() -> SourceTable:
    columns = (integer("id"), text("name"), text("city"), decimal("credit", 10, 2), day("since"))
    return SqlServerTable("mssql.shop", "dbo", "customers", columns)


def _orders() -> SourceTable:
    columns = (integer("id"), integer("customer_id", optional=True), text("status"), decimal("total", 12, 2), moment("placed_at"))
    return SqlServerTable("mssql.shop", "dbo", "orders", columns)


def _products() -> PostgresTable:
    return PostgresTable("pg", "public", "products", (text("sku"), text("name"), integer("cents", optional=True), text("note")), ("sku",))


def _carts() -> PostgresTable:
    return PostgresTable("pg", "public", "carts", (integer("id"), text("customer"), integer("items", optional=True)))


def _queue() -> PostgresTable:
    queue = PostgresTable("pg", "public", "queue", (integer("place"), text("ticket")), ("place",))
    queue.replica_identity_full = True
    return queue


@dataclass
class Shop:
    """Five tables of two databases."""

    customers: SourceTable = field(default_factory=_customers)
    orders: SourceTable = field(default_factory=_orders)
    products: PostgresTable = field(default_factory=_products)
    carts: PostgresTable = field(default_factory=_carts)
    queue: PostgresTable = field(default_factory=_queue)

    @property
    def tables(self) -> tuple[SourceTable, ...]:
        """All tables."""
        return (self.customers, self.orders, self.products, self.carts, self.queue)

    def rows(self) -> dict[str, list[Row]]:
        """Return the rows that the sources hold now, by topic."""
        return {table.topic: list(table.rows.values()) for table in self.tables}

    def first_load(self) -> None:
        """The initial snapshots, and a morning's orders."""
        self.customers.snapshot(
            {"id": id_, "name": name, "city": city, "credit": Decimal(id_ * 250) + Decimal("0.50"), "since": date(2020 + id_, id_, 11)}
            for id_, (name, city) in enumerate(zip(_NAMES, _CITIES, strict=True), start=1)
        )
        self.orders.snapshot(self._new_orders(1, _ORDERS))
        self._trade(_ORDERS + 1, 60)
        self.products.snapshot(
            {"sku": sku, "name": name, "cents": cents, "note": f"{name}: a description so long that PostgreSQL stores it apart."}
            for sku, name, cents in (("A-1", "Abacus", 1900), ("B-2", "Slide rule", 2450), ("C-3", "Compass", 1275))
        )
        self.carts.snapshot({"id": id_, "customer": name, "items": 2 * id_} for id_, name in enumerate(_NAMES[:4], start=1))
        self.queue.snapshot({"place": place, "ticket": f"ticket {'ABCDE'[place - 1]}"} for place in range(1, 6))
        self.products.update("A-1", cents=1850)

    def afternoon(self) -> None:
        """Changes that a naive merge gets wrong."""
        self.customers.update(1, city="Oxford")
        self.customers.update(1, credit=Decimal("900.00"))
        self.customers.update(1, credit=Decimal("1000.00"), city="Ockham")
        self.customers.move({3: 303})
        self.customers.delete(5)
        self.customers.insert(
            {"id": 7, "name": "Grace Hopper", "city": "Arlington", "credit": Decimal("10.00"), "since": date(2026, 11, 20)}
        )
        self.customers.redeliver(self.customers.events[-1])
        self._trade(_ORDERS + 61, 80)
        self.products.redeliver(self.products.events[-1])
        self.products.update("B-2", cents=2600)
        self.products.insert({"sku": "D-4", "name": "Sextant", "cents": 9900, "note": "New."})
        self.carts.truncate()
        self.carts.insert({"id": 9, "customer": "Grace Hopper", "items": 1})
        self.queue.move({place: place + 1 for place in range(1, 6)})

    def _trade(self, first: int, count: int) -> None:
        chance = random.Random(first)
        for order in self._new_orders(first, count):
            self.orders.insert(order)
            for known in chance.sample(sorted(self.orders.rows), 3):
                status = {"open": "paid", "paid": "shipped"}.get(self.orders.rows[known]["status"])
                if status:
                    self.orders.update(known, status=status)
                else:
                    self.orders.delete(known)

    def _new_orders(self, first: int, count: int) -> Iterator[Row]:
        chance = random.Random(first)
        for id_ in range(first, first + count):
            # A datetime2 has no zone.
            placed_at = datetime(2026, 11, 20) + timedelta(minutes=id_, milliseconds=125)  # noqa: DTZ001
            total = Decimal(chance.randrange(500, 90_000)).scaleb(-2)
            yield {"id": id_, "customer_id": chance.randrange(1, 7), "status": "open", "total": total, "placed_at": placed_at}


def archive(shop: Shop, root: Path, folder: str, *, half_written: int | None = None) -> list[Path]:
    """Write the events since the last call to the archive; return the files.

    :param folder: folder of the files of whole records.
    :param half_written: index of the record of ``products`` that is first written by half.
    """
    return [
        write_connect_sink(root, shop.customers),
        write_connect_sink(root, shop.orders),
        write_whole_records(root, folder, shop.products, half_written=half_written),
        write_whole_records(root, folder, shop.carts),
        write_whole_records(root, folder, shop.queue),
    ]


AFTERNOON = {
    "customers": "1 is updated three times, 3 becomes 303, 5 is deleted; 7's event comes twice",
    "orders": "80 new orders; others are paid, shipped, cancelled",
    "products": "an update that leaves out the long note; this morning's event again; half a line",
    "carts": "TRUNCATE, then one new cart",
    "queue": "UPDATE queue SET place = place + 1: every row takes the next one's key",
}
"""Changes of each table in the second round."""

REASONS: dict[tuple[str, object], str] = {
    ("customers", 1): "the last of three updates",
    ("customers", 3): "its key became 303",
    ("customers", 303): "its key was 3",
    ("customers", 5): "deleted",
    ("customers", 7): "inserted; its event came twice",
    ("products", "A-1"): "this morning's event again: stale",
    ("products", "B-2"): "new price; the note, which the event leaves out, stays",
    ("products", "D-4"): "inserted, by the whole line",
    **{("carts", id_): "truncated" for id_ in range(1, 5)},
    ("carts", 9): "inserted after the truncate",
    ("queue", 1): "nobody moved here",
    **{("queue", place): f"moved up from {place - 1}" for place in range(2, 7)},
}
"""The reason for each row's change in the second round, by table and key."""


def rows_kept_by_last_event(table: SourceTable) -> int:
    """Return how many rows a merge by each key's last event, which is common, would keep."""
    last: dict[object, bool] = {}
    for event in table.events:
        if event.key and event.value:
            last[tuple(event.key.values())] = event.value["op"] != "d"
    return sum(last.values())
