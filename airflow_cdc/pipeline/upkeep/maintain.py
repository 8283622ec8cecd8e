"""Maintain a lake: keep the target tables of its flows, and our own tables beside them, small and fast.

    statistics    correct in the target's log what an earlier version let delta-rs say of its files' ranges
    staging       remove folders left behind by crashed microbatches
    markers       move delete markers that no late event needs any more out of the merges' way, and remove such moves
    cluster       give the target the clustering columns that its flow declares
    purge         rewrite files with many rows hidden by deletion vectors
    compact       rewrite small files as few larger ones
    vacuum        remove files that no version within the retention needs

In the lake itself, job reports that no task has read are removed after seven days.

None of this changes what a target holds, nor what exactly-once rests on: transaction identifiers stay in the log, and the search for the
commit with a microbatch's report goes past later commits. Surveys, intents and commit markers are kept forever: a flow's state is derived
from them, cut transactions are completed from them, and `reprocess` reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, partial

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import CdcError, first_line
from airflow_cdc.model.files import FileSystem, absolute_uri
from airflow_cdc.model.flow.cdc_flow import BY_KEY, CdcFlow
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.places import delete_markers_uri, events_uri, expired_markers_uri, moves_uri, quarantine_uri, staging_uri
from airflow_cdc.model.report.maintenance import FlowMaintenance, MaintenanceReport, MaintenanceSettings, TableKind, TableMaintenance
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState, archives_in, flows_in
from airflow_cdc.model.state.lease import WAIT_SECONDS, Lease, Leases
from airflow_cdc.pipeline.reconcile.rejoin_transactions import first_part
from airflow_cdc.pipeline.spark.spark_errors import unforeseen
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.table_history import TableHistory
from airflow_cdc.pipeline.target.target_table import read_target
from airflow_cdc.pipeline.upkeep.clear_reports import clear_reports
from airflow_cdc.pipeline.upkeep.clear_staging import clear_staging
from airflow_cdc.pipeline.upkeep.expire_markers import expire_markers, expired_through
from airflow_cdc.pipeline.upkeep.maintain_table import Upkeep, maintain_table

_MOST_CLUSTERING_COLUMNS = 4
_SIDE_BY_SIDE = 2
_OWN_TABLES = {
    TableKind.DELETE_MARKERS: delete_markers_uri,
    TableKind.EXPIRED_MARKERS: expired_markers_uri,
    TableKind.MOVES: moves_uri,
    TableKind.QUARANTINE: quarantine_uri,
    TableKind.EVENTS: events_uri,
}
_EXPIRING = (TableKind.DELETE_MARKERS, TableKind.MOVES)


@dataclass(frozen=True)
class MaintenanceRun:
    """One run of maintenance over a lake."""

    spark: SparkSession
    lake: str
    """URI of the lake's root."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic; only those about clustering are used."""
    tables: tuple[str, ...] = ()
    """Globs of flow names; empty: all."""
    settings: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes a flow."""


def maintain(run: MaintenanceRun) -> MaintenanceReport:
    """Maintain the tables of a lake's flows; a flow that fails does not stop the others. Idempotent."""
    lake = absolute_uri(run.lake)
    fs, root = file_system(lake)
    flows = [_FlowRun(run, lake, fs, root, flow) for flow in flows_in(fs, root) if matches_any(flow, run.tables)]
    with ThreadPoolExecutor(max(1, min(_SIDE_BY_SIDE, len(flows)))) as pool:
        outcomes = tuple(pool.map(_FlowRun.maintain, flows))
    return MaintenanceReport(lake, run.settings.dry_run, outcomes, reports_removed=_clear_reports(run, fs, root))


def _clear_reports(run: MaintenanceRun, fs: FileSystem, root: str) -> int:
    try:
        return clear_reports(fs, root, dry_run=run.settings.dry_run)
    except OSError as problem:
        # Old reports do no harm, and the tables have been maintained.
        run.progress(f"Old job reports could not be removed: {first_line(problem)}")
        return 0


@dataclass(frozen=True)
class _FlowRun:
    run: MaintenanceRun
    lake: str
    fs: FileSystem
    root: str
    flow: str

    def maintain(self) -> FlowMaintenance:
        """Maintain the flow's tables one by one, up to the first that fails."""
        done: list[TableMaintenance] = []
        cleared, error = 0, None
        try:
            with self._lease() as lease:
                staging = file_system(staging_uri(self.lake, self._flow_state.folder))[1]
                cleared = clear_staging(self.fs, staging, dry_run=self.run.settings.dry_run)
                for upkeep in self._upkeeps():
                    if lease:
                        lease.check()
                    # Steps done before a failure must be reported.
                    done.extend(filter(None, [maintain_table(self.run.spark, upkeep)]))
        except CdcError as problem:
            error = problem.to_json()
        except Exception as problem:  # noqa: BLE001 - one flow's trouble, whatever it is, must not stop the others.
            error = self._unexpected(problem).to_json()
        outcome = FlowMaintenance(self.flow, tuple(done), cleared, error)
        for line in outcome.lines():
            self.run.progress(line)
        return outcome

    def _lease(self) -> AbstractContextManager[Lease | None]:
        if self.run.settings.dry_run:
            return nullcontext()
        return Leases(self.fs, self.root, self.run.wait_seconds, progress=self.run.progress).hold(self.flow)

    def _upkeeps(self) -> list[Upkeep]:
        settings = self.run.settings
        found = []
        if place := self._state.table_in(self.lake):
            table = spark_uri(place)
            found.append(Upkeep(TableKind.TARGET, table, settings, self._cluster_by(table), self._needed_since))
        for kind, uri_of in _OWN_TABLES.items():
            uri = uri_of(spark_uri(self.lake), self._flow_state.folder)
            found.append(Upkeep(kind, uri, settings, expire=partial(self._expire, kind) if kind in _EXPIRING else None))
        return found

    @cached_property
    def _flow_state(self) -> FlowState:
        return FlowState(self.fs, self.root, self.flow)

    @cached_property
    def _state(self) -> FlowCheckpoint:
        return self._flow_state.checkpoint()

    def _cluster_by(self, table: str) -> tuple[str, ...]:
        wanted = settings_of(self.run.flows, self.flow).cluster_by
        if wanted != BY_KEY:
            return tuple(wanted)
        target = read_target(self.run.spark, table)
        return target.keys[:_MOST_CLUSTERING_COLUMNS] if target else ()

    @cached_property
    def _expired_through(self) -> int | None:
        return expired_through(self._flow_state, self._state, archives_in(self.fs, self.root), self.run.settings)

    def _expire(self, kind: TableKind, spark: SparkSession) -> int:
        through, is_dry = self._expired_through, self.run.settings.dry_run
        if through is None:
            return 0
        uri, expired = (_OWN_TABLES[each](spark_uri(self.lake), self._flow_state.folder) for each in (kind, TableKind.EXPIRED_MARKERS))
        return expire_markers(spark, uri, expired if kind is TableKind.DELETE_MARKERS else None, through, dry_run=is_dry)

    def _needed_since(self, history: TableHistory) -> datetime | None:
        """Return when the table version was replaced on which the transactions began that a next microbatch may continue.

        These are the newest transactions of each Kafka partition. Late files may complete older ones, as long as files stay.
        """
        reach, number = self._state.reach, self._state.number + 1
        commits = sorted({position.commit for position in reach.streamed_through.values()})
        first = first_part(self._flow_state.report, number, commits, reach)
        if first is None:
            return None
        reports = (self._flow_state.report(each) for each in range(first, number))
        version = next((report.table_version for report in reports if report and report.table_version is not None), None)
        return None if version is None else history.at(version)

    def _unexpected(self, problem: Exception) -> CdcError:
        next_step = "See the job's log; nothing is lost."
        return unforeseen(problem, f"Flow {self.flow}: its tables could not be maintained", next_step)
