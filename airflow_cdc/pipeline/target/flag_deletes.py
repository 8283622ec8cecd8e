"""Flag deletes: the MERGE clauses of a table that keeps deleted rows with their last values.

A flagged row holds its key for nobody: what a change means for it is the answer for a key that the target does not hold. Its values are
those that were told last; a delete's own image is fillers, so a delete comes as a change that tells no value (``__cdc_unavailable``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc.model.columns import COMMITTED_AT, DELETED, DELETED_AT, MICROBATCH, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION
from airflow_cdc.model.operation import FILL, KEEP, VOID
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.spark import sql

IS_LIVE = f"NOT {DELETED}"
"""Of a table that flags deletes: whether the source has the row."""


@dataclass(frozen=True)
class Vanishing:
    """What took all rows that were written before it: a truncate, or a complete snapshot that did not find them."""

    position: Position
    committed_micros: int | None
    """When, in microseconds since 1970; None where nothing tells: a snapshot does not know when a row went."""
    takes: str = "false"
    """SQL over a row ``t`` of the target: whether it takes the row. What the microbatch then writes there is a row of its own."""


def is_taken(vanishing: Sequence[Vanishing]) -> str:
    """Return as SQL over a row ``t`` of the target whether something takes it; never NULL."""
    return f"coalesce({' OR '.join(each.takes for each in vanishing) or 'false'}, false)"


MADE_ROOM = f"s.{OP} NOT IN ('d', '{KEEP}', '{FILL}', '{VOID}') AND s.{OP_IF_ABSENT} = 'd'"
"""SQL over a change ``s``: whether its row lives only where the target's made room for it."""


@dataclass(frozen=True)
class Assigned:
    """What a MERGE assigns to the target's columns, as SQL by column."""

    inserted: Mapping[str, str]
    """For a key that the target does not hold."""
    updated: Mapping[str, str]
    """For one that it does: values that the change does not tell stay."""
    filled: Mapping[str, str]
    """Of a change that is late."""


def flagging_clauses(values: Assigned, *, vanishing: Sequence[Vanishing], late: bool, microbatch: int, unread: str = "false") -> list[str]:
    """Return the clauses of a MERGE of ``s`` into ``t``.

    :param vanishing: what takes rows.
    :param microbatch: its number.
    :param unread: SQL over both: whether the row is as good as none where it decides what a change means.
    """
    inserted, updated, filled = values.inserted, values.updated, values.filled
    # A row that was taken holds its key for nobody either.
    holds_nothing = f"(t.{DELETED} OR {is_taken(vanishing)})"
    lives, is_gone = f"NOT {holds_nothing}", f"{holds_nothing} AND s.{OP} <> '{VOID}'"
    matched: dict[str, Mapping[str, str]] = {}
    matched |= {f"{MADE_ROOM} AND NOT t.{DELETED} AND {unread}": {**updated, **_gone(OP_IF_ABSENT)}} if unread != "false" else {}
    matched |= {f"s.{OP} = '{FILL}'": filled} if late else {}
    matched |= {
        f"s.{OP} = '{VOID}' AND t.{POSITION} < s.{POSITION}": {**updated, **_gone(OP_IF_ABSENT)},
        f"{lives} AND s.{OP} = 'd'": {**updated, **_gone(OP)},
        f"{lives} AND s.{OP} NOT IN ('{KEEP}', '{VOID}')": {**updated, **_alive()},
        f"{is_gone} AND s.{OP_IF_ABSENT} = 'd'": {**updated, **_gone(OP_IF_ABSENT)},
        f"{is_gone} AND s.{OP_IF_ABSENT} <> '{KEEP}'": {**inserted, sql.name(OP): f"s.{OP_IF_ABSENT}", **_alive()},
    }
    updates = [f"WHEN MATCHED AND {condition} THEN UPDATE SET {sql.assign(values)}" for condition, values in matched.items()]
    # The first clause that holds decides: what took a row last says when it went.
    vanished = {
        f"NOT t.{DELETED} AND {each.takes}": sql.assign(vanished_rows(each, position_literal(each.position), microbatch))
        for each in reversed(vanishing)
    }
    kept = [f"WHEN MATCHED AND {taken} AND s.{OP_IF_ABSENT} = '{KEEP}' THEN UPDATE SET {values}" for taken, values in vanished.items()]
    gone = [f"WHEN NOT MATCHED BY SOURCE AND {taken} THEN UPDATE SET {values}" for taken, values in vanished.items()]
    return [*kept, *updates, _insert(inserted), *gone]


def _insert(inserted: Mapping[str, str]) -> str:
    is_gone = f"s.{OP_IF_ABSENT} IN ('d', 't')"
    values = {
        **inserted,
        sql.name(OP): f"s.{OP_IF_ABSENT}",
        DELETED: is_gone,
        DELETED_AT: f"if({is_gone}, s.{COMMITTED_AT}, NULL)",
    }
    return f"WHEN NOT MATCHED AND s.{OP_IF_ABSENT} <> '{KEEP}' THEN INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"


def _gone(operation: str) -> dict[str, str]:
    return {sql.name(OP): f"s.{operation}", DELETED: "true", DELETED_AT: f"s.{COMMITTED_AT}"}


def _alive() -> dict[str, str]:
    return {DELETED: "false", DELETED_AT: "NULL"}


def committed_at(vanishing: Vanishing) -> str:
    """Return as SQL when the source committed it."""
    return "CAST(NULL AS TIMESTAMP)" if vanishing.committed_micros is None else f"timestamp_micros({vanishing.committed_micros})"


def vanished_rows(vanishing: Vanishing, position: str, microbatch: int) -> dict[str, str]:
    """Return the assignments for the rows that vanish; their values stay.

    :param position: SQL of its position.
    """
    time = committed_at(vanishing)
    return {
        POSITION: position,
        OP: "'t'",
        COMMITTED_AT: time,
        PARTITION: "NULL",
        OFFSET: "NULL",
        MICROBATCH: str(microbatch),
        DELETED: "true",
        DELETED_AT: time,
    }
