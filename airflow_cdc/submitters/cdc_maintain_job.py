"""CdcMaintainJob: maintenance in the spelling of services that Airflow's Spark provider does not reach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.operators.maintain_arguments import maintain_arguments, settings_of
from airflow_cdc.submitters.service_job import ServiceJob

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


@dataclass(frozen=True, kw_only=True)
class CdcMaintainJob(ServiceJob):
    """Maintenance as a job of another service: ``jobs/maintain.py``.

    :class:`~airflow_cdc.operators.report.CdcMaintainReportOperator` takes its report. The fields are those of
    :class:`~airflow_cdc.operators.maintain.CdcMaintainOperator`, and of any job.
    """

    vacuum_after_days: float | str = 7
    """How many days files stay that the table no longer needs. (templated)"""
    expire_after_days: float | str = 30
    """How many days delete markers stay. (templated)"""
    purge_from: float | str = 0.1
    """Share of a table's rows that deletion vectors may hide. (templated)"""
    allow_short_retention: bool = False
    """Accept less than 7 days for ``vacuum_after_days``."""
    only_plan: bool | str = False
    """Report what would be done, without doing it. (templated)"""

    def asked(self, context: Context, report: str) -> Iterable[str]:
        """Return the maintenance's arguments."""
        return maintain_arguments(self, CdcLakeHook(self.lake_conn_id).root, settings_of(self), report)
