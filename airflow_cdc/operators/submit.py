"""CdcSubmitOperator: what all operators share that submit one of this package's jobs and read its report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.errors import CdcError
from airflow_cdc.operators.connect_client import ConnectClient, connect_url
from airflow_cdc.operators.hand_over import hand_over
from airflow_cdc.operators.job_report import ReportPlace, lake_report, report_in_lake, report_name, report_on_this_machine
from airflow_cdc.operators.left_job import conf_to_leave, is_manager_known, job_of, take_up
from airflow_cdc.operators.spark_target import SparkTarget, application_of, binary_for, conf_for, environment_for, spark_target
from airflow_cdc.triggers.report import CdcReportTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class _JobReport(Protocol):
    @property
    def ok(self) -> bool: ...


_Report = TypeVar("_Report", bound=_JobReport)
_OF_A_SUBMISSION = (
    "jars",
    "packages",
    "py_files",
    "files",
    "archives",
    "driver_memory",
    "executor_memory",
    "num_executors",
    "executor_cores",
)
"""What ``SparkSubmitOperator`` takes and a Spark Connect server has, or has not, from its start on."""
_ASK_EVERY = 600.0
"""Seconds after which a task that waits for a report asks the cluster whether the job still runs."""


class CdcSubmitOperator(SparkSubmitOperator):
    """Submit a job of this package to where the Spark connection leads, wait for it, and read its report.

    :param conn_id: Spark connection. It must exist. One of type ``spark_connect`` makes the job a client of that server, in a Python
        process of the task's own: nothing is submitted.
    :param application: another job with the same arguments. (templated)
    :param kwargs: everything else that ``SparkSubmitOperator`` takes; ``conf`` goes over the options that Delta needs.
    """

    job = ""
    """File name of the job in :mod:`airflow_cdc.jobs`."""
    deferrable = False
    """Whether the task waits in the triggerer for a job whose driver runs in a cluster; it then has an ``execute_complete``."""
    poke_interval = 30.0
    """Seconds between two looks for the report."""
    _left: ReportPlace | None = None
    """Where the report will be of a job that this task leaves to the cluster."""
    _client: ConnectClient | None = None
    """The job, where it is a client of a Spark Connect server."""

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
            remote = connect_url(self._conn_id) if target.is_connect else None
            self._prepare(target, little_waits=target.is_local and little_waits())
            if self.deferrable:
                self._leave(target, place)
            settings = lake.storage_settings()
            for other in others:
                settings = settings.joined(other.storage_settings())
            self.env_vars = {**settings.environment, **(self.env_vars or {})} or None
            storage = hand_over(settings, target, place, self.conf or {}, remote=remote)
            self.application_args = [*arguments(place.uri), *(("--storage", storage) if storage else ())]
            report = self._run_client(place, read) if remote else self._run_job(context, place, read)
            if report is None:
                job = job_of(self._hook) if self._hook else None
                self.log.info("Job %s runs in the cluster; the task waits for its report in the triggerer.", job)
                seconds = self.execution_timeout and self.execution_timeout.total_seconds()
                self._wait_in_triggerer(context, lake, job, time.time() + seconds if seconds else None)
            return report

    def take_report(self, context: Context, lake: CdcLakeHook, event: dict[str, Any], read: Callable[[dict[str, Any]], _Report]) -> _Report:
        """Return the report that a deferred task waited for, or wait on.

        :param event: the trigger's.
        :raises CdcError: as :meth:`submit`.
        :raises AirflowException: when the job ended without a report, or did not end in time.
        """
        if event["status"] != "success":
            raise (AirflowException if event["transient"] else AirflowFailException)(event["message"])
        target = spark_target(self._conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary)
        place, why, job = lake_report(lake, _task_of(context)), event["told"]["why"], event["told"]["job"]
        self._leave(target, place)
        self._hook = self._get_hook()
        if job:
            take_up(self._hook, job)
        if why == "late":
            self.on_kill()
            end = "it is killed." if self._can_ask else "it may still run: the Spark connection names no ResourceManager to kill it."
            raise AirflowException(f"Job {job} left no report within execution_timeout ({self.execution_timeout}); {end}")
        still_runs = why == "ask" and self._still_runs(job, context)
        report = place.read(read)
        if report is None and still_runs:
            self._wait_in_triggerer(context, lake, job, event["told"]["until"])
        if report is None:
            raise AirflowException(f"Job {job} ended and left no report: it did not start, or was killed. See the cluster's log of it.")
        if target.is_kubernetes:
            # On YARN they ran when spark-submit ended.
            self._hook._run_post_submit_commands()
        place.remove()
        return report

    def submit_job(self, context: Context) -> str | None:
        """Submit, where Spark's operator found no job of the try before; what that one may have left is no report of this one."""
        if self._left:
            self._left.remove()
        job: str | None = super().submit_job(context)
        return job

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the job, unless the triggerer does."""
        if self._left is None:
            super().poll_until_complete(external_id, context)
        elif self._hook:
            # It may be the job of the try before, which this hook did not submit.
            take_up(self._hook, external_id)

    def on_kill(self) -> None:
        """Kill spark-submit and everything it started: Spark's hook kills its JVM alone, and the Python driver would go on."""
        if self._client:
            self._client.kill()
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
        return report_in_lake(lake, _task_of(context))

    def _leave(self, target: SparkTarget, place: ReportPlace) -> None:
        """Make spark-submit end when the cluster has taken the job."""
        if target.driver_is_here:
            # The Spark connection decides, and may lead elsewhere in another environment: no error.
            self.log.warning("The driver runs here, as a child of this task: it is not deferred, and keeps the worker's slot.")
            return
        self.conf = conf_to_leave(target, self.conf or {})
        self._left = place
        if target.is_kubernetes:
            self._track_driver_via_k8s_api = True
        elif is_manager_known(self._get_hook()):
            self._yarn_track_via_rm_api = True
        else:
            # Nobody can ask about a job of the try before, and Spark's operator refuses to begin.
            self.durable = False

    def _wait_in_triggerer(self, context: Context, lake: CdcLakeHook, job: str | None, until: float | None) -> NoReturn:
        can_ask = job and self._can_ask
        trigger = CdcReportTrigger(
            poke_interval=self.poke_interval,
            lake_conn_id=lake.conn_id,
            report=report_name(_task_of(context)),
            ask_at=time.time() + _ASK_EVERY if can_ask else None,
            until=until,
            job=job,
            spark_conn_id=self._conn_id if can_ask else None,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    @property
    def _can_ask(self) -> bool:
        """Whether the cluster can be asked about a job that this task left to it, and be told to kill it."""
        return bool(self._track_driver_via_k8s_api or self._yarn_track_via_rm_api)

    def _still_runs(self, job: str, context: Context) -> bool:
        try:
            return bool(self.is_job_active(self.get_job_status(job, context)))
        except Exception as error:  # noqa: BLE001 - a cluster that does not answer says nothing of the job.
            self.log.warning("The cluster does not tell whether job %s still runs: %s", job, error)
            return True

    def _prepare(self, target: SparkTarget, *, little_waits: bool) -> None:
        self.application = self.application or application_of(self.job)
        if target.is_connect:
            self._tell_what_is_the_servers()
            return
        self.conf = conf_for(target, self.conf or {}, jars=self.jars, packages=self.packages, little_waits=little_waits)
        # Their values are in conf now: as arguments of their own they would hide Delta's.
        self.jars = self.packages = None
        self.env_vars = {**environment_for(target), **(self.env_vars or {})} or None
        self._spark_binary = binary_for(target)

    def _tell_what_is_the_servers(self) -> None:
        given = {name: getattr(self, name, None) or getattr(self, f"_{name}", None) for name in _OF_A_SUBMISSION}
        if names := [name for name, value in given.items() if value]:
            # No error: the same Dag may run by spark-submit in another environment.
            self.log.warning("The Spark connection leads to a Spark Connect server, which runs already: without effect are %s.", names)

    def _run_client(self, place: ReportPlace, read: Callable[[dict[str, Any]], _Report]) -> _Report:
        """Run the job as a client of a Spark Connect server and return its report."""
        self._client = ConnectClient(self.log.info)
        code = self._client.run(self.application, self.application_args or (), self.env_vars or {})
        report = place.read(read)
        if report is None:
            told = "\n".join(self._client.last_lines)
            raise AirflowException(f"The job ended with exit code {code} and left no report: it did not start, or was killed.\n{told}")
        if report.ok and code:
            raise AirflowException(f"The job did all it had to and then ended with exit code {code}; a retry finds nothing left to do.")
        return report

    def _run_job(self, context: Context, place: ReportPlace, read: Callable[[dict[str, Any]], _Report]) -> _Report | None:
        """Submit the job and return its report; None where it goes on without this task."""
        if self._left and not self._can_ask:
            self._left.remove()
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
        if report is None and not self._left:
            raise AirflowException(f"spark-submit ended well, but no report is at {place.uri}; is {self.application} the right job?")
        return report

    def _close_pipe(self) -> None:
        submitted = self._hook and self._hook._submit_sp
        if submitted and submitted.stdout:
            submitted.stdout.close()


def _task_of(context: Context) -> str:
    instance = context["ti"]
    return f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.map_index}"


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
