"""Browse a table's rows: the first ones, those that changed last, or those whose column holds a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.columns import MICROBATCH, POSITION
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError
from airflow_cdc.pipeline.native.duckdb_sql import name as quoted
from airflow_cdc.pipeline.native.duckdb_sql import text
from airflow_cdc.pipeline.target.table_properties import is_ours

_SEARCHED_UP_TO_BYTES = 1024**3
"""Size of a table above which it is neither searched nor sorted: both read it whole."""
_PARTS_OF_POSITION = ("commit", "change", "serial")


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
    order = []
    if search.newest:
        ours = [name for name in table.types if is_ours(name, table.scd_columns)]
        order += [f"-{quoted(MICROBATCH)}"] if MICROBATCH in ours else []
        order += [f"-{quoted(POSITION)}['{part}']" for part in _PARTS_OF_POSITION] if POSITION in ours else []
    shown = [*columns, *([MICROBATCH] if MICROBATCH in table.types else [])]
    rows = table.rows(shown, order=order, limit=search.limit + 1, offset=search.offset, where=_where(search, columns))
    return RowsPage(shown, table.keys, rows[: search.limit], len(rows) > search.limit)


def _where(search: RowSearch, columns: list[str]) -> str:
    if not search.text:
        return ""
    wanted = f"lower({text(search.text)})"
    found = (f"contains(lower(CAST({quoted(name)} AS VARCHAR)), {wanted})" for name in ([search.column] if search.column else columns))
    return f"({' OR '.join(f'coalesce({each}, false)' for each in found)})"
