"""Position: where an event stands in its source's log, as one total order per source.

Each part is a number and is compared as a number: ``"9" > "10"`` holds only for text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_cdc.model.connectors.connector import Spelling
from airflow_cdc.model.connectors.registry import CONNECTORS, entries
from airflow_cdc.model.plain_json import BigInt, JsonArray

EPOCH = 10**36
"""Added to the commit for each earlier epoch of the source's log (:mod:`airflow_cdc.model.position.epochs`).

It exceeds any commit that a source writes, and a hundred epochs fit into 38 digits.
"""
NOT_STREAMED = -1
"""Change and serial of a snapshot read, which precedes every streamed event of the same commit."""


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


_AS_NUMBERS = re.compile(r"(\d+)(/-?\d+/-?\d+)?")


def position_patterns() -> tuple[str, ...]:
    """Return regular expressions of all spellings, each for a full match."""
    return tuple(dict.fromkeys((_AS_NUMBERS.pattern, *(spelling.pattern.pattern for spelling in _spellings()))))


def _spellings() -> list[Spelling]:
    return [entry.position.spelling for entry in entries() if entry.position.spelling]


def commit_position(text: str, connector: str) -> int | None:
    """Return the commit part of a position that a person wrote; None where it is not a position of that connector.

    It may have the source's spelling (an LSN, ``file:pos``), or be ``commit`` alone, or ``commit/change/serial``, both with the numbers of
    our tables.
    """
    if numbers := _AS_NUMBERS.fullmatch(text):
        return int(numbers[1])
    entry = CONNECTORS.get(connector)
    spelling = entry.position.spelling if entry else None
    return spelling.read(text) if spelling and spelling.pattern.fullmatch(text) else None


def spelled_commit(position: Position, connector: str | None) -> str:
    """Return the transaction of a position in the source's spelling, with its epoch: what :func:`commit_position` reads.

    It is the commit number where the connector has no other spelling, and the whole position, in numbers, where the connector is not known.
    """
    entry = CONNECTORS.get(connector or "")
    if entry is None:
        return str(position)
    commit, spelling = position.commit % EPOCH, entry.position.spelling
    written = spelling.write(commit) if spelling else ""
    # A number beyond what the source writes, such as one of a test's events, has no spelling.
    text = written if spelling and spelling.pattern.fullmatch(written) and spelling.read(written) == commit else str(commit)
    return f"{text} (epoch {position.epoch + 1} of the log)" if position.epoch else text


def is_position(text: str) -> bool:
    """Return whether the text is a position of any connector."""
    return bool(_AS_NUMBERS.fullmatch(text)) or any(spelling.pattern.fullmatch(text) for spelling in _spellings())
