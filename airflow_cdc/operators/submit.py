"""CdcSubmitOperator: what all operators share that submit one of this package's jobs and read its report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.errors import CdcError
from airflow_cdc.operators.hand_over import hand_over
from airflow_cdc.operators.job_report import ReportPlace, report_in_lake, report_on_this_machine
from airflow_cdc.operators.spark_target import SparkTarget, application_of, binary_for, conf_for, environment_for, spark_target

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class _JobReport(Protocol):
    @property
    def ok(self) -> bool: ...


_Report = TypeVar("_Report", bound=_JobReport)


class CdcSubmitOperator(SparkSubmitOperator):
    """Submit a job of this package to where the Spark connection leads, wait for it, and read its report.

    :param conn_id: Spark connection. It must exist.
    :param application: another job with the same arguments. (templated)
    :param kwargs: everything else that ``SparkSubmitOperator`` takes; ``conf`` goes over the options that Delta needs.
    """

    job = ""
    """File name of the job in :mod:`airflow_cdc.jobs`."""

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        application: str = "",
        name: str = "airflow-cdc {{ ti.dag_id }}.{{ ti.task_id }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(application=application, conn_id=conn_id, name=name, **kwargs)

    def submit(
        self,
        context: Context,
        lake: CdcLakeHook,
        arguments: Callable[[str], Iterable[str]],
        read: Callable[[dict[str, Any]], _Report],
        *,
        others: Sequence[CdcStorageHook] = (),
        little_waits: Callable[[], bool] = lambda: False,
    ) -> _Report:
        """Submit the job, wait for it, and return its report, also where the job failed and said why.

        :param arguments: the job's, by where it shall write its report.
        :param read: makes the report of its JSON.
        :param others: what the job reaches beside the lake; it gets the stores' credentials of all of them.
        :param little_waits: tells whether the job has little to do; asked only where that makes a difference.
        :raises CdcError: when the Spark connection leads nowhere, or the report is none.
        :raises AirflowException: when the job left no report, or failed after it.
        """
        target = spark_target(self._conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary)
        with self._report_place(target, lake, context) as place:
            self._prepare(target, little_waits=target.is_local and little_waits())
            settings = lake.storage_settings()
            for other in others:
                settings = settings.joined(other.storage_settings())
            self.env_vars = {**settings.environment, **(self.env_vars or {})} or None
            storage = hand_over(settings, target, place, self.conf or {})
            self.application_args = [*arguments(place.uri), *(("--storage", storage) if storage else ())]
            return self._run_job(context, place, read)

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

    def _prepare(self, target: SparkTarget, *, little_waits: bool) -> None:
        self.application = self.application or application_of(self.job)
        self.conf = conf_for(target, self.conf or {}, jars=self.jars, packages=self.packages, little_waits=little_waits)
        # Their values are in conf now: as arguments of their own they would hide Delta's.
        self.jars = self.packages = None
        self.env_vars = {**environment_for(target), **(self.env_vars or {})} or None
        self._spark_binary = binary_for(target)

    def _run_job(self, context: Context, place: ReportPlace, read: Callable[[dict[str, Any]], _Report]) -> _Report:
        try:
            SparkSubmitOperator.execute(self, context)
        except Exception as error:
            # spark-submit's error shows the last lines of a log; the job's own cause is in the report.
            report = place.read(read)
            if report is None and isinstance(error, ValueError):
                # Spark's hook and operator refuse settings that exclude each other; trying again would not change them.
                raise AirflowFailException(f"Nothing was submitted: {error}") from error
            if report is None:
                self.log.error("The job left no report: it did not start, or was killed.")
                raise
            if report.ok:
                self.log.error("The job did all it had to and failed after that; a retry finds nothing left to do.")
                raise
            self.log.error("spark-submit failed: %s", error)
            return report
        finally:
            self._close_pipe()
        report = place.read(read)
        if report is None:
            raise AirflowException(f"spark-submit ended well, but no report is at {place.uri}; is {self.application} the right job?")
        return report

    def _close_pipe(self) -> None:
        submitted = self._hook and self._hook._submit_sp
        if submitted and submitted.stdout:
            submitted.stdout.close()


@contextlib.contextmanager
def told_by_airflow() -> Iterator[None]:
    """Raise our errors as Airflow's: without retries where trying again cannot help."""
    try:
        yield
    except CdcError as error:
        raise (AirflowException if error.transient else AirflowFailException)(str(error)) from error


def _descendants(hook: Any) -> list[Any]:
    import psutil

    submitted = getattr(hook, "_submit_sp", None)
    if submitted is None or submitted.poll() is not None:
        return []
    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(submitted.pid).children(recursive=True))
    return []
