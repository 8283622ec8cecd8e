"""Change events in Debezium 3.5's form, from tables that are changed here: SQL Server's with schemas, PostgreSQL's without.

Every table keeps the rows that its source would hold, so that the merged rows can be compared with them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Headers = tuple[tuple[str, Row], ...]

UNAVAILABLE = "__debezium_unavailable_value"
"""PostgreSQL's placeholder for a large value that an update did not change."""

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class Column:
    """A column: its name and its Connect schema."""

    name: str
    connect: Mapping[str, Any]

    @property
    def schema(self) -> Row:
        """The column's part of a struct's schema."""
        return {**self.connect, "field": self.name}

    def encode(self, value: Any) -> Any:
        """Return the value in the JSON converter's encoding."""
        if isinstance(value, Decimal):
            unscaled = int(value.scaleb(int(self.connect["parameters"]["scale"])))
            return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()
        if isinstance(value, datetime):
            return _milliseconds(value)
        return (value - _EPOCH).days if isinstance(value, date) else value


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
    headers: Headers
    key: Row | None
    value: Row | None


@dataclass
class SourceTable:
    """A table of a source database, and the topic of its changes."""

    source: str
    """Name of the source; the topic starts with it."""
    schema: str
    name: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...] = ("id",)
    rows: dict[Any, Row] = field(default_factory=dict)
    """The rows that the source holds now, by key."""
    events: list[Event] = field(default_factory=list)
    """The topic's events, in order."""
    archived: int = 0
    """Number of events already written to a file."""
    clock: datetime = datetime(2026, 11, 20, 8, tzinfo=timezone.utc)

    connector = ""
    _log = 64
    _transaction_start = 64
    _transaction_end = 64

    @property
    def topic(self) -> str:
        """The Kafka topic of the table's changes."""
        return f"{self.source}.{self.schema}.{self.name}"

    def snapshot(self, rows: Iterable[Row]) -> None:
        """Emit every row as the connector's initial snapshot does."""
        for row in rows:
            self.rows[row[self.keys[0]]] = row
            self._emit("r", None, row, serial=None)

    def insert(self, row: Row) -> None:
        """Add a row."""
        self._begin(1)
        self.rows[row[self.keys[0]]] = row
        self._emit("c", None, row, serial=1)

    def update(self, key: Any, **changes: Any) -> None:
        """Change a row under its key."""
        self._begin(1)
        before, self.rows[key] = self.rows[key], {**self.rows[key], **changes}
        self._emit("u", self._image_before_update(before), self._image_after_update(self.rows[key], changes), serial=2)

    def delete(self, key: Any) -> None:
        """Remove a row."""
        self._begin(1)
        self._emit_delete(self.rows.pop(key))

    def move(self, moves: Mapping[Any, Any]) -> None:
        """Change the keys of rows in one statement.

        The log then holds, in the order of ``moves``, for each row a delete of the old key and a create of the new one.
        """
        self._begin(len(moves))
        taken = [(old, new, self.rows.pop(old)) for old, new in moves.items()]
        for old, new, before in taken:
            after = self.rows[new] = {**before, self.keys[0]: new}
            self._emit_delete(before, self._key_headers("newkey", new))
            self._emit("c", None, after, serial=2, headers=self._key_headers("oldkey", old))
            self._log += 1

    def redeliver(self, event: Event) -> None:
        """Redeliver an event, like a connector that crashed before it had stored its offset: same change, new offset."""
        self.events.append(replace(event, offset=len(self.events), timestamp=event.timestamp + 60_000))

    def take_unarchived(self) -> list[Event]:
        """Return the events since the last call."""
        taken, self.archived = self.events[self.archived :], len(self.events)
        return taken

    def _begin(self, changes: int) -> None:
        self.clock += timedelta(seconds=17)
        self._log = self._transaction_start = self._transaction_end + 3
        self._transaction_end = self._log + changes

    def _emit_delete(self, before: Row, headers: Headers = ()) -> None:
        self._emit("d", self._image_before_delete(before), None, serial=1, headers=headers, key_of=before)
        self._append(headers, before, None)

    def _emit(
        self, op: str, before: Row | None, after: Row | None, *, serial: int | None, headers: Headers = (), key_of: Row | None = None
    ) -> None:
        at = _milliseconds(self.clock)
        source = {
            "version": "3.5.0.Final",
            "connector": self.connector,
            "name": self.source.split(".")[0],
            "ts_ms": at,
            "snapshot": "true" if serial is None else "false",
            "schema": self.schema,
            "table": self.name,
            "ts_us": at * 1000,
            "ts_ns": at * 10**6,
            **self._position(serial),
        }
        seen = {"transaction": None, "op": op, "ts_ms": at + 350, "ts_us": (at + 350) * 1000, "ts_ns": (at + 350) * 10**6}
        value = {"before": self._encode(before), "after": self._encode(after), "source": source, **seen}
        self._append(headers, key_of or after or before, value)

    def _append(self, headers: Headers, key_of: Row | None, value: Row | None) -> None:
        key = {name: key_of[name] for name in self.keys} if key_of else None
        self.events.append(Event(self.topic, len(self.events), _milliseconds(self.clock) + 400, headers, key, value))

    def _encode(self, row: Row | None) -> Row | None:
        return row and {column.name: column.encode(row[column.name]) for column in self.columns}

    def _position(self, serial: int | None) -> Row:
        raise NotImplementedError

    def _key_headers(self, name: str, key: Any) -> Headers:
        return ()

    def _image_before_update(self, row: Row) -> Row | None:
        return row

    def _image_after_update(self, row: Row, changes: Row) -> Row:
        return row

    def _image_before_delete(self, row: Row) -> Row:
        return row


class SqlServerTable(SourceTable):
    """A table of SQL Server, as in its CDC tables: positions are LSNs, a key change is a delete and a create without headers."""

    connector = "sqlserver"

    def _position(self, serial: int | None) -> Row:
        streamed = serial is not None
        return {
            "db": self.source.split(".")[1],
            "sequence": None,
            "change_lsn": f"00000027:{self._log:08x}:0002" if streamed else None,
            "commit_lsn": f"00000027:{self._transaction_end:08x}:0007" if streamed else "00000027:00000001:0000",
            "event_serial_no": serial,
        }


class PostgresTable(SourceTable):
    """A table of PostgreSQL, by logical decoding: positions are LSNs within a transaction, a key change carries headers."""

    connector = "postgresql"
    replica_identity_full = False
    large: tuple[str, ...] = ("note",)
    """Columns whose values PostgreSQL stores out of line: an update that does not change them does not carry them."""

    def truncate(self) -> None:
        """Remove every row at once; the event has no key."""
        self._begin(1)
        self.rows.clear()
        self._emit("t", None, None, serial=1)

    def _position(self, serial: int | None) -> Row:
        first, now = (str(22284336 + step * 152) for step in (self._transaction_start, self._log))
        return {
            "db": "shop",
            "sequence": json.dumps([None if serial is None else first, now], separators=(",", ":")),
            "txId": 700 + self._transaction_start,
            "lsn": int(now),
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        }

    def _key_headers(self, name: str, key: Any) -> Headers:
        return ((f"__debezium.{name}", {self.keys[0]: key}),)

    def _image_before_update(self, row: Row) -> Row | None:
        return row if self.replica_identity_full else None

    def _image_after_update(self, row: Row, changes: Row) -> Row:
        return {name: UNAVAILABLE if name in self.large and name not in changes else value for name, value in row.items()}

    def _image_before_delete(self, row: Row) -> Row:
        # The default replica identity holds only the key.
        return row if self.replica_identity_full else {**dict.fromkeys(row), self.keys[0]: row[self.keys[0]]}


def _milliseconds(at: datetime) -> int:
    return int(at.replace(tzinfo=timezone.utc).timestamp() * 1000)
