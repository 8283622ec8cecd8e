"""The rules by which a row change compares with what is known of its key, each once: SQL that Spark and DuckDB read alike, over the aliases
of joined relations.

``known`` is a row of the target, or a delete marker; ``change`` is a row change of the same key.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc.model.columns import BEGAN, OFFSET, OP, PARTITION, POSITION
from airflow_cdc.model.operation import KEEP


def may_meet(known: str, change: str, reach: Mapping[str, str], *, has_reads: bool) -> str:
    """Return whether a key's known state may stand among the events of a row change, or after them.

    Otherwise it is of an earlier transaction than all of them and was archived before them: nothing below can be true.

    :param reach: SQL of the change's members of :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.REACH`, and ``keeps``: whether
        it has a value that is older than its last event.
    :param has_reads: whether some events are snapshot reads, whose places positions do not show: a state may stand behind a read, and
        contradict what the row change keeps of it.
    """
    first_commit = f"least(coalesce({reach['first']}.commit, {change}.{POSITION}.commit), {change}.{POSITION}.commit)"
    from_offset = f"coalesce(least({reach['first_offset']}, {change}.{OFFSET}), {change}.{OFFSET})"
    was_archived_later = f"coalesce({known}.{PARTITION} = {change}.{PARTITION} AND {known}.{OFFSET} >= {from_offset}, false)"
    behind_a_read = f" OR {reach['depends']} OR {reach['keeps']}" if has_reads else ""
    return f"({known}.{POSITION}.commit >= {first_commit} OR {was_archived_later}{behind_a_read})"


def is_known_newer(known: str, change: str) -> str:
    """Return whether a key's known state is at or after a row change of it: the order across microbatches.

    The position decides. Of a read and a streamed event in one lane, the archive's order does: a read's position may lie above events that
    it does not contain (docs/sources/postgresql.md#snapshot-position). Events of one file of values share its first offset.
    """
    # Within one lane only: offsets of two partitions, or two lives of a topic, do not compare (docs/adr/0021-number-lives-and-epochs.md).
    are_placed = f"coalesce({known}.{PARTITION} = {change}.{PARTITION} AND {known}.{OFFSET} <> {change}.{OFFSET}, false)"
    # A read's position is never below what was streamed or read before it. Its copy's is, if a connector sent it again after a crash.
    is_copy = f"({change}.{OP} = 'r' AND {change}.{POSITION}.commit < {known}.{POSITION}.commit)"
    return (
        f"CASE WHEN 'r' IN ({known}.{OP}, {change}.{OP}) AND {are_placed} THEN {known}.{OFFSET} > {change}.{OFFSET} OR {is_copy}"
        f" ELSE {known}.{POSITION} >= {change}.{POSITION} END"
    )


def makes_stale(known: str, change: str) -> str:
    """Return whether a key's known state makes a row change obsolete: it is newer, and not of rows that came and went in one transaction.

    Those prove nothing about older rows, but for events of that transaction. Not every connector's commits are its transactions.
    """
    proves = (
        f"{known}.{OP} <> '{KEEP}' OR {known}.{POSITION}.commit <= {change}.{POSITION}.commit OR {known}.{BEGAN} <= {change}.{POSITION}"
    )
    return f"({is_known_newer(known, change)}) AND ({proves})"


def is_tie(known: str, change: str, *, are_values: bool) -> str:
    """Return whether a row and a row change have one position, and are not known to be one record.

    Equal positions are no proof of a copy (docs/explanation/exactness.md#position): several connectors give one to all events of a
    transaction. It is a copy if the row holds what the change carries. Nor do positions order a commit's events where the archive's order
    contradicts them (:attr:`airflow_cdc.model.connectors.connector.PositionRule.change_restarts`).

    :param are_values: whether events may be values: all those of a file have its first offset, so that offsets name no record.
    """
    same_record = (
        "false" if are_values else f"coalesce({known}.{PARTITION} = {change}.{PARTITION} AND {known}.{OFFSET} = {change}.{OFFSET}, false)"
    )
    ops = " AND ".join(f"{each}.{OP} NOT IN ('d', '{KEEP}')" for each in (known, change))
    place, other = f"{known}.{POSITION}", f"{change}.{POSITION}"
    contradicts = "false"
    if not are_values:
        in_archive = f"coalesce({known}.{PARTITION} = {change}.{PARTITION} AND {known}.{OFFSET} <> {change}.{OFFSET}, false)"
        is_against = f"({place} > {other}) <> ({known}.{OFFSET} > {change}.{OFFSET}) AND 'r' NOT IN ({known}.{OP}, {change}.{OP})"
        contradicts = f"({place}.commit = {other}.commit AND {in_archive} AND {is_against})"
    return f"(({place} = {other} OR {contradicts}) AND {ops} AND NOT {same_record})"


def is_cut(known: str, change: str, reach: Mapping[str, str], *, has_reads: bool, same_transaction: str = "false") -> str:
    """Return whether a key may have events of one transaction on both sides of a microbatch's border, of which two rows may be meant; or
    events from before a transaction whose outcome depends on them.

    :param reach: as for :func:`may_meet`.
    :param has_reads: as for :func:`may_meet`.
    :param same_transaction: SQL that is true also where positions do not show it.
    """
    first, position, op = reach["first"], f"{known}.{POSITION}", f"{known}.{OP}"
    is_shared = f"({position}.commit BETWEEN {first}.commit AND {change}.{POSITION}.commit OR {same_transaction})"
    two_rows = f"({op} IN ('d', '{KEEP}') AND {reach['writes']}) OR ({op} IN ('c', 'u', '{KEEP}') AND {reach['deletes']})"
    # States between a depending transaction and older events of its key in the same microbatch.
    was_archived_later = f"({known}.{PARTITION} = {change}.{PARTITION} AND {known}.{OFFSET} > {reach['first_offset']})"
    is_behind = "true" if has_reads else f"({position} > {first} OR {was_archived_later})"
    between = f"{reach['depends']} AND {position} < {reach['began']} AND {is_behind}"
    return f"(({is_shared} AND ({two_rows})) OR ({between}))"


def may_precede_move(move: str, change: str, reach: Mapping[str, str], *, has_reads: bool) -> str:
    """Return whether events of a row change may be about the row that a move took away from its key: one of them stands before the move.

    :param move: alias of the move, with the position of its create, and the partition and offset of its row's last event.
    :param reach: as for :func:`may_meet`.
    :param has_reads: whether some events are snapshot reads: these are told by their offset.
    """
    first, moved = f"coalesce({reach['first']}, {change}.{POSITION})", f"{move}.{POSITION}"
    is_before = f"({first}.commit < {moved}.commit OR ({first}.commit = {moved}.commit AND {first}.change < {moved}.change))"
    if not has_reads:
        return is_before
    from_offset = f"coalesce(least({reach['first_offset']}, {change}.{OFFSET}), {change}.{OFFSET})"
    is_behind = f"coalesce({move}.{PARTITION} = {change}.{PARTITION} AND {from_offset} > {move}.{OFFSET}, false)"
    return f"({is_before} OR NOT {is_behind})"
