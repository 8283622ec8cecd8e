"""Change events as Debezium 3.5 writes them, from tables that are changed here: SQL Server with schemas, PostgreSQL bare.

Every table keeps the rows that its source would hold, so that what was merged can be compared with them.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_VERSION = "3.5.0.Final"
UNAVAILABLE = "__debezium_unavailable_value"
"""What PostgreSQL's connector writes for a large value that an update did not touch."""


@dataclass(frozen=True)
class Column:
    """A column: its Connect schema and how a value is encoded."""

    name: str
    connect: Mapping[str, Any]

    def encode(self, value: Any) -> Any:
        """Return the value as the converter writes it."""
        if isinstance(value, Decimal):
            unscaled = int(value.scaleb(int(self.connect["parameters"]["scale"])))
            return base64.b64encode(unscaled.to_bytes((unscaled.bit_length() // 8) + 1, "big", signed=True)).decode()
        if isinstance(value, datetime):
            return int(value.replace(tzinfo=timezone.utc).timestamp() * 1000)
        if isinstance(value, date):
            return (value - date(1970, 1, 1)).days
        return value

    @property
    def schema(self) -> dict[str, Any]:
        """The column's part of a struct's schema."""
        return {**self.connect, "field": self.name}


def integer(name: str, *, optional: bool = False) -> Column:
    """Return a 32-bit column."""
    return Column(name, {"type": "int32", "optional": optional})


def text(name: str) -> Column:
    """Return a text column."""
    return Column(name, {"type": "string", "optional": True})


def decimal(name: str, precision: int, scale: int) -> Column:
    """Return a decimal column, in the connector's precise encoding."""
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    kind = "org.apache.kafka.connect.data.Decimal"
    return Column(name, {"type": "bytes", "optional": True, "name": kind, "version": 1, "parameters": parameters})


def day(name: str) -> Column:
    """Return a date column."""
    return Column(name, {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1})


def moment(name: str) -> Column:
    """Return a datetime2(3) column."""
    return Column(name, {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "version": 1})


@dataclass(frozen=True)
class Event:
    """One Kafka record."""

    topic: str
    offset: int
    timestamp: int
    headers: tuple[tuple[str, Row], ...]
    key: Row | None
    value: Row | None


@dataclass
class SourceTable:
    """A table of a source database, with the topic of its changes."""

    source: str
    """Name of the source, first part of the topic."""
    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ("id",)
    rows: dict[tuple[Any, ...], Row] = field(default_factory=dict)
    """The rows that the source holds now, by key."""
    events: list[Event] = field(default_factory=list)
    """What the topic received and no file holds yet."""
    offset: int = 0
    log_position: int = 0
    clock: datetime = datetime(2026, 11, 20, 8, 0, 0)

    connector = ""
    has_schemas = False

    @property
    def topic(self) -> str:
        """The Kafka topic of the table's changes."""
        return f"{self.source}.{self.schema}.{self.name}"

    def snapshot(self, rows: Iterable[Row]) -> None:
        """Tell every row as the connector's first snapshot does."""
        for row in rows:
            self.rows[self._key(row)] = row
            self._emit("r", None, row, self._position(None))

    def insert(self, row: Row) -> None:
        """Add a row."""
        self.rows[self._key(row)] = row
        self._transaction()
        self._emit("c", None, row, self._position(1))

    def update(self, *key: Any, **changes: Any) -> None:
        """Change a row under its key."""
        before = self.rows[key]
        self.rows[key] = {**before, **changes}
        self._transaction()
        self._emit("u", self._before(before), self._after(self.rows[key], changes), self._position(2))

    def delete(self, *key: Any) -> None:
        """Remove a row: a delete, and the tombstone that follows it in the topic."""
        before = self.rows.pop(key)
        self._transaction()
        self._emit("d", self._before(before, deleted=True), None, self._position(1))
        self._tombstone(before)

    def move(self, moves: Mapping[Any, Any]) -> None:
        """Give rows other keys in one statement: for each a delete of the old key and a create of the new one, in the old keys' order."""
        self._transaction()
        moved = [(old, new, self.rows.pop((old,))) for old, new in moves.items()]
        for old, new, before in moved:
            after = {**before, self.keys[0]: new}
            self.rows[(new,)] = after
            headers = (("__debezium.newkey", {self.keys[0]: new}),), (("__debezium.oldkey", {self.keys[0]: old}),)
            self._emit("d", self._before(before, deleted=True), None, self._position(1), headers[0])
            self._tombstone(before, headers[0])
            self._emit("c", None, after, self._position(2), headers[1])
            self.log_position += 1

    def redeliver(self, event: Event) -> None:
        """Bring an event again, as a connector does that crashed before it had noted its position: another offset, the same change."""
        self.offset += 1
        self.events.append(Event(event.topic, self.offset - 1, event.timestamp + 60_000, event.headers, event.key, event.value))

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.keys)

    def _before(self, row: Row, *, deleted: bool = False) -> Row | None:
        return row

    def _after(self, row: Row, changes: Row) -> Row:
        return row

    def _transaction(self) -> None:
        self.clock += timedelta(seconds=17)
        self.log_position += 3

    def _position(self, serial: int | None) -> Row:
        raise NotImplementedError

    def _emit(self, op: str, before: Row | None, after: Row | None, position: Row, headers: tuple[tuple[str, Row], ...] = ()) -> None:
        row = after or before or {}
        now = int(self.clock.replace(tzinfo=timezone.utc).timestamp() * 1000)
        source = {"version": _VERSION, "connector": self.connector, "name": self.source.split(".")[0], "ts_ms": now, **position}
        value = {"before": self._encode(before), "after": self._encode(after), "source": source, "transaction": None, "op": op}
        key = {name: row[name] for name in self.keys} if row else None
        self._append(headers, key, {**value, "ts_ms": now + 350, "ts_us": (now + 350) * 1000, "ts_ns": (now + 350) * 10**6})

    def _tombstone(self, row: Row, headers: tuple[tuple[str, Row], ...] = ()) -> None:
        self._append(headers, {name: row[name] for name in self.keys}, None)

    def _append(self, headers: tuple[tuple[str, Row], ...], key: Row | None, value: Row | None) -> None:
        timestamp = int(self.clock.replace(tzinfo=timezone.utc).timestamp() * 1000) + 400
        self.events.append(Event(self.topic, self.offset, timestamp, headers, key, value))
        self.offset += 1

    def _encode(self, row: Row | None) -> Row | None:
        return row and {column.name: column.encode(row[column.name]) for column in self.columns}


class SqlServerTable(SourceTable):
    """A table of SQL Server, by its CDC tables: positions are LSNs, key changes come without headers."""

    connector = "sqlserver"
    has_schemas = True

    def _position(self, serial: int | None) -> Row:
        change, commit = (f"00000027:{self.log_position:08x}:{slot:04x}" for slot in (2, 7))
        streamed = serial is not None
        at = int(self.clock.replace(tzinfo=timezone.utc).timestamp())
        return {
            "snapshot": "false" if streamed else "true",
            "db": self.source.split(".")[1],
            "sequence": None,
            "ts_us": at * 10**6,
            "ts_ns": at * 10**9,
            "schema": self.schema,
            "table": self.name,
            "change_lsn": change if streamed else None,
            "commit_lsn": commit if streamed else "00000027:00000001:0000",
            "event_serial_no": serial,
        }

    def _emit(self, op: str, before: Row | None, after: Row | None, position: Row, headers: tuple[tuple[str, Row], ...] = ()) -> None:
        super()._emit(op, before, after, position)


class PostgresTable(SourceTable):
    """A table of PostgreSQL, by logical decoding: positions are LSNs within transactions, key changes carry headers."""

    connector = "postgresql"
    replica_identity_full = False
    large = ("note",)

    def truncate(self) -> None:
        """Remove every row at once."""
        self.rows.clear()
        self._transaction()
        self._emit("t", None, None, self._position(1))

    def _before(self, row: Row, *, deleted: bool = False) -> Row | None:
        if self.replica_identity_full:
            return row
        # The default replica identity knows the key only; a delete shows it among nulls.
        return {**dict.fromkeys(row), **{name: row[name] for name in self.keys}} if deleted else None

    def _after(self, row: Row, changes: Row) -> Row:
        return {name: UNAVAILABLE if name in self.large and name not in changes else value for name, value in row.items()}

    def _transaction(self) -> None:
        super()._transaction()
        self._first = self._lsn

    @property
    def _lsn(self) -> int:
        return 22284336 + self.log_position * 152

    def _position(self, serial: int | None) -> Row:
        streamed = serial is not None
        at = int(self.clock.replace(tzinfo=timezone.utc).timestamp())
        return {
            "snapshot": "false" if streamed else "true",
            "db": "shop",
            "sequence": json.dumps([str(self._first), str(self._lsn)] if streamed else [None, str(self._lsn)], separators=(",", ":")),
            "ts_us": at * 10**6,
            "ts_ns": at * 10**9,
            "schema": self.schema,
            "table": self.name,
            "txId": 700 + self.log_position,
            "lsn": self._lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }
