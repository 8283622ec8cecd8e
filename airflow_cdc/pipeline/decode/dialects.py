"""Dialects: what each connector's source block says about an event's position. One entry a connector.

Positions are numbers compared as numbers (design, section 3; :class:`airflow_cdc.model.position.Position`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc.model.errors import UnsupportedConnectorError

NUMBER = "DECIMAL(38,0)"


@dataclass(frozen=True)
class Dialect:
    """How one connector orders its events."""

    source_fields: tuple[str, ...]
    """Members of ``source`` that the position is made of; all are read as text."""
    commit: str
    """SQL over ``source``: the transaction's place, NULL when it is missing."""
    change: str
    """SQL over ``source``: the change's place in the transaction."""
    serial: str
    """SQL over ``source``: the event's place in the change."""
    transaction: str
    """SQL over ``source``: text that tells transactions apart."""


def _lsn(field: str) -> str:
    """SQL of a SQL Server LSN ``vlf:block:slot`` as one number, NULL for any other text."""

    def part(number: int, weight: int) -> str:
        digits = f"conv(split_part(source.{field}, ':', {number}), 16, 10)"
        return f"CAST({digits} AS {NUMBER}) * {weight}BD"

    number = f"{part(1, 2**48)} + {part(2, 2**16)} + {part(3, 1)}"
    return (
        rf"CASE WHEN source.{field} RLIKE '^[0-9A-Fa-f]{{1,8}}:[0-9A-Fa-f]{{1,8}}:[0-9A-Fa-f]{{1,4}}$' THEN CAST({number} AS {NUMBER}) END"
    )


def _sequence(place: int) -> str:
    return f"try_cast(get(from_json(source.sequence, 'ARRAY<STRING>'), {place}) AS {NUMBER})"


SQLSERVER = Dialect(
    source_fields=("commit_lsn", "change_lsn", "event_serial_no"),
    commit=_lsn("commit_lsn"),
    change=_lsn("change_lsn"),
    # A number in the schema, a string in the documentation's examples; 1 where the connector leaves it out.
    serial="coalesce(try_cast(source.event_serial_no AS BIGINT), 1)",
    transaction="source.commit_lsn",
)

POSTGRESQL = Dialect(
    # lsn alone is not monotone: transactions interleave. sequence is [last commit, lsn]; the first event has no last commit.
    source_fields=("sequence", "lsn", "txId"),
    commit=f"coalesce({_sequence(0)}, {_sequence(1)})",
    change=_sequence(1),
    serial="0",
    transaction="source.txId",
)

DIALECTS: Mapping[str, Dialect] = {"sqlserver": SQLSERVER, "postgresql": POSTGRESQL}


def dialect_of(connectors: set[str], flow: str) -> Dialect:
    """Return the dialect of a topic's events.

    :raises UnsupportedConnectorError: for a connector without dialect, or for several in one topic.
    """
    if len(connectors) == 1 and (connector := next(iter(connectors))) in DIALECTS:
        return DIALECTS[connector]
    raise UnsupportedConnectorError(
        f"Flow {flow}: the events come from {sorted(connectors) or 'no connector that they name'}; known are {sorted(DIALECTS)}.",
        next_step="Leave the topic out with --table, or ask for the dialect.",
    )
