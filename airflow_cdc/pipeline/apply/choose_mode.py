"""Choose the mode of a microbatch: how its table applies events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.apply.modes import by_key, change_log, rows_without_key, snapshot_decision, versions
from airflow_cdc.pipeline.apply.native.settle_events import settle_events
from airflow_cdc.pipeline.apply.native.settle_rows import settle_rows
from airflow_cdc.pipeline.apply.native.take_plain import natively
from airflow_cdc.pipeline.apply.settled import Settled
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.settle.plan_decoding import is_without_key
from airflow_cdc.pipeline.spark.late_session import started
from airflow_cdc.pipeline.target.target_table import TargetTable

Settle = Callable[[MicrobatchRun, TargetTable | None], Settled]
"""A mode's first step: turns a microbatch and its target into the remaining steps."""


def _in_spark(settle: Settle) -> Settle:
    """Start Spark before a mode's first step: its functions of columns fail as long as no context is open."""

    def start_first(run: MicrobatchRun, target: TargetTable | None) -> Settled:
        return settle(replace(run, spark=started(run.spark)), target)

    return start_first


_MODES: Mapping[TableMode, Settle] = {
    TableMode.CURRENT: natively(_in_spark(by_key.settle), settle_rows),
    TableMode.FLAGGED: natively(_in_spark(by_key.settle), settle_rows),
    TableMode.MULTISET: _in_spark(rows_without_key.settle),
    TableMode.VERSIONS: _in_spark(versions.settle),
    TableMode.CHANGE_LOG: natively(_in_spark(change_log.settle), settle_events),
}


def choose_mode(run: MicrobatchRun, target: TargetTable | None) -> Settle:
    """Return the mode of a microbatch. Its events, not its settings, decide whether a current table has a key."""
    if run.microbatch.decides:
        return _in_spark(snapshot_decision.settle)
    mode = run.flow.mode
    if mode is TableMode.CURRENT and is_without_key(run.flow, run.microbatch, target):
        mode = TableMode.MULTISET
    return _MODES[mode]
