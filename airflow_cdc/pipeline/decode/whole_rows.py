"""Whole rows: in a table without key, an event must identify its row by the whole before image to be merged."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.model.columns import KIND, OFFSET, RAW, SNAPSHOT, UNAVAILABLE
from airflow_cdc.pipeline.spark import sql

BEFORE_ROW = "__cdc_before_row"
"""struct of the source's columns: the typed row before the event; NULL where the event has no before image."""
HAS_BEFORE = "__cdc_has_before"
"""True, or NULL where the event has no before image."""
LACKING = "__cdc_lacking"
"""array<string>: columns that the before image does not carry."""

_PATHS = ("value.payload.", "value.", "payload.", "")


def before_name(name: str) -> str:
    """Return the name of the staged column with a column's text from the before image."""
    return f"__cdc_before_{name}"


def lacking(unavailable: str) -> str:
    """Return the SQL of :data:`LACKING`: columns that are unavailable in the before image, or present only in the after image.

    :param unavailable: SQL of the names of the columns that are unavailable in the before image.
    """
    before, after = (_members(image) for image in ("before", "after"))
    # NULL if either image is NULL.
    missing = f"if({KIND} = 'u', coalesce(array_except({after}, {before}), array()), array())"
    return f"array_union(coalesce({unavailable}, array()), {missing})"


def _members(image: str) -> str:
    paths = ", ".join(f"get_json_object({RAW}, {sql.text(f'$.{path}{image}')})" for path in _PATHS)
    return f"json_object_keys(coalesce({paths}))"


def reasons_of_incomplete_rows() -> Iterable[tuple[str, str]]:
    """Return the reasons why an event does not identify its row: SQL of the condition and of the detail."""
    takes = f"{KIND} IN ('u', 'd')"
    return (
        (f"{takes} AND {HAS_BEFORE} IS NULL", "'the event has no image before'"),
        (f"{takes} AND size({LACKING}) > 0", f"concat('the image before lacks ', array_join({LACKING}, ', '))"),
        (f"{UNAVAILABLE} IS NOT NULL", f"concat('the event leaves out ', array_join({UNAVAILABLE}, ', '))"),
        (f"{SNAPSHOT} = 'incremental'", "'an incremental snapshot may read a row that the table holds'"),
        (f"{KIND} = 'r' AND {OFFSET} IS NULL", "'the read has no offset to distinguish it from another of the same row'"),
    )
