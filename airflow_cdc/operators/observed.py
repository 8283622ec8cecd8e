"""ObservedOperator: what Airflow shows of a task that has a job's report: metrics after the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from airflow_cdc.metrics import send

if TYPE_CHECKING:
    from airflow_cdc.hooks.lake import CdcLakeHook
    from airflow_cdc.model.report.metrics import Sample


class ObservedOperator:
    """Part of the operators that submit a job and read its report."""

    report: Any = None
    """The job's report, once it is read; callbacks of the task find it here."""

    def samples(self, report: Any) -> Iterable[Sample]:
        """Return the metrics' values of a report."""
        return ()

    def reported(self, lake: CdcLakeHook, report: Any) -> None:
        """Send the report's metrics. It is called once per report, whether the task fails or not, and raises nothing."""
        send(lake.conn_id, lambda: self.samples(report))
