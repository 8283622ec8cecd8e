"""Position: where an event stands in its source's log, as one total order per source.

Each part is a number and is compared as a number: ``"9" > "10"`` only as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from airflow_cdc.model.plain_json import BigInt, JsonArray

SERVER_LSN_SLOT_BITS = 16
SERVER_LSN_BLOCK_BITS = 32
BINLOG_FILE_BITS = 64
POSTGRES_LSN_BITS = 32
EPOCH = 10**36
"""Added to the commit for each epoch of the source's log before the event's own (:mod:`airflow_cdc.model.epochs`).

More than any commit that a source writes, and a hundred epochs fit into 38 digits."""
NOT_STREAMED = -1
"""Change and serial of a snapshot read: it stands before every streamed event of the same commit."""


@dataclass(frozen=True, order=True)
class Position(JsonArray):
    """A point in the source's log; compares part by part.

    ``commit`` orders transactions, ``change`` the changes within one, ``serial`` the events of one change.
    """

    commit: BigInt
    change: BigInt = NOT_STREAMED
    serial: BigInt = NOT_STREAMED

    @property
    def epoch(self) -> int:
        """Number of the epoch of the source's log; 0 is the first."""
        return self.commit // EPOCH

    def __str__(self) -> str:
        text = "/".join(str(part) for part in (self.commit % EPOCH, self.change, self.serial) if part != NOT_STREAMED)
        return f"{text} (epoch {self.epoch + 1} of the log)" if self.epoch else text


def sqlserver_lsn(text: str) -> int:
    """Return a SQL Server LSN ``vlf:block:slot`` (hexadecimal, 32 + 32 + 16 bits) as one number.

    Source of the rule: the ten bytes of ``sys.fn_cdc_get_max_lsn`` compare as one unsigned number.
    """
    vlf, block, slot = (int(part, 16) for part in text.split(":"))
    return (vlf << (SERVER_LSN_BLOCK_BITS + SERVER_LSN_SLOT_BITS)) | (block << SERVER_LSN_SLOT_BITS) | slot


def format_sqlserver_lsn(number: int) -> str:
    """Return the number as SQL Server and Debezium print it."""
    slot = number & 0xFFFF
    block = (number >> SERVER_LSN_SLOT_BITS) & 0xFFFFFFFF
    return f"{number >> (SERVER_LSN_BLOCK_BITS + SERVER_LSN_SLOT_BITS):08x}:{block:08x}:{slot:04x}"


def db2_lsn(text: str) -> int:
    """Return Db2's LSN ``xxxxxxxx:xxxxxxxx:xxxxxxxxxxxxxxxx`` (hexadecimal, 16 bytes) as one number.

    Source of the rule: Debezium prints the bytes with colons behind the fourth and the eighth, and compares them one by one.
    """
    high, middle, low = (int(part, 16) for part in text.split(":"))
    return (high << 96) | (middle << 64) | low


def postgres_sequence(text: str) -> tuple[int | None, int | None]:
    """Return PostgreSQL's ``source.sequence``: (last commit LSN, change LSN), either may be absent."""
    commit, change = json.loads(text)
    return (None if commit is None else int(commit)), (None if change is None else int(change))


def binlog_position(text: str) -> int:
    """Return a MySQL or MariaDB position ``binlog.000003:1234`` as one number; no file has 2^64 bytes."""
    file, _, place = text.rpartition(":")
    return (int(file.rpartition(".")[2]) << BINLOG_FILE_BITS) | int(place)


def postgres_lsn(text: str) -> int:
    """Return a PostgreSQL LSN ``0/16B3748`` (two hexadecimal numbers of 32 bits) as one number."""
    high, low = (int(part, 16) for part in text.split("/"))
    return (high << POSTGRES_LSN_BITS) | low


_AS_NUMBERS = re.compile(r"(\d+)(/-?\d+/-?\d+)?")
_SPELLINGS: Mapping[str, tuple[re.Pattern[str], Callable[[str], int]]] = {
    "sqlserver": (re.compile(r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,4}"), sqlserver_lsn),
    "db2": (re.compile(r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,16}"), db2_lsn),
    "postgresql": (re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}"), postgres_lsn),
    **dict.fromkeys(("mysql", "mariadb"), (re.compile(r".*\.\d+:\d+"), binlog_position)),
}

POSITION_PATTERNS = tuple(dict.fromkeys((_AS_NUMBERS.pattern, *(pattern.pattern for pattern, _ in _SPELLINGS.values()))))
"""Regular expressions of all spellings, each to be matched as a whole."""


def commit_position(text: str, connector: str) -> int | None:
    """Return the commit part of a position that a person wrote; None where it is none of that connector.

    It may be spelled as the source spells it (an LSN, ``file:pos``), as ``commit`` alone, or as ``commit/change/serial``, both of which
    are the numbers of our tables. An Oracle SCN is such a number.
    """
    if numbers := _AS_NUMBERS.fullmatch(text):
        return int(numbers[1])
    pattern, read = _SPELLINGS.get(connector, (None, None))
    return read(text) if pattern and read and pattern.fullmatch(text) else None


def is_position(text: str) -> bool:
    """Tell whether any connector spells a position so."""
    return any(commit_position(text, connector) is not None for connector in _SPELLINGS)
