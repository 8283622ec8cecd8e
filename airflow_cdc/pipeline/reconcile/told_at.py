"""Told at: which values of a row are older than its last event, and who told them (``__cdc_told_at``).

An event may leave values out. The row then keeps what it had, and an entry by column says from which position; so a late event
that stands between the two can still fill it in. SQL over the aliases of the frames that are joined.
"""

from __future__ import annotations

from airflow_cdc.model.columns import ABSENT, POSITION, TOLD_AT, UNAVAILABLE
from airflow_cdc.pipeline.decode.decode_events import TOLD_AT_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE

UNKNOWN_NAMES = f"transform(filter({TOLD_AT}, told -> NOT told.known), told -> told.column)"
"""Of a frame: the columns of which nothing told the value; NULL where the last event tells all."""
HAS_UNKNOWN = f"exists({TOLD_AT}, told -> NOT told.known)"
"""Of a frame: whether there are any."""


def _entry(alias: str, column: str) -> str:
    return f"try_element_at(filter({alias}.{TOLD_AT}, told -> told.column = {column}), 1)"


def told_at(change: str, holder: str | None, *, known: str = "true") -> str:
    """Return what a change says itself, and for what it leaves to the row that holds its key, that row's word.

    :param holder: alias of that row; None where there is none.
    :param known: SQL that is true where the row is there.
    """
    asked = f"array_except(coalesce({change}.{UNAVAILABLE}, array()), coalesce({change}.{ABSENT}, array()))"
    nothing = f"CAST(array() AS {TOLD_AT_TYPE})"
    if holder:
        own = f"named_struct('column', name, 'position', {holder}.{POSITION}, 'known', {known})"
        answer = f"coalesce({_entry(holder, 'name')}, {own})"
    else:
        answer = f"named_struct('column', name, 'position', CAST(NULL AS {POSITION_TYPE}), 'known', false)"
    return f"nullif(concat(coalesce({change}.{TOLD_AT}, {nothing}), transform({asked}, name -> {answer})), {nothing})"


def told_position(change: str, column: str) -> str:
    """Return the position at which a change tells a column, NULL where it does not tell it.

    :param column: SQL of the column's name.
    """
    entry = _entry(change, column)
    unsaid = f"coalesce(array_contains({change}.{UNAVAILABLE}, {column}), false) OR {entry}.known IS NOT DISTINCT FROM false"
    return f"CASE WHEN {unsaid} THEN NULL ELSE coalesce({entry}.position, {change}.{POSITION}) END"


def may_fill(change: str, entry: str) -> str:
    """Return the condition that a change tells a value better than a row's entry says."""
    position = told_position(change, f"{entry}.column")
    return f"({position} IS NOT NULL AND ({entry}.position IS NULL OR {entry}.position < {position}))"
