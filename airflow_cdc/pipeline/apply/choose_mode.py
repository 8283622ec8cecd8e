"""Choose the mode of a microbatch: how its table applies events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.apply.modes import by_key, change_log, rows_without_key, snapshot_decision, versions
from airflow_cdc.pipeline.apply.native.settle_natively import natively
from airflow_cdc.pipeline.apply.settled import Settled
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.settle.plan_decoding import is_without_key
from airflow_cdc.pipeline.target.target_table import TargetTable

Settle = Callable[[MicrobatchRun, TargetTable | None], Settled]
"""A mode's first step: turns a microbatch and its target into the remaining steps."""

_MODES: Mapping[TableMode, Settle] = {
    TableMode.CURRENT: natively(by_key.settle),
    TableMode.FLAGGED: by_key.settle,
    TableMode.MULTISET: rows_without_key.settle,
    TableMode.VERSIONS: versions.settle,
    TableMode.CHANGE_LOG: change_log.settle,
}


def choose_mode(run: MicrobatchRun, target: TargetTable | None) -> Settle:
    """Return the mode of a microbatch. Its events, not its settings, decide whether a current table has a key."""
    if run.microbatch.decides:
        return snapshot_decision.settle
    mode = run.flow.mode
    if mode is TableMode.CURRENT and is_without_key(run.flow, run.microbatch, target):
        mode = TableMode.MULTISET
    return _MODES[mode]
