"""Flag deletes: the MERGE clauses of a table that keeps deleted rows with their last values.

A flagged row does not hold its key: a change applies as if the target lacked the key. The row keeps the last known values. A delete's own
image holds fillers, so a delete arrives as a change without values (``__cdc_unavailable``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airflow_cdc.model.columns import COMMITTED_AT, DELETED, DELETED_AT, MICROBATCH, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION
from airflow_cdc.model.operation import FILL, KEEP, MEND, VOID
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.spark import sql

IS_LIVE = f"NOT {DELETED}"
"""SQL for a table that flags deletes: whether the row exists in the source."""


@dataclass(frozen=True)
class Vanishing:
    """A truncate or a complete snapshot, which removes all earlier rows that it covers."""

    position: Position
    committed_micros: int | None
    """Commit time in microseconds since 1970; None where unknown: a snapshot does not record when a row was deleted."""
    takes: str = "false"
    """SQL over a row ``t`` of the target: whether the row is removed. Whatever the microbatch writes under its key is a new row."""


def is_taken(vanishing: Sequence[Vanishing]) -> str:
    """Return as SQL over a row ``t`` of the target whether any of ``vanishing`` removes it; never NULL."""
    return f"coalesce({' OR '.join(each.takes for each in vanishing) or 'false'}, false)"


MADE_ROOM = f"s.{OP} NOT IN ('d', '{KEEP}', '{FILL}', '{MEND}', '{VOID}') AND s.{OP_IF_ABSENT} = 'd'"
"""SQL over a change ``s``: whether its row exists only where the target's row has made room for it."""


@dataclass(frozen=True)
class Assigned:
    """SQL assignments of a MERGE by column."""

    inserted: Mapping[str, str]
    """For a key that the target does not hold."""
    updated: Mapping[str, str]
    """For a key that the target holds: columns without a value in the change keep the target's."""
    filled: Mapping[str, str]
    """For a late change."""
    mended: Mapping[str, str]
    """For a row folded again from all of its events: values alone."""


def flagging_clauses(values: Assigned, *, vanishing: Sequence[Vanishing], late: bool, microbatch: int, unread: str = "false") -> list[str]:
    """Return the clauses of a MERGE of ``s`` into ``t``.

    :param vanishing: truncates and snapshots that remove rows.
    :param microbatch: its number.
    :param unread: SQL over ``t`` and ``s``: whether the row counts as absent in deciding what a change means.
    """
    inserted, updated, filled = values.inserted, values.updated, values.filled
    # A removed row does not hold its key either.
    holds_nothing = f"(t.{DELETED} OR {is_taken(vanishing)})"
    lives, is_gone = f"NOT {holds_nothing}", f"{holds_nothing} AND s.{OP} <> '{VOID}'"
    # A late delete does not replace the values of a row that was deleted after it.
    newer = f" AND (NOT t.{DELETED} OR t.{POSITION} <= s.{POSITION})" if late else ""
    matched: dict[str, Mapping[str, str]] = {}
    matched |= {f"{MADE_ROOM} AND NOT t.{DELETED} AND {unread}": {**updated, **_gone(OP_IF_ABSENT)}} if unread != "false" else {}
    matched |= {f"s.{OP} = '{FILL}'": filled, f"s.{OP} = '{MEND}'": values.mended} if late else {}
    matched |= {
        f"s.{OP} = '{VOID}' AND t.{POSITION} < s.{POSITION}": {**updated, **_gone(OP_IF_ABSENT)},
        f"{lives} AND s.{OP} = 'd'": {**updated, **_gone(OP)},
        f"{lives} AND s.{OP} NOT IN ('{KEEP}', '{VOID}')": {**updated, **_alive()},
        f"{is_gone} AND s.{OP_IF_ABSENT} = 'd'{newer}": {**updated, **_gone(OP_IF_ABSENT)},
        f"{is_gone} AND s.{OP_IF_ABSENT} NOT IN ('d', '{KEEP}')": {**inserted, sql.name(OP): f"s.{OP_IF_ABSENT}", **_alive()},
    }
    updates = [f"WHEN MATCHED AND {condition} THEN UPDATE SET {sql.assign(values)}" for condition, values in matched.items()]
    # The first matching clause wins, so the latest removal sets the time.
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
    """Return the commit time in the source as a SQL timestamp."""
    return "CAST(NULL AS TIMESTAMP)" if vanishing.committed_micros is None else f"timestamp_micros({vanishing.committed_micros})"


def vanished_rows(vanishing: Vanishing, position: str, microbatch: int) -> dict[str, str]:
    """Return the assignments for the rows that are removed; their values stay.

    :param position: SQL of the removal's position.
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
