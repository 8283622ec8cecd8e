"""Keys that have several rows in a flow's table, found by DuckDB: a table that was changed in place has one row a key."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.report.verification import Standing, TableVerification, VerifyReport
from airflow_cdc.model.state.lake import FlowState, flows_in
from airflow_cdc.pipeline.look.native_table import open_table
from airflow_cdc.pipeline.spark.storage import file_system


def verify_keys_natively(lake: str, globs: Iterable[str] = (), sample: int = 20) -> VerifyReport:
    """Check the tables of a lake that have keys, as :func:`airflow_cdc.pipeline.upkeep.verify.verify_keys` does.

    :param sample: maximum number of keys to return per table.
    :raises ConfigurationError: when none of the tables that match the globs has a row for each key.
    :raises NeedsSparkError: where only Spark reads a table.
    """
    fs, root = file_system(lake)
    flows, patterns = flows_in(fs, root), tuple(globs)
    tables = [found for flow in flows if matches_any(flow, patterns) and (found := _verify(lake, FlowState(fs, root, flow), flow, sample))]
    return report_on_keys(lake, tables)


def report_on_keys(lake: str, tables: list[TableVerification]) -> VerifyReport:
    """Return the report.

    :raises ConfigurationError: when there is no table.
    """
    if not tables:
        raise ConfigurationError(
            f"Lake {lake} has no table of these names with one row a key.",
            next_step="Name flows of other tables than change logs and those without a key, or none.",
        )
    return VerifyReport(lake, tables=tuple(tables))


def has_one_row_a_key(mode: TableMode, keys: Iterable[str]) -> bool:
    """Return whether a table of a mode has one row, or one current version, for each key."""
    return bool(tuple(keys)) and mode not in {TableMode.CHANGE_LOG, TableMode.MULTISET}


def _verify(lake: str, state: FlowState, flow: str, sample: int) -> TableVerification | None:
    checkpoint = state.checkpoint()
    table = open_table(uri) if (uri := checkpoint.table_in(lake)) else None
    if table is None or not has_one_row_a_key(table.mode, table.keys):
        return None
    applied = {name: str(position) for name, position in sorted(checkpoint.applied_through.items())}
    count, keys = table.doubled(sample)
    rows = table.count()
    return TableVerification(
        flow,
        Standing(table.uri, table.version, checkpoint.number, applied),
        rows=rows,
        other_rows=rows,
        doubled=count,
        sample=tuple({"side": "doubled", **key} for key in keys),
    )
