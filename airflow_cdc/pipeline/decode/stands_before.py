"""Rows and events before a full snapshot, as SQL: the snapshot has read what remained of them."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc.model.columns import OFFSET, PARTITION, POSITION
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.pipeline.decode.lanes import is_lane
from airflow_cdc.pipeline.decode.position_literal import position_literal


def beside(offsets: Mapping[str, int], comparison: str, alias: str = "") -> str:
    """Return the SQL that is true for an event whose offset is ``<`` or ``>`` its lane's; false in a lane without one.

    :param alias: of the event, with a dot behind it.
    """
    terms = [f"({alias}{is_lane(lane)} AND {alias}{OFFSET} {comparison} {int(offset)})" for lane, offset in offsets.items()]
    return f"coalesce({' OR '.join(terms)}, false)" if terms else "false"


def stands_before(snapshot: Snapshot | None, alias: str = "") -> str:
    """Return the SQL that is true for a row or an event before a snapshot; false if there is no snapshot, never NULL.

    In a lane with reads of the snapshot, the offset decides. Elsewhere the position does, for earlier lives and for lanes that the
    snapshot knows: a file of the snapshot's own life that arrived before the file that begins this life was assigned to the end of the
    previous one.

    :param alias: of the row or event, with a dot behind it.
    """
    if snapshot is None or snapshot.cut is None:
        return "false"
    lane, offset = f"{alias}{PARTITION}", f"{alias}{OFFSET}"
    # In a lane without reads, the first event behind the snapshot may have been searched long after it arrived: rows lie between.
    is_lower = f"{alias}{POSITION} < {position_literal(snapshot.cut)}"
    cases = [
        f"WHEN {lane} <=> {'NULL' if name == UNKNOWN_PARTITION else int(name)} THEN {offset} < {begin}"
        f"{'' if name in snapshot.last_offsets else f' AND {is_lower}'}"
        for name, begin in sorted(snapshot.begins.items())
    ]
    if not cases:
        # Files of values, whose records have no offsets of their own.
        return f"coalesce({is_lower}, false)"
    placed = f"CASE {' '.join(cases)} ELSE {is_earlier_life(lane, snapshot.life)} AND {is_lower} END"
    return f"coalesce(if({offset} IS NULL, {is_lower}, {placed}), false)"


def is_earlier_life(lane: str, life: int) -> str:
    """Return the SQL that is true for a lane of a life before ``life``; ``lane``: SQL of its number."""
    return f"coalesce({lane} < {life * LANES}, false)"


def partition_number(partition: str) -> str:
    """Return a lane as SQL."""
    return "NULL" if partition == UNKNOWN_PARTITION else str(int(partition))
