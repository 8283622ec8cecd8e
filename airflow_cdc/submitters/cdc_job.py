"""CdcJob: a merge in the spelling of services that Airflow's Spark provider does not reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.intervals_of_run import interval_of_run
from airflow_cdc.model.flow.engine import engine_of
from airflow_cdc.operators.merge_arguments import merge_arguments
from airflow_cdc.submitters.service_job import ServiceJob

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


@dataclass(frozen=True, kw_only=True)
class CdcJob(ServiceJob):
    """A merge as a job of another service: ``jobs/apply.py``.

    :class:`~airflow_cdc.operators.report.CdcReportOperator` takes its report. The fields are those of
    :class:`~airflow_cdc.operators.merge.CdcMergeOperator`, and of any job.
    """

    archive_conn_id: str = CdcArchiveHook.default_conn_name
    """Connection of the archive. (templated)"""
    check_transactions: bool = False
    """Check the counts of archived transaction topics."""
    consistent: bool = False
    """Stop all tables of a connector at its last complete transaction."""
    engine: str | None = None
    """``auto``, ``spark`` or ``native`` for all flows of the run; none: each flow's setting. (templated)"""
    archived_since: str | None = None
    """Only files that were archived from this time on. (templated)"""
    archived_until: str | None = None
    """Only files that were archived before this time. (templated)"""
    by_data_interval: bool = False
    """Where neither is given: the files of the run's data interval, by the merge operator's rule."""

    def stores(self) -> Sequence[CdcStorageHook]:
        """Return the lake and the archive."""
        return [*super().stores(), CdcArchiveHook(self.archive_conn_id)]

    def asked(self, context: Context, report: str) -> Iterable[str]:
        """Return the merge's arguments."""
        engine_of(self.engine)
        times = {"since": self.archived_since, "until": self.archived_until}
        interval = interval_of_run(context, **times, by_data_interval=self.by_data_interval)
        return merge_arguments(self, CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id), interval, report)
