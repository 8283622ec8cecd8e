"""Browse a table's rows: the first ones, those that changed last, or those whose column holds a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.columns import MICROBATCH, POSITION
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.look.flow_rows import BY_POSITION
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError
from airflow_cdc.pipeline.native.duckdb_sql import holds_text
from airflow_cdc.pipeline.native.duckdb_sql import name as quoted

_SEARCHED_UP_TO_BYTES = 1024**3
"""Size of a table above which it is neither searched nor sorted: both read it whole."""


@dataclass(frozen=True)
class RowSearch:
    """Which rows of a table to return."""

    column: str = ""
    """Column to search; empty: each of the source's."""
    text: str = ""
    """Part of the value as text, in any case; empty: all rows."""
    newest: bool = False
    """Whether the rows that microbatches changed last come first."""
    limit: int = 50
    offset: int = 0
    """Number of rows to leave out before the first."""


@dataclass(frozen=True)
class RowsPage:
    """A page of rows that the source has."""

    columns: list[str]
    """The source's columns, then the microbatch that wrote the row."""
    keys: tuple[str, ...]
    rows: list[dict[str, Any]]
    has_more: bool


def browse_rows(table: NativeTable, search: RowSearch) -> RowsPage:
    """Return a page of a table's rows; without a search and an order in the order of its files.

    :raises ConfigurationError: for a column that the table does not have.
    :raises NeedsSparkError: where only Spark reads the table, or it is too large to be searched or sorted here.
    """
    columns = table.source_columns
    if search.column and search.column not in columns:
        raise ConfigurationError(f"Table {table.uri} has no column {search.column!r}.", next_step=f"Name one of {', '.join(columns)}.")
    if (search.text or search.newest) and table.size > _SEARCHED_UP_TO_BYTES:
        raise NeedsSparkError(f"{table.uri} has more than {_SEARCHED_UP_TO_BYTES // 1024**2:,} MiB, too much to be searched or sorted here")
    written = [MICROBATCH] if MICROBATCH in table.types else []
    newest = [*map(quoted, written), *(BY_POSITION if POSITION in table.types else ())]
    shown = [*columns, *written]
    rows = table.rows(
        shown,
        order=[f"-{each}" for each in newest] if search.newest else (),
        limit=search.limit + 1,
        offset=search.offset,
        where=holds_text([search.column] if search.column else columns, search.text) if search.text else "",
    )
    return RowsPage(shown, table.keys, rows[: search.limit], len(rows) > search.limit)
