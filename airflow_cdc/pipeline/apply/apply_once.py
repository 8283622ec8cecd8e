"""Commit each microbatch once: a table records which microbatches it holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from pyspark.errors import PySparkException

from airflow_cdc.model.errors import ConcurrentRunError, ConfigurationError, StateLostError
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.foreign_change import INTENT
from airflow_cdc.model.state.commit_metadata import report_in
from airflow_cdc.pipeline.apply.settled import EXPECTED, rows_not_found
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.count_row_changes import count_unresolved
from airflow_cdc.pipeline.target.document_columns import count_misfits
from airflow_cdc.pipeline.target.find_commit import find_commit
from airflow_cdc.pipeline.target.lost_commits import lost_commit
from airflow_cdc.pipeline.target.merge_plan import with_files
from airflow_cdc.pipeline.target.refuse_other_shape import refuse_other_shape
from airflow_cdc.pipeline.target.target_table import TargetTable, read_target


def apply_once(run: MicrobatchRun, apply: Callable[[MicrobatchRun, TargetTable | None], BatchReport]) -> BatchReport:
    """Apply a microbatch, unless the table already holds it, with ``apply``, which receives the table, None where it does not exist.

    :raises ConfigurationError: when the flow's earlier rows are in another table.
    :raises TableModeError: when the flow's settings ask for another table (:func:`refuse_other_shape`).
    :raises ConcurrentRunError: when another run committed first.
    """
    stages = _Stages()
    run = replace(run, after_effect=stages.timing(run.after_effect))
    target = read_target(run.spark, run.table)
    if target is None:
        _refuse_another_place(run)
    else:
        refuse_other_shape(run.flow, target)
    if target and run.is_retry and (done := report_of_commit(run)):
        return done
    try:
        report = apply(run, target)
    except PySparkException as error:
        if (conflict := lost_commit(error)) is None:
            raise
        raise ConcurrentRunError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}: another run committed to {run.table} first ({conflict}).",
            next_step="Nothing is lost; run again. To keep runs apart give the flow a pool of one slot.",
        ) from error
    if target and not (report.columns_added or report.columns_widened or report.columns_renamed or report.columns_filled):
        run.keeps_columns(target.columns)
    return stages.in_report(report)


class _Stages:
    """Measures how long a microbatch takes from one effect to the next."""

    def __init__(self) -> None:
        self._started_at = round(time.time() * 1000)
        self._started = self._since = time.monotonic()
        self._seconds: dict[str, float] = {}

    def timing(self, after_effect: Callable[[str], None]) -> Callable[[str], None]:
        """Return ``after_effect``, which now also ends a stage."""

        def done(effect: str) -> None:
            self._end(effect)
            after_effect(effect)

        return done

    def in_report(self, report: BatchReport) -> BatchReport:
        """Return the report with the seconds of the microbatch; what follows the last effect is its count."""
        self._end("count")
        seconds = round(self._since - self._started, 3)
        return replace(report, started_at=self._started_at, seconds=seconds, stage_seconds=self._seconds)

    def _end(self, stage: str) -> None:
        now = time.monotonic()
        self._seconds[stage] = round(self._seconds.get(stage, 0.0) + now - self._since, 3)
        self._since = now


def _refuse_another_place(run: MicrobatchRun) -> None:
    """Stop where the settings name a new location without a table: it would lack all rows merged so far."""
    before, now = run.checkpoint.table_in(run.lake), run.flow.table_path(run.lake)
    if run.checkpoint.table_version is not None and before != now:
        raise ConfigurationError(
            f"Flow {run.flow.name}: its rows up to microbatch {run.checkpoint.number} are in {before}; the settings name {now}, where no"
            " table is.",
            next_step="Set the flow's table or its route back; or move the table's folder there, and run again; or rebuild the flow.",
        )


def report_of_commit(run: MicrobatchRun) -> BatchReport | None:
    """Return the report of a merged microbatch from its Delta commit; None where it was not merged."""
    known = run.checkpoint.table_version
    after = -1 if known is None else known
    number = run.microbatch.number
    commit = find_commit(run.spark, run.table, application=run.application, microbatch=number, after=after, may_read_log=run.may_read_log)
    if commit is None:
        return None
    if commit.metadata.get(INTENT, run.microbatch.digest) != run.microbatch.digest:
        raise StateLostError(
            f"Flow {run.flow.name}, microbatch {number}: table {run.table} holds a microbatch of that number (version {commit.version})"
            " that applied other files: the flow's state is older than the table.",
            next_step="Restore the newer state of the flow, its whole folder below _cdc/flows; or rebuild the flow.",
        )
    report = report_in(commit.metadata, table=run.table, version=commit.version)
    unresolved = count_unresolved(run.spark, run.table, run.microbatch.number) if report.asks_target else report.unavailable_unresolved
    # Filled rows do not carry this microbatch's number, nor which attempt filled them.
    rows_of = None if report.columns_filled or run.is_retry else run.microbatch.number
    misfits = count_misfits(run.spark, run.table, run.flow.document_columns, microbatch=rows_of)
    plan = with_files(report.merge_plan, commit.metrics, commit.metadata.get("files"))
    merged = replace(report, rows=commit.rows, table_version=commit.version, merge_plan=plan)
    if (expected := commit.metadata.get(EXPECTED)) is not None:
        merged = replace(merged, rows_not_found=rows_not_found(commit.rows, **expected))
    return replace(merged, unavailable_unresolved=unresolved, misfits=misfits)
