"""The rows of a flow's table as its source has them: our columns left out, ordered by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.columns import POSITION, is_reserved
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.state.lake import FlowState, flows_in
from airflow_cdc.pipeline.look.flow_summaries import table_of
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from airflow_cdc.pipeline.look.spark_types import is_nested
from airflow_cdc.pipeline.native.duckdb_sql import name as quoted
from airflow_cdc.pipeline.spark.storage import file_system

BY_POSITION = tuple(f"{quoted(POSITION)}['{part}']" for part in ("commit", "change", "serial"))
"""SQL to sort rows by the position of the event that wrote them."""


@dataclass(frozen=True)
class FlowRows:
    """The rows of a flow's table: the source's columns only, ordered by key; instants in UTC, without a zone."""

    flow: str
    columns: Mapping[str, str]
    """Spark SQL types by column."""
    keys: tuple[str, ...]
    rows: list[dict[str, Any]]
    total: int
    """Total number of rows; a limit may have left some out."""


def read_rows_natively(lake: str, flow: str, limit: int | None = None, *, history: bool = False) -> FlowRows:
    """Return a flow's rows, as :func:`airflow_cdc.pipeline.upkeep.inspect_lake.read_rows` does, without Spark.

    :param limit: maximum number of rows to return; None: all.
    :param history: whether to include past versions, with our own columns.
    :raises ConfigurationError: when the lake holds no table of that flow.
    :raises NeedsSparkError: where only Spark reads or sorts the rows.
    """
    table = live_table(lake, flow)
    columns = list(table.types) if history else table.source_columns
    rows = table.rows(columns, order=_order(table, columns, history=history), limit=limit, history=history)
    total = len(rows) if limit is None or len(rows) < limit else table.count(live=not history)
    return FlowRows(flow, {name: table.types[name].upper() for name in columns}, table.keys, rows, total)


def live_table(lake: str, flow: str) -> NativeTable:
    """Return the table of a flow.

    :raises ConfigurationError: when the lake holds no table of that flow.
    """
    fs, root = file_system(lake)
    table = open_table(table_of(lake, FlowState(fs, root, flow).checkpoint()))
    if table is None:
        raise no_table(lake, flow)
    return table


def no_table(lake: str, flow: str) -> ConfigurationError:
    """Return the error for a flow without a table in a lake."""
    return ConfigurationError(
        f"Lake {lake} holds no table of flow {flow}; its flows are {flows_in(*file_system(lake))}.",
        next_step="Check the flow's name and the lake's root with `airflow-cdc tables --lake …`.",
    )


def _order(table: NativeTable, columns: Sequence[str], *, history: bool) -> list[str]:
    # Rows without a key can only be ordered by all their values.
    by = table.keys or tuple(name for name in columns if not is_reserved(name))
    if nested := [name for name in by if is_nested(table.types[name])]:
        raise NeedsSparkError(f"{table.uri} is sorted by nested columns: {', '.join(nested)}")
    return [*map(quoted, by), *(BY_POSITION if history else ())]
