"""Positions of archived events, computed by the native engine's rules from their source blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from airflow_cdc.model.connectors.connector import NativeRule
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.position import EPOCH, NOT_STREAMED, Position, spelled_commit
from airflow_cdc.pipeline.look.events_of_key import ArchivedEvent, spelled
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.duckdb_sql import name, struct


@dataclass(frozen=True)
class KeyEvent:
    """One event of the key, and what became of it."""

    event: ArchivedEvent
    position: Position | None
    """None where it is not read without Spark."""
    transaction: str | None
    spelled: str | None
    """The position as the source spells it."""
    outcome: str = ""
    """``merged``, ``superseded``, ``redelivered``, ``stale``, ``tombstone``, ``waiting``, ``appended`` or ``unknown``."""
    reason: str = ""
    is_sure: bool = True

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        plain = {**asdict(self.event), "position": self.position and str(self.position), "spelled": self.spelled}
        transaction = plain["transaction"] or self.transaction
        return {**plain, "transaction": transaction, "outcome": self.outcome, "reason": self.reason, "is_sure": self.is_sure}


def positions_of(events: Sequence[ArchivedEvent], epochs: Epochs) -> list[KeyEvent]:
    """Return the events with their positions; without one where only Spark reads it."""
    places: dict[int, tuple[Position | None, str | None]] = {}
    by_connector: dict[str, list[int]] = {}
    for number, event in enumerate(events):
        by_connector.setdefault(str(event.source.get("connector") or ""), []).append(number)
    for connector, numbers in by_connector.items():
        entry = CONNECTORS.get(connector)
        if entry and entry.native:
            places |= zip(numbers, _computed([events[number] for number in numbers], entry.native, entry.position.fields), strict=True)
    found = []
    for number, event in enumerate(events):
        position, transaction = places.get(number, (None, None))
        position = _in_epoch(position, event, epochs) if position else None
        connector = str(event.source.get("connector") or "")
        found.append(KeyEvent(event, position, transaction, spelled_commit(position, connector) if position else None))
    return found


def _computed(events: Sequence[ArchivedEvent], rule: NativeRule, members: Sequence[str]) -> list[tuple[Position | None, str | None]]:
    rows = [[None if (value := event.source.get(member)) is None else spelled(value) for member in members] for event in events]
    made = ", ".join(f"{name(member)} := ?" for member in members)
    parts = f"({rule.commit}), ({rule.change}), ({rule.serial}), ({rule.transaction})"
    with connect_duckdb() as connection:
        connection.execute(f"CREATE TEMP TABLE given (number BIGINT, source {struct(dict.fromkeys(members, 'VARCHAR'))})")
        for number, row in enumerate(rows):
            connection.execute(f"INSERT INTO given SELECT ?, struct_pack({made})", [number, *row])
        found = connection.execute(f"SELECT {parts} FROM given ORDER BY number").fetchall()
    return [(_position(event, *values[:3]), values[3]) for event, values in zip(events, found, strict=True)]


def _position(event: ArchivedEvent, commit: object, change: object, serial: object) -> Position | None:
    if event.op == "r":
        return None if commit is None else Position(int(str(commit)), NOT_STREAMED, NOT_STREAMED)
    if commit is None or change is None or serial is None:
        return None
    return Position(int(str(commit)), int(str(change)), int(str(serial)))


def _in_epoch(position: Position, event: ArchivedEvent, epochs: Epochs) -> Position:
    begun = [epoch for first, epoch in epochs.begins.get(str(event.partition), ()) if event.offset is not None and event.offset >= first]
    return Position(position.commit + EPOCH * max(begun, default=0), position.change, position.serial)
