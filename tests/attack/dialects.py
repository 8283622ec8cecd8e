"""What connectors write into ``source``: where a change stands in the database's log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

FIRST_COMMIT = 1_700_000_000_000
"""Time of the log's beginning, in milliseconds; a place in the log is also a number of milliseconds behind it."""


@dataclass(frozen=True)
class Place:
    """Where a change stands in the log."""

    at: int
    """Of the change itself; the halves of a key's change share it."""
    commit: int
    """Of its transaction's commit."""
    before: int | None = None
    """Of the commit before that, None for the connector's first transaction."""
    transaction: int = 0
    serial: int = 1
    row: int = 0
    """Number of the row in its statement."""
    snapshot: str = "false"
    """The connector's mark of reads."""


def _lsn(number: int) -> str:
    return f"{number >> 32:08x}:{(number >> 12) & 0xFFFFF:08x}:{number & 0xFFF:04x}"


def _sqlserver(place: Place, *, is_read: bool, is_shared: bool) -> Json:
    change = None if is_read else _lsn(place.at << 8)
    serial = None if is_read else place.serial
    return {"schema": "s", "change_lsn": change, "commit_lsn": _lsn(place.commit << 8), "event_serial_no": serial}


def _postgresql(place: Place, *, is_read: bool, is_shared: bool) -> Json:
    # Debezium 1.5 and 1.6 write the last commit twice.
    sequence = (place.before or 1, place.before or 1) if is_shared and not is_read else (place.before, place.at)
    texts = [None if each is None else str(each) for each in sequence]
    incremental = place.snapshot == "incremental"
    return {
        "schema": "s",
        "sequence": json.dumps(texts, separators=(",", ":")),
        "lsn": None if incremental else place.at,
        "txId": None if incremental else place.transaction,
    }


def _oracle(place: Place, *, is_read: bool, is_shared: bool) -> Json:
    # Without rs_id (XStream, OpenLogReplicator, LogMiner of 1.x) only the scn is left, which changes of a transaction share.
    rs_id = None if is_read or is_shared else f" 0x{place.at >> 20:06x}.{(place.at >> 8) & 0xFFF:08x}.{place.at & 0xFF:04x} "
    scn = place.commit if is_shared else place.at
    return {
        "schema": "s",
        "scn": str(scn),
        "commit_scn": None if is_read else str(place.commit),
        "rs_id": rs_id,
        "ssn": None if is_read else 0,
        "txId": None if is_read else f"{place.transaction:08x}",
    }


def _mysql(place: Place, *, is_read: bool, is_shared: bool) -> Json:
    # A file holds few bytes, so its number goes from one digit to two.
    number, pos = divmod((place.commit if is_shared else place.at) * 10 + 8_500, 2_000)
    return {
        "file": f"mysql-bin.{number:06d}",
        "pos": pos + 4,
        # In a compressed transaction, whose events have its position, it begins anew with each statement.
        "row": place.row,
        "gtid": f"3E11FA47-71CA-11E1-9E33-C80AA9429562:{place.transaction}" if place.snapshot in {"false", "incremental"} else None,
        "server_id": 0 if is_read else 223344,
    }


DIALECTS: dict[str, Callable[..., Json]] = {"postgresql": _postgresql, "mysql": _mysql, "oracle": _oracle, "sqlserver": _sqlserver}
CHECKS_AT_END = frozenset({"postgresql", "oracle"})
"""Databases that check a key's uniqueness at the end of a statement or transaction, so that rows may swap keys."""
TRUNCATES = frozenset({"postgresql", "mysql", "oracle"})


def source_block(dialect: str, table: str, place: Place, *, is_read: bool, is_shared: bool) -> Json:
    """Return the ``source`` of an event.

    :param is_shared: whether all changes of a transaction share their position.
    """
    return {
        "version": "3.5.0.Final",
        "connector": dialect,
        "name": "srv",
        "ts_ms": FIRST_COMMIT + place.commit,
        "snapshot": place.snapshot,
        "db": "d",
        "table": table,
        **DIALECTS[dialect](place, is_read=is_read, is_shared=is_shared),
    }
