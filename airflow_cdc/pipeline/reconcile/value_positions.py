"""Values that are older than their row's last event, with their positions (``__cdc_told_at``).

An event may leave values out. The row then keeps its values, and an entry per column records their position, so that a late event
between the two can still fill them in. SQL over the aliases of joined frames.
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_cdc.model.columns import ABSENT, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.spark import sql

UNKNOWN_NAMES = f"transform(filter({VALUE_POSITIONS}, entry -> NOT entry.known), entry -> entry.column)"
"""SQL over a frame: the columns with unknown values; NULL if the last event carries all."""
HAS_UNKNOWN = f"exists({VALUE_POSITIONS}, entry -> NOT entry.known)"
"""SQL over a frame: whether there are any."""


def _entry(alias: str, column: str) -> str:
    # Callers name the variable of their own lambda "entry", and ``column`` may refer to it.
    return f"try_element_at(filter({alias}.{VALUE_POSITIONS}, listed -> listed.column = {column}), 1)"


def value_positions(change: str, holder: str | None, *, known: str = "true", new: Collection[str] = ()) -> str:
    """Return the SQL of a change's own entries, and of entries from the row that holds its key for values that it leaves to that row.

    :param holder: alias of that row; None if there is none.
    :param known: SQL that is true if the row exists.
    :param new: columns that the table has only since this microbatch: that they are absent from an event is not recorded.
    """
    # A column that is absent from the event's schema is no value to wait for: an older event may still carry one.
    is_absent = f"coalesce(array_contains({change}.{ABSENT}, name), false)"
    asked = f"coalesce({change}.{UNAVAILABLE}, array())"
    if new:
        # All columns of a table's first microbatch are new, and a value that its events left out may still come.
        asked = f"filter({asked}, name -> NOT ({is_absent} AND array_contains({sql.texts(new)}, name)))"
    nothing = f"CAST(array() AS {VALUE_POSITIONS_TYPE})"
    if holder:
        own = f"named_struct('column', name, 'position', {holder}.{POSITION}, 'known', {known} OR {is_absent})"
        answer = f"coalesce({_entry(holder, 'name')}, {own})"
    else:
        answer = f"named_struct('column', name, 'position', CAST(NULL AS {POSITION_TYPE}), 'known', {is_absent})"
    return f"nullif(concat(coalesce({change}.{VALUE_POSITIONS}, {nothing}), transform({asked}, name -> {answer})), {nothing})"


def value_position(change: str, column: str) -> str:
    """Return the SQL of the position of a column's value in a change, NULL if the change does not carry it.

    :param column: SQL of the column's name.
    """
    entry = _entry(change, column)
    is_missing = f"coalesce(array_contains({change}.{UNAVAILABLE}, {column}), false) OR {entry}.known IS NOT DISTINCT FROM false"
    return f"CASE WHEN {is_missing} THEN NULL ELSE coalesce({entry}.position, {change}.{POSITION}) END"


def may_fill(change: str, entry: str) -> str:
    """Return the condition that a change carries a newer value than a row's entry."""
    position = value_position(change, f"{entry}.column")
    return f"({position} IS NOT NULL AND ({entry}.position IS NULL OR {entry}.position < {position}))"
