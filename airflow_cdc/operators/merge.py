"""CdcMergeOperator: submit the Spark job that applies pending archived files to their Delta tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, Asset

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.archive_shape import ArchiveShape
from airflow_cdc.model.errors import CdcError
from airflow_cdc.operators.hand_over import hand_over
from airflow_cdc.operators.job_report import (
    ReportPlace,
    asset_extra,
    failure,
    lines,
    report_in_lake,
    report_on_this_machine,
    summary,
)
from airflow_cdc.operators.spark_target import (
    SparkTarget,
    binary_for,
    conf_for,
    default_application,
    environment_for,
    spark_target,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from airflow_cdc.model.outcome import ApplyReport


class CdcMergeOperator(SparkSubmitOperator):
    """Apply what waits in an archive to the lake's Delta tables.

    Which files are pending is known to the lake, not to the run's dates: runs by schedule, by hand, by asset and retries all do the same,
    and doing it twice does it once. Two runs of one flow at a time only make one of them fail and retry; keep it to one with
    ``max_active_tis_per_dag=1``.

    It returns ``{"archive": …, "lake": …, "events": {…}, "rows": {…}, "flows": {"server.db.orders": {"status": "applied", "table": …,
    "table_version": 3, "events": {…}, "rows": {…}}}}``, and tells its outlet assets the changed tables. When flows fail, the
    others are applied all the same; the task then fails with the job's own causes, and is retried only where all of them may pass.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param flows_file: path of a flows file where the job's driver runs. (templated)
    :param check_transactions: check the counts of archived transaction topics; reads each new file once more.
    :param consistent: stop all tables of a connector at its last whole transaction; what stands behind it waits, and the sensor calls for
        it again when more is archived. Checks the transactions too.
    :param conn_id: Spark connection. It must exist.
    :param application: another job with the same arguments. (templated)
    :param kwargs: everything else that ``SparkSubmitOperator`` takes; ``conf`` goes over the options that Delta needs.
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "archive_conn_id", "lake_conn_id", "tables", "flows_file")
    ui_color = "#d6e6c8"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        flows_file: str | None = None,
        check_transactions: bool = False,
        consistent: bool = False,
        conn_id: str = "spark_default",
        application: str = "",
        name: str = "airflow-cdc {{ ti.dag_id }}.{{ ti.task_id }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(application=application, conn_id=conn_id, name=name, **kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.flows_file = flows_file
        self.check_transactions = check_transactions
        self.consistent = consistent

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for it, and turn its report into the task's outcome."""
        try:
            archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
            target = spark_target(self._conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary)
            with self._report_place(target, lake, context) as place:
                self._prepare(target, archive, lake, place)
                report = self._run_job(context, place)
        except CdcError as error:
            raise (AirflowException if error.transient else AirflowFailException)(str(error)) from error
        for line in lines(report):
            self.log.info(line)
        if not report.ok:
            raise failure(report)
        if not report.flows and (globs := table_globs(self.tables)):
            self.log.warning("No table of the archive matches %s: nothing was done.", ", ".join(globs))
        self._tell_assets(context, report)
        return summary(report)

    def on_kill(self) -> None:
        """Kill spark-submit and everything it started: Spark's hook kills its JVM alone, and the Python driver would go on."""
        if self._hook is None:
            return
        started = _descendants(self._hook)
        super().on_kill()
        for process in started:
            with contextlib.suppress(Exception):
                process.kill()

    def _report_place(self, target: SparkTarget, lake: CdcLakeHook, context: Context) -> contextlib.AbstractContextManager[ReportPlace]:
        if target.driver_is_here:
            return report_on_this_machine()
        instance = context["ti"]
        return report_in_lake(lake, f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.map_index}")

    def _prepare(self, target: SparkTarget, archive: CdcArchiveHook, lake: CdcLakeHook, place: ReportPlace) -> None:
        self.application = self.application or default_application()
        little_waits = target.is_local and archive.little_waits(lake, table_globs(self.tables))
        self.conf = conf_for(target, self.conf or {}, jars=self.jars, packages=self.packages, little_waits=little_waits)
        # Their values are in conf now: as arguments of their own they would hide Delta's.
        self.jars = self.packages = None
        settings = archive.storage_settings().joined(lake.storage_settings())
        self.env_vars = {**environment_for(target), **settings.environment, **(self.env_vars or {})} or None
        self._spark_binary = binary_for(target)
        storage = hand_over(settings, target, place, self.conf)
        self.application_args = list(self._arguments(archive, lake, place.uri, storage=storage))

    def _arguments(self, archive: CdcArchiveHook, lake: CdcLakeHook, report: str, *, storage: str | None) -> Iterator[str]:
        yield from ("--archive", archive.root, "--lake", lake.root)
        if self.flows_file:
            yield from ("--flows", self.flows_file)
        for glob in table_globs(self.tables):
            yield from ("--table", glob)
        if self.check_transactions:
            yield "--check-transactions"
        if self.consistent:
            yield "--consistent"
        if archive.shape != ArchiveShape():
            yield from ("--layout", archive.shape.layout.value, "--format", archive.shape.format.value)
        if storage:
            yield from ("--storage", storage)
        yield from ("--report", report)

    def _run_job(self, context: Context, place: ReportPlace) -> ApplyReport:
        try:
            super().execute(context)
        except Exception as error:
            # spark-submit's error shows the last lines of a log; the job's own cause is in the report.
            report = place.read()
            if report is None and isinstance(error, ValueError):
                # Spark's hook and operator refuse settings that exclude each other; trying again would not change them.
                raise AirflowFailException(f"Nothing was submitted: {error}") from error
            if report is None:
                self.log.error("The job left no report: it did not start, or was killed.")
                raise
            if report.ok:
                self.log.error("The job applied everything and failed after that; a retry finds nothing left to do.")
                raise
            self.log.error("spark-submit failed: %s", error)
            return report
        finally:
            self._close_pipe()
        report = place.read()
        if report is None:
            raise AirflowException(f"spark-submit ended well, but no report is at {place.uri}; is {self.application} the right job?")
        return report

    def _close_pipe(self) -> None:
        submitted = self._hook and self._hook._submit_sp
        if submitted and submitted.stdout:
            submitted.stdout.close()

    def _tell_assets(self, context: Context, report: ApplyReport) -> None:
        for outlet in self.outlets or []:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = asset_extra(report)


def _descendants(hook: Any) -> list[Any]:
    import psutil

    submitted = getattr(hook, "_submit_sp", None)
    if submitted is None or submitted.poll() is not None:
        return []
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(submitted.pid).children(recursive=True))
    return []
