"""Refuse settings that ask for another table than the one that exists: what it keeps, and our columns' names, are frozen."""

from __future__ import annotations

from airflow_cdc.model.errors import TableModeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.target.target_table import TargetTable


def refuse_other_shape(flow: CdcFlow, target: TargetTable) -> None:
    """Refuse a flow whose settings do not fit its table.

    :raises TableModeError: when the table keeps another history, or has other names for the columns of versions.
    """
    # The settings do not decide whether a current table has a key; the events do.
    if flow.mode is not (TableMode.CURRENT if target.mode is TableMode.MULTISET else target.mode):
        raise TableModeError(
            f"Flow {flow.name}: table {target.uri} was made as {target.mode.value}, the flow's settings ask for {flow.mode.value}.",
            next_step="Set stored_as_scd_type, on_delete and write_disposition back, give the flow another table, or rebuild the flow.",
        )
    if flow.scd_columns != target.scd_columns:
        raise TableModeError(
            f"Flow {flow.name}: table {target.uri} was made with scd_columns {target.scd_columns.to_json()}, the flow's settings ask for"
            f" {flow.scd_columns.to_json()}.",
            next_step="Set scd_columns back, give the flow another table, or rebuild the flow under the new names"
            " (docs/how-to/when-something-is-red.md#rebuild-a-flow).",
        )
