"""How each connector reports one change: which images it has, and how its source block places the event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.support.events import Record, cdl_json, db2, mariadb, oracle, postgresql, sqlserver

Row = dict[str, Any]


@dataclass(frozen=True)
class Dialect:
    """How one connector reports what the database did."""

    name: str
    full_before: bool
    """Whether before images hold the whole row; else a delete's holds the key and fillers, an update's nothing."""
    leaves_values_out: bool
    """Whether a large value that the statement did not touch is left out."""
    leaves_out_in_moves: bool = False
    """Whether a key change leaves it out too."""
    deferrable: bool = True
    """Whether two rows may have one key until the commit; else the second one is refused."""
    partitions: int = 3
    moves_in_one: bool = False
    """Whether a key change is one event, which says the old key, and nothing follows a delete."""
    says_again: bool = True
    """Whether the connector reads rows a second time, and what it sends again is known by its position."""


DIALECTS = {
    "postgresql": Dialect("postgresql", full_before=False, leaves_values_out=True),
    "postgresql, large values": Dialect("postgresql", full_before=False, leaves_values_out=True, leaves_out_in_moves=True),
    "postgresql, full identity": Dialect("postgresql", full_before=True, leaves_values_out=False),
    "sqlserver": Dialect("sqlserver", full_before=True, leaves_values_out=False),
    "db2": Dialect("db2", full_before=True, leaves_values_out=False),
    "oracle": Dialect("oracle", full_before=True, leaves_values_out=True),
    "mariadb": Dialect("mariadb", full_before=True, leaves_values_out=False, deferrable=False),
    "huawei cdl": Dialect("huawei cdl", full_before=True, leaves_values_out=True, partitions=1, moves_in_one=True, says_again=False),
}


@dataclass(frozen=True)
class LogPlace:
    """Where an event stands in its database's log."""

    commit: int | None
    """The transaction's; None for a snapshot's read."""
    last_commit: int
    """The one before it."""
    change: int
    serial: int
    """Of the two events of one change."""
    statement: int
    """Place in the transaction."""
    transaction: int


def spell(dialect: Dialect, op: str, before: Row | None, after: Row | None, log: LogPlace, **place: Any) -> Record:
    """Return the event as the dialect's connector writes it; ``place``: topic, partition, key."""
    images, is_read = {"before": before, "after": after}, op == "r"
    if dialect.name == "sqlserver":
        commit = log.last_commit if log.commit is None or is_read else log.commit
        return sqlserver(op, **images, commit=commit, change=log.change, serial=log.serial, **place)
    if dialect.name == "db2":
        return db2(op, **images, commit=log.last_commit if log.commit is None or is_read else log.commit, change=log.change, **place)
    if dialect.name == "oracle":
        transaction = None if is_read else f"{log.transaction:016x}"
        return oracle(op, **images, commit=None if is_read else log.commit, change=log.change, transaction=transaction, **place)
    if dialect.name == "mariadb":
        # The log holds transactions one after the other, as they were committed; a read stands where the log ends.
        position = (log.change if log.commit is None else log.commit) * 1000 + log.statement
        return mariadb(op, **images, position=position, gtid=None if log.commit is None else f"0-1-{log.transaction}", **place)
    if dialect.name == "huawei cdl":
        return cdl_json(op, **images, change=log.change, transaction=log.transaction, lobs=("body",), **place)
    made = postgresql(op, commit=None if log.commit is None else log.last_commit, change=log.change, **images, **place)
    made["value"]["source"] |= {"txId": log.transaction}
    return made
