"""CdcMergeOperator: submit the Spark job that applies pending archived files to their Delta tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.assets import refuse_foreign_tables
from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.intervals_of_run import interval_of_run
from airflow_cdc.metrics import send_lag
from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.flow.engine import engine_of
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.reject_limit import RejectLimit
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.merge_arguments import merge_arguments
from airflow_cdc.operators.merge_outcome import MergeOutcome
from airflow_cdc.operators.submit import CdcSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcMergeOperator(MergeOutcome, CdcSubmitOperator):
    """Apply an archive's pending files to the lake's Delta tables.

    The lake records which files are pending; the run's dates do not matter. Scheduled, manual, asset-triggered and retried runs all do the
    same, and repeating one has no further effect. Of two concurrent runs of one flow, one waits, or fails and is retried; limit them to one
    with ``max_active_tis_per_dag=1``.

    It returns ``{"archive": …, "lake": …, "events": {…}, "rows": {…}, "flows": {"server.db.orders": {"status": "applied", "table": …,
    "table_version": 3, "engines": ["native"], "events": {…}, "rows": {…}}}}``, and emits events for the changed tables on its outlet
    assets. When flows fail, the others are still applied; the task then fails with the job's own causes, and is retried only where all of
    them may pass.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param flows_file: path of a flows file where the job's driver runs. (templated)
    :param check_transactions: check the counts of archived transaction topics; reads each new file once more.
    :param consistent: stop all tables of a connector at its last complete transaction. Events behind it wait, and the sensor succeeds again
        when more is archived. Checks the transactions too.
    :param engine: ``auto``, ``spark`` or ``native`` for all flows of the run; none: the lake connection's, else each flow's own.
        (templated)
    :param archived_since: only files that were archived from this time on (ISO 8601; UTC where it has no offset). (templated)
    :param archived_until: only files that were archived before this time. (templated)
    :param by_data_interval: where neither is given: a backfill's run takes the files that were archived in its data interval; a scheduled
        run takes all that were archived before the interval's end, late ones too; a manual or asset-triggered run takes all pending files.
    :param skip_if_nothing_pending: end skipped where nothing was pending, as the sensor in front of it would: nothing downstream runs, and
        no asset event is emitted. A retry or a cleared task succeeds instead: the earlier try may have applied what it finds done.
    :param fail_on_rejects: fail the task, without retries, when records of a flow were rejected: ``any``, or more than this share of the
        records read of the flow (0 to 1); ``never`` by default. Everything else is still applied. Airflow records no asset events of a
        failed task: the next successful run announces the changed tables. (templated)
    :param kwargs: arguments of :class:`~airflow_cdc.operators.submit.CdcSubmitOperator` and Airflow's ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (
        *CdcSubmitOperator.template_fields,
        "archive_conn_id",
        "lake_conn_id",
        "tables",
        "flows_file",
        "archived_since",
        "archived_until",
        "fail_on_rejects",
        "engine",
    )
    ui_color = "#d6e6c8"
    job = "apply.py"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        flows_file: str | None = None,
        check_transactions: bool = False,
        consistent: bool = False,
        engine: str | None = None,
        archived_since: str | None = None,
        archived_until: str | None = None,
        by_data_interval: bool = False,
        skip_if_nothing_pending: bool = True,
        fail_on_rejects: str | float = "never",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.flows_file = flows_file
        self.check_transactions = check_transactions
        self.consistent = consistent
        self.engine = engine
        self.archived_since = archived_since
        self.archived_until = archived_until
        self.by_data_interval = by_data_interval
        self.skip_if_nothing_pending = skip_if_nothing_pending
        self.fail_on_rejects = fail_on_rejects

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for it, and turn its report into the task's outcome."""
        with as_airflow_errors():
            refuse_foreign_tables(self.outlets or (), self.lake_conn_id)
            # A typo must not cost the start of Spark.
            RejectLimit.parse(self.fail_on_rejects)
            engine_of(self.engine)
            archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
            interval = self._interval(context)
            return self.submit(
                context,
                lake,
                lambda place: self._arguments(archive, lake, interval, place),
                others=(archive,),
                little_waits=lambda: archive.little_waits(lake, table_globs(self.tables)),
            )

    def reported(self, lake: CdcLakeHook, report: ApplyReport) -> None:
        """Send the report's metrics, and the lag that remains: files may have landed since the run looked."""
        super().reported(lake, report)
        send_lag(self.archive_conn_id, lake.conn_id, table_globs(self.tables))

    def _interval(self, context: Context) -> Interval:
        """Return the archiving interval of the files that the run takes.

        :raises ConfigurationError: when a time cannot be parsed.
        """
        times = {"since": self.archived_since, "until": self.archived_until}
        return interval_of_run(context, **times, by_data_interval=self.by_data_interval)

    def _arguments(self, archive: CdcArchiveHook, lake: CdcLakeHook, interval: Interval, report: str) -> Iterator[str]:
        return merge_arguments(self, archive, lake, interval, report)
