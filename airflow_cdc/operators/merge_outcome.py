"""MergeOutcome: what a task makes of a merge's report, whoever submitted the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_cdc.assets import announce_assets, table_extra
from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.metrics import Sample, samples_of_run
from airflow_cdc.model.report.reject_limit import RejectLimit
from airflow_cdc.operators.announcements import announcements
from airflow_cdc.operators.job_report import Outcome, asset_extra, failure, log_report, rejects_failure, summary

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.openlineage.extractors import OperatorLineage


class MergeOutcome:
    """For operators: the result, the asset events, the lineage and the failure that follow from a merge's report."""

    lake_conn_id: str
    tables: str | Sequence[str] | None
    skip_if_nothing_pending: bool
    fail_on_rejects: str | float
    outlets: Any
    log: Any
    report: ApplyReport | None

    def parse(self, document: dict[str, Any]) -> ApplyReport:
        """Return the job's report from its JSON."""
        return ApplyReport.from_json(document)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return what the run read and wrote, also where it failed afterwards. At its start, the tables that it will change are not
        known.
        """
        from airflow_cdc.lineage import merge_lineage

        # Not from XCom: in the process in which the provider calls this, XCom never answers.
        return merge_lineage(self.report) if self.report else None

    def is_first_try(self, context: Context) -> bool:
        """Return whether no earlier try may have applied what the job finds done."""
        return bool(context["ti"].try_number == 1)

    def outcome(self, context: Context, lake: CdcLakeHook, report: ApplyReport) -> Outcome:
        """Return what was applied. A failed flow fails the task; the outlet assets get events for the changed tables."""
        log_report(self.log, report)
        refused = list(RejectLimit.parse(self.fail_on_rejects).broken(report))
        announced = announcements(lake, context["ti"]) if self.outlets else None
        if refused or not report.ok:
            if announced:
                announced.begin(report)
            return Outcome(summary(report), failure(report) if not report.ok else rejects_failure(refused))
        if not report.flows and (globs := table_globs(self.tables)):
            self.log.warning("No table of the archive matches %s: nothing was done.", ", ".join(globs))
        changed = announced.changed(report) if announced else []
        if self.skip_if_nothing_pending and report.nothing_pending and self.is_first_try(context) and not changed:
            return Outcome(summary(report), AirflowSkipException("Nothing was pending."))
        if announced:
            tables = {flow.flow: table_extra(flow) for flow in changed}
            self.outlets = announce_assets(context, self.outlets, lake_conn_id=self.lake_conn_id, tables=tables, run=asset_extra(report))
            announced.write(report)
        return Outcome(summary(report))

    def samples(self, report: ApplyReport) -> Iterable[Sample]:
        """Return what the run adds to its flows' counters."""
        return samples_of_run(report)
