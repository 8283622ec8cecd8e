"""CdcReportOperator: take the report of a job that another provider's operator submitted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, BaseOperator, conf

from airflow_cdc.assets import refuse_foreign_tables
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.links.tasks import FlowLink, QuarantineLink
from airflow_cdc.model.report.reject_limit import RejectLimit
from airflow_cdc.model.report.try_reports import newest_report, number_of, report_name, reports_there
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.job_report import Outcome, lake_report
from airflow_cdc.operators.maintain_outcome import MaintainOutcome
from airflow_cdc.operators.merge_outcome import MergeOutcome
from airflow_cdc.operators.observed import ObservedOperator
from airflow_cdc.submitters.task_of_report import task_of_report
from airflow_cdc.triggers.report import CdcReportTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_RESULT = "return_value"
"""Key of the task's return value in XCom."""


class CdcSubmittedReportOperator(ObservedOperator, BaseOperator):
    """Base: take the report of a :class:`~airflow_cdc.submitters.service_job.ServiceJob` from the lake, and end by it.

    The job writes its report into the lake before it ends, also when flows failed. The report decides: this task succeeds if the job did
    its work and the submitting task failed afterwards, and fails with the job's own causes if flows failed. It therefore runs after a
    failed task too (``trigger_rule="none_skipped"``), and is skipped with a skipped one. It has nothing to retry but a store that does
    not answer: what runs the job again is the submitting task.

    :param submitted_by: id of the task of the same Dag that submits the job. It may be mapped: then this task is mapped along.
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as the job names them; only for the log. (templated)
    :param wait_seconds: longest wait for a report that is not there yet, for a submitting task that does not wait for its job.
    :param poke_interval: seconds between two looks while it waits.
    :param deferrable: wait in the triggerer instead of a worker's slot.
    :param trigger_rule: Airflow's; the default runs it after a failed submitting task too.
    """

    template_fields: Sequence[str] = ("lake_conn_id", "tables")
    ui_color = "#d6e6c8"
    operator_extra_links = (FlowLink(), QuarantineLink())

    def __init__(
        self,
        *,
        submitted_by: str,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        wait_seconds: float = 0,
        poke_interval: float = 30.0,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        trigger_rule: str = "none_skipped",
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.submitted_by = submitted_by
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.wait_seconds = wait_seconds
        self.poke_interval = poke_interval
        self.deferrable = deferrable
        self._try_of_job = 1

    def parse(self, document: dict[str, Any]) -> Any:
        """Return the job's report from its JSON."""
        raise NotImplementedError

    def outcome(self, context: Context, lake: CdcLakeHook, report: Any) -> Outcome:
        """Return the task's outcome for a report."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:
        """Look for the report, wait for it where that is asked, and turn it into the task's outcome."""
        with as_airflow_errors():
            lake, name = CdcLakeHook(self.lake_conn_id), self._name(context)
            until = time.time() + self.wait_seconds
            while newest_report(lake.fs, lake.fs_root, name) is None and time.time() < until:
                if self.deferrable:
                    self._wait_in_triggerer(name, until)
                time.sleep(self.poke_interval)
            return self._settle(context, lake)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Resume after the trigger fired: the report is there, or the wait is over."""
        with as_airflow_errors():
            if event["status"] != "success":
                self.log.warning("The triggerer cannot look for the report of %s: %s", self.submitted_by, event["message"])
            return self._settle(context, CdcLakeHook(self.lake_conn_id))

    def _name(self, context: Context) -> str:
        return report_name(task_of_report(context["ti"], self.submitted_by))

    def _wait_in_triggerer(self, name: str, until: float) -> None:
        self.defer(
            trigger=CdcReportTrigger(
                poke_interval=self.poke_interval,
                lake_conn_id=self.lake_conn_id,
                report=name,
                ask_at=None,
                until=until,
                job=self.submitted_by,
                spark_conn_id=None,
            ),
            method_name="execute_complete",
        )

    def _settle(self, context: Context, lake: CdcLakeHook) -> dict[str, Any]:
        name = newest_report(lake.fs, lake.fs_root, self._name(context))
        report = lake_report(lake, name).read(self.parse) if name else None
        if name is None or report is None:
            raise AirflowFailException(self._nothing_found(lake))
        self._try_of_job = number_of(name)
        self.report = report
        outcome = self.outcome(context, lake, report)
        if outcome.error and self.do_xcom_push:
            # Airflow keeps no result of a failed or skipped task.
            context["ti"].xcom_push(_RESULT, outcome.result)
        self._remove(lake, name, self._name(context))
        self.reported(lake, report)
        if isinstance(outcome.error, AirflowSkipException):
            raise outcome.error
        if outcome.error:
            # A retry of this task would not run the job again.
            raise AirflowFailException(f"{outcome.error}\nThe job is run again by clearing the task {self.submitted_by}.")
        return outcome.result

    @staticmethod
    def _remove(lake: CdcLakeHook, taken: str, every: str) -> None:
        """Remove the report, last of all, and those of earlier tries, which it makes worthless.

        A task that dies after this finds nothing when it is retried, and fails. Clearing the submitting task then announces the tables.
        """
        for name in reports_there(lake.fs, lake.fs_root, every):
            if name <= taken:
                lake_report(lake, name).remove()

    def _nothing_found(self, lake: CdcLakeHook) -> str:
        waited = f" within {self.wait_seconds:g} seconds" if self.wait_seconds else ""
        return (
            f"No report of a job of the task {self.submitted_by} in lake {lake.root}{waited}: the job did not start, was killed before its "
            f"end, or writes to another lake; or another try of this task took the report and died. Next step: see the log of "
            f"{self.submitted_by} and the service's log of the job, then clear {self.submitted_by}; what is applied is not applied twice."
        )


class CdcReportOperator(MergeOutcome, CdcSubmittedReportOperator):
    """Take the report of a merge, a :class:`~airflow_cdc.submitters.cdc_job.CdcJob`, and end as the merge operator would.

    Its result, its asset events and its failures are those of :class:`~airflow_cdc.operators.merge.CdcMergeOperator`.

    :param skip_if_nothing_pending: as for the merge operator; a retry of the submitting task counts as one.
    :param fail_on_rejects: as for the merge operator. (templated)
    :param kwargs: arguments of :class:`CdcSubmittedReportOperator`; ``outlets`` as for the merge operator.
    """

    template_fields: Sequence[str] = (*CdcSubmittedReportOperator.template_fields, "fail_on_rejects")

    def __init__(self, *, skip_if_nothing_pending: bool = True, fail_on_rejects: str | float = "never", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.skip_if_nothing_pending = skip_if_nothing_pending
        self.fail_on_rejects = fail_on_rejects

    def execute(self, context: Context) -> dict[str, Any]:
        """Check what is asked, look for the report, wait for it where that is asked, and turn it into the task's outcome."""
        with as_airflow_errors():
            refuse_foreign_tables(self.outlets or (), self.lake_conn_id)
            RejectLimit.parse(self.fail_on_rejects)
        return super().execute(context)

    def is_first_try(self, context: Context) -> bool:
        """Return whether no earlier try of the submitting task may have applied what the job finds done."""
        return self._try_of_job == 1


class CdcMaintainReportOperator(MaintainOutcome, CdcSubmittedReportOperator):
    """Take the report of a :class:`~airflow_cdc.submitters.cdc_maintain_job.CdcMaintainJob`, and end as the maintain operator would.

    :param submitted_by: id of the task of the same Dag that submits the job. It may be mapped: then this task is mapped along.
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as the job names them; only for the log. (templated)
    :param wait_seconds: longest wait for a report that is not there yet, for a submitting task that does not wait for its job.
    :param poke_interval: seconds between two looks while it waits.
    :param deferrable: wait in the triggerer instead of a worker's slot.
    :param trigger_rule: Airflow's; the default runs it after a failed submitting task too.
    """

    ui_color = "#e0dcc4"
