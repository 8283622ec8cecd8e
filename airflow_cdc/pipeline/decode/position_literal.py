"""A position as SQL."""

from __future__ import annotations

from airflow_cdc.model.columns import POSITION
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE


def position_literal(position: Position) -> str:
    """Return a position as SQL."""
    parts = f"'commit', {position.commit}BD, 'change', {position.change}BD, 'serial', {position.serial}L"
    return f"CAST(named_struct({parts}) AS {POSITION_TYPE})"


def before(position: Position | None, alias: str = "") -> str:
    """Return the SQL that is true for a row before a position; false if there is no position.

    :param alias: of the row, with a dot behind it.
    """
    return f"{alias}{POSITION} < {position_literal(position)}" if position else "false"
