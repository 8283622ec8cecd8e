"""Apply one microbatch in the way of its flow's table."""

from __future__ import annotations

from airflow_cdc.model.report import BatchReport
from airflow_cdc.model.table_mode import TableMode
from airflow_cdc.pipeline.apply.modes.by_key import apply_microbatch
from airflow_cdc.pipeline.apply.modes.rows_without_key import apply_rows
from airflow_cdc.pipeline.apply.modes.snapshot_decision import apply_decision
from airflow_cdc.pipeline.apply.modes.versions import apply_to_change_log, apply_to_versions
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun

_APPLY = {
    TableMode.CURRENT: apply_rows,
    TableMode.FLAGGED: apply_microbatch,
    TableMode.CHANGE_LOG: apply_to_change_log,
    TableMode.VERSIONS: apply_to_versions,
}


def apply_by_mode(run: MicrobatchRun) -> BatchReport:
    """Apply a microbatch and return what it did; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """
    if run.microbatch.decides:
        return apply_decision(run, run.microbatch.decides)
    return _APPLY[run.flow.mode](run)
