"""ObservedOperator: what Airflow shows of a task that submits a job and reads its report: links, and metrics and spans after the report."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from airflow_cdc.links.tasks import FlowLink, QuarantineLink, SparkLink
from airflow_cdc.metrics import send

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context

    from airflow_cdc.hooks.lake import CdcLakeHook
    from airflow_cdc.model.report.metrics import Sample


class ObservedOperator:
    """Part of the operators that submit a job and read its report."""

    operator_extra_links: Collection[BaseOperatorLink] = (FlowLink(), QuarantineLink(), SparkLink())
    report: Any = None
    """The job's report, once it is read; callbacks of the task find it here."""
    log: Any

    def pre_execute(self, context: Context) -> None:
        """Make the links known while the task runs; Airflow itself does so only at its end."""
        for link in self.operator_extra_links:
            try:
                if address := link.get_link(self, ti_key=None):  # type: ignore[arg-type]
                    context["ti"].xcom_push(link.xcom_key, address)
            except Exception as error:  # noqa: BLE001, PERF203 - no task fails for a link.
                self.log.warning("The link %s cannot be made: %s: %s", link.name, type(error).__name__, error)

    def samples(self, report: Any) -> Iterable[Sample]:
        """Return the metrics' values of a report."""
        return ()

    def reported(self, lake: CdcLakeHook, report: Any) -> None:
        """Send the report's metrics and spans. It is called once per report, whether the task fails or not, and raises nothing."""
        send(lake.conn_id, lambda: self.samples(report))
        # Imported here: Dag files import this module.
        from airflow_cdc.traces import trace_microbatches

        trace_microbatches(lake.conn_id, report)
