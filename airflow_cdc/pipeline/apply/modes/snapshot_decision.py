"""Apply what a person decided about a snapshot: a microbatch that reads no file, and is committed as any other."""

from __future__ import annotations

from airflow_cdc.model.places import events_uri
from airflow_cdc.model.report import BatchReport
from airflow_cdc.model.snapshot import Snapshot, SnapshotDecision
from airflow_cdc.model.table_mode import TableMode
from airflow_cdc.pipeline.apply.apply_once import apply_once, report_of_commit
from airflow_cdc.pipeline.apply.modes.by_key import no_row_changes
from airflow_cdc.pipeline.apply.modes.versions import log_rows, merge_logged
from airflow_cdc.pipeline.find_snapshot import Snapshots, decide_snapshot
from airflow_cdc.pipeline.find_voids import find_voids
from airflow_cdc.pipeline.microbatch.count_events import Truncates
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.physical_tables import PhysicalTables
from airflow_cdc.pipeline.record.append_once import read_appended
from airflow_cdc.pipeline.target.merge_row_changes import Merge, merge_row_changes
from airflow_cdc.pipeline.target.target_table import TargetTable


def apply_decision(run: MicrobatchRun, decision: SnapshotDecision) -> BatchReport:
    """Remove the rows that a snapshot did not find, where that was decided and the snapshot is proven; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """

    def apply(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
        snapshots = decide_snapshot(run, decision)
        report = BatchReport(
            run.flow.name,
            run.microbatch.number,
            files=0,
            bytes=0,
            snapshot=snapshots.newest,
            pending_snapshots=snapshots.pending,
            replaced_by=snapshots.replacing,
            merge_plan=f"decision about a snapshot: {decision.choice.value}",
        )
        if target is None or snapshots.replacing is None:
            return report
        if target.mode is TableMode.VERSIONS:
            return _end_versions(run, target, snapshots.replacing, report)
        return _remove_rows(run, target, snapshots, report)

    return apply_once(run, apply)


def _remove_rows(run: MicrobatchRun, target: TargetTable, snapshots: Snapshots, report: BatchReport) -> BatchReport:
    voids = find_voids(run, Truncates(), snapshots, PhysicalTables(run.flow, target.keys, run.tables))
    with run.merging(target, report):
        merge = Merge(
            row_changes=no_row_changes(run),
            columns=list(target.columns),
            microbatch=run.microbatch.number,
            vanishing=voids.rows,
        )
        merge_row_changes(run.spark, target, merge)
    run.after_effect("merge")
    return report_of_commit(run) or report


def _end_versions(run: MicrobatchRun, target: TargetTable, snapshot: Snapshot, report: BatchReport) -> BatchReport:
    log = read_appended(run.spark, run.state(events_uri))
    if log is None:
        return report
    rows = log_rows(run, log.filter("false"), log, snapshot)
    tables = PhysicalTables(run.flow, target.keys, run.tables)
    return merge_logged(run, target, rows, report, tables, ended=None, everything=True)
