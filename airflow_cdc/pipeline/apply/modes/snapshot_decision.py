"""A user's decision about a snapshot: a microbatch that reads no file, and is committed like any other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.connectors.registry import CONNECTORS, connector_of
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.places import events_uri
from airflow_cdc.model.position.snapshot import SnapshotDecision
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.cut_touched_keys import Logged
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged
from airflow_cdc.pipeline.apply.fold_changes import no_row_changes
from airflow_cdc.pipeline.apply.log_versions import log_rows, merge_logged
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.settled import Ready, Settled
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots, decide_snapshot
from airflow_cdc.pipeline.evidence.find_voids import find_voids
from airflow_cdc.pipeline.microbatch.count_events import Truncates
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.event_log import read_log
from airflow_cdc.pipeline.target.merge_row_changes import Merge, merge_row_changes
from airflow_cdc.pipeline.target.target_table import TargetTable


def settle(run: MicrobatchRun, target: TargetTable | None) -> DecidedSnapshot:
    """Apply the decision to the flow's snapshots.

    :param run: its microbatch carries the decision.
    """
    decision = run.microbatch.decides
    assert decision, "a microbatch that decides about a snapshot"
    return DecidedSnapshot(run=run, target=target, decision=decision, snapshots=decide_snapshot(run, decision))


def _connector(run: MicrobatchRun) -> Connector:
    """Return the connector of the flow's events: the snapshot is among them."""
    intents = filter(None, (run.past.intent(number) for number in range(1, run.microbatch.number)))
    return connector_of({shape.connector for intent in intents for shape in intent.shapes if shape.connector in CONNECTORS}, run.flow.name)


@dataclass(frozen=True, kw_only=True)
class DecidedSnapshot(Settled):
    """Removes the rows that a snapshot did not find, if the decision is to do so and the snapshot is proven."""

    decision: SnapshotDecision
    snapshots: Snapshots

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report, with no file read."""
        return BatchReport(
            self.run.flow.name,
            self.run.microbatch.number,
            files=0,
            bytes=0,
            snapshot=self.snapshots.newest,
            pending_snapshots=self.snapshots.pending,
            replaced_by=self.snapshots.replacing,
            merge_plan=f"decision about a snapshot: {self.decision.choice.value}",
        )

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Append the snapshot's marks to the event log of a table that keeps versions; rows of other tables leave no delete marker."""
        run, replacing = self.run, self.snapshots.replacing
        if target is None or replacing is None:
            return Ready(report=report)
        tables = PhysicalTables(run.flow, target.keys, run.tables)
        if target.mode is not TableMode.VERSIONS:
            return Ready(report=report, merge=partial(self.merge, target, tables, report))
        log = read_log(run.spark, run.state(events_uri), files_are_in_order=run.flow.files_are_in_order)
        if log is None:
            return Ready(report=report)
        rows = log_rows(run, log.filter("false"), known=log, proven=replacing)
        logged = Logged(rows=rows, tables=tables, everything=True, change_restarts=_connector(run).position.change_restarts)
        return Ready(report=report, merge=partial(merge_logged, run, target, logged, report=report))

    def merge(self, target: TargetTable, tables: PhysicalTables, report: BatchReport) -> BatchReport:
        """Remove the rows that the snapshot did not find."""
        run = self.run
        voids = find_voids(run, Truncates(), self.snapshots, tables=tables)
        merge = Merge(
            row_changes=no_row_changes(run),
            columns=list(target.columns),
            microbatch=run.microbatch.number,
            vanishing=voids.rows,
        )
        with run.merging(target, report):
            merge_row_changes(run.spark, target, merge)
        return report
