"""MaintainOutcome: what a task makes of a maintenance's report, whoever submitted the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.report.maintenance import MaintenanceReport
from airflow_cdc.operators.job_report import Outcome, errors_of, failure_of, log_flows

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class MaintainOutcome:
    """For operators: the result and the failure that follow from a maintenance's report."""

    tables: str | Sequence[str] | None
    log: Any

    def parse(self, document: dict[str, Any]) -> MaintenanceReport:
        """Return the job's report from its JSON."""
        return MaintenanceReport.from_json(document)

    def outcome(self, context: Context, lake: CdcLakeHook, report: MaintenanceReport) -> Outcome:
        """Return what was done; any failure of a flow's upkeep fails the task."""
        log_flows(self.log, report)
        if not report.ok:
            return Outcome(_summary(report), failure_of(f"{len(report.causes())} causes kept maintenance from its end.", report.causes()))
        if not report.flows and (globs := table_globs(self.tables)):
            self.log.warning("No flow of the lake matches %s: nothing was done.", ", ".join(globs))
        return Outcome(_summary(report))


def _summary(report: MaintenanceReport) -> dict[str, Any]:
    """Return the task's XCom: small, plain JSON."""
    flows = {flow.flow: [table.to_json() for table in flow.tables if table.actions] for flow in report.flows}
    whole_lake = {"lake": report.lake, "dry_run": report.dry_run, "reports_removed": report.reports_removed}
    return {**whole_lake, "flows": flows, **errors_of(report)}
