"""Log versions: append a table's events to the flow's event log, and cut the table's versions from the whole log."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from airflow_cdc.model.columns import COMMITTED_AT, OP, POSITION
from airflow_cdc.model.places import events_uri
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.cut_touched_keys import Logged, cut_touched_keys
from airflow_cdc.pipeline.apply.known_snapshots import with_unconfirmed_versions
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.event_log import append_to_log, is_read_of, mark_of, read_log
from airflow_cdc.pipeline.target.merge_versions import current_versions, merge_versions
from airflow_cdc.pipeline.target.target_table import TargetTable


def log_rows(run: MicrobatchRun, rows: DataFrame, *, known: DataFrame | None, proven: Snapshot | None) -> DataFrame:
    """Append a microbatch's rows to the log, with the marks of a snapshot that it proves; return the rows as logged."""
    if proven:
        sources = [each.select(POSITION, OP, COMMITTED_AT) for each in (rows, known) if each is not None]
        reads = reduce(DataFrame.unionByName, sources).filter(is_read_of(proven))
        rows = rows.unionByName(mark_of(proven, reads, run.microbatch.number), allowMissingColumns=True)
    rows = run.write_down(rows, "logged")
    append_to_log(run.spark, run.state(events_uri), rows, application=run.application, microbatch=run.microbatch.number)
    run.after_effect("log")
    return rows


def merge_logged(run: MicrobatchRun, target: TargetTable, logged: Logged, report: BatchReport) -> BatchReport:
    """Rebuild the versions of the keys that a microbatch's log rows touch, merge the difference, and return the report."""
    log = read_log(run.spark, run.state(events_uri), files_are_in_order=run.flow.files_are_in_order)
    assert log is not None
    changes = cut_touched_keys(run, target, log, logged=logged)
    report = replace(report, unavailable_unresolved=changes.unresolved)
    if logged.ended:
        current = current_versions(run.spark, target, changes.rows)
        report = with_unconfirmed_versions(report, logged.ended, current, log=log, tables=logged.tables)
    with run.merging(target, report):
        merge_versions(run.spark, target, changes.rows, microbatch=run.microbatch.number)
    return report
