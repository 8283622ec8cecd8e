"""Whole rows: where a table has no key, an event tells by its whole image before which row it takes, or it cannot be merged."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.model.columns import KIND, OFFSET, RAW, SNAPSHOT, UNAVAILABLE
from airflow_cdc.pipeline.spark import sql

BEFORE_ROW = "__cdc_before_row"
"""struct of the source's columns: the row before the event, in its columns' types; NULL where the event has no image before."""
HAS_BEFORE = "__cdc_has_before"
"""True, or NULL where the event has no image before."""
LACKING = "__cdc_lacking"
"""array<string>: columns that the image before does not tell."""

_PATHS = ("value.payload.", "value.", "payload.", "")


def before_name(name: str) -> str:
    """Return the name of the text that a column has in the image before."""
    return f"__cdc_before_{name}"


def lacking(unavailable: str) -> str:
    """Return the SQL of :data:`LACKING`: columns whose value is left out, and those that the image after has and this one has not.

    :param unavailable: SQL of the names of the columns whose value is left out in the image before.
    """
    before, after = (_members(image) for image in ("before", "after"))
    # NULL where one of the images is.
    missing = f"if({KIND} = 'u', coalesce(array_except({after}, {before}), array()), array())"
    return f"array_union(coalesce({unavailable}, array()), {missing})"


def _members(image: str) -> str:
    paths = ", ".join(f"get_json_object({RAW}, {sql.text(f'$.{path}{image}')})" for path in _PATHS)
    return f"json_object_keys(coalesce({paths}))"


def reasons_not_told() -> Iterable[tuple[str, str]]:
    """Return why an event does not tell the row that it is about: SQL of the condition and of the words."""
    takes = f"{KIND} IN ('u', 'd')"
    return (
        (f"{takes} AND {HAS_BEFORE} IS NULL", "'the event has no image before'"),
        (f"{takes} AND size({LACKING}) > 0", f"concat('the image before lacks ', array_join({LACKING}, ', '))"),
        (f"{UNAVAILABLE} IS NOT NULL", f"concat('the event leaves out ', array_join({UNAVAILABLE}, ', '))"),
        (f"{SNAPSHOT} = 'incremental'", "'an incremental snapshot may read a row that the table holds'"),
        (f"{KIND} = 'r' AND {OFFSET} IS NULL", "'the read has no offset that tells it from another of the same row'"),
    )
