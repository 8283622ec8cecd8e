"""CdcSubmitOperator: base of the operators that submit a job of this package and read its report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, conf

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.errors import CdcError, storage_refusal
from airflow_cdc.model.job_argument import as_argument
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.child_processes import processes_of
from airflow_cdc.operators.connect_client import ConnectClient, connect_url, without_effect
from airflow_cdc.operators.hand_over import hand_over, run_name
from airflow_cdc.operators.job_report import Outcome, ReportPlace, lake_report, new_report_name, report_on_this_machine
from airflow_cdc.operators.left_job import arguments_to_follow, conf_to_leave, is_manager_known, job_of, made_auth, take_up, why_not_left
from airflow_cdc.operators.observed import ObservedOperator
from airflow_cdc.operators.spark_target import SparkTarget, application_of, binary_for, conf_for, environment_for, spark_target
from airflow_cdc.operators.submitted_files import check_files
from airflow_cdc.triggers.report import CdcReportTrigger

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import Context
    from requests.auth import AuthBase

_ASK_EVERY = 600.0
"""Seconds after which a task that waits for a report asks the cluster whether the job still runs."""
_LONGEST_UNASKED = timedelta(days=7)
"""Longest wait without an ``execution_timeout`` where the cluster cannot be asked about the job; Airflow's sensors wait as long."""
_REPORT_KEY = "cdc_report"
"""Key of the stored job's report in the task state store."""
_RESULT = "return_value"
"""Key of the task's return value in XCom."""
_GONE = "NotFound"
"""State of a job that the cluster no longer knows."""


class CdcSubmitOperator(ObservedOperator, SparkSubmitOperator):
    """Submit a job of this package through the Spark connection, wait for it, and read its report.

    A retry takes up a job that the earlier try left running in the cluster, or reads the report of one that has ended since, if Airflow
    keeps the job's name (3.3 on) and the cluster can be asked. Once its report is taken, a job is finished: clearing the task submits
    another.

    :param conn_id: Spark connection. It must exist. One of type ``spark_connect`` makes the job a client of that server, in a Python
        process of the task's own: nothing is submitted.
    :param application: another job with the same arguments. (templated)
    :param deferrable: where the driver runs in a cluster (YARN, Kubernetes), leave the job to it and wait for its report in the triggerer;
        ``execution_timeout`` bounds the wait. Elsewhere the task waits in its slot and logs so.
    :param poke_interval: seconds between two looks for the report.
    :param yarn_rm_auth: authentication at YARN's ResourceManager, or the import path of a callable that makes it. The triggerer, which
        kills the job when a user ends a deferred task, can use only an import path.
    :param kwargs: other arguments of ``SparkSubmitOperator``; ``conf`` overrides the options that Delta needs.
    """

    job = ""
    """File name of the job in :mod:`airflow_cdc.jobs`."""
    lake_conn_id: str
    """Connection of the lake, which holds the report while the driver runs elsewhere."""
    _place: ReportPlace | None = None
    """Place of the job's report."""
    _is_left = False
    """Whether the job continues without this task."""
    _client: ConnectClient | None = None
    """The job as a client of a Spark Connect server."""

    def __init__(
        self,
        *,
        conn_id: str = "spark_default",
        application: str = "",
        name: str = "airflow-cdc {{ ti.dag_id }}.{{ ti.task_id }}",
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poke_interval: float = 30.0,
        yarn_rm_auth: AuthBase | str | None = None,
        **kwargs: Any,
    ) -> None:
        self._rm_auth_path = yarn_rm_auth if isinstance(yarn_rm_auth, str) else None
        kwargs = arguments_to_follow(self, kwargs, None if isinstance(yarn_rm_auth, str) else yarn_rm_auth)
        super().__init__(application=application, conn_id=conn_id, name=name, **kwargs)
        self.deferrable = deferrable
        self.poke_interval = poke_interval

    def parse(self, document: dict[str, Any]) -> Any:
        """Return the job's report from its JSON."""
        raise NotImplementedError

    def outcome(self, context: Context, lake: CdcLakeHook, report: Any) -> Outcome:
        """Return the task's outcome for a report. A retry may call it again, until the task has ended.

        :param report: result of :meth:`parse`.
        """
        raise NotImplementedError

    def submit(
        self,
        context: Context,
        lake: CdcLakeHook,
        arguments: Callable[[str], Iterable[str]],
        *,
        others: Sequence[CdcStorageHook] = (),
        little_waits: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any]:
        """Submit the job, wait for it, and turn its report into the task's outcome.

        :param arguments: the job's arguments, given the URI of its report.
        :param others: further stores that the job reaches; it gets the credentials of all.
        :param little_waits: whether the job has little to do; called only where that makes a difference.
        :raises CdcError: when the Spark connection is unusable, or the report is invalid.
        :raises AirflowException: when the job left no report, or failed after it, and what the outcome raises.
        """
        target = spark_target(self._conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary)
        remote = connect_url(self._conn_id) if target.is_connect else None
        self._prepare(target, little_waits=target.is_local and little_waits())
        if self.deferrable:
            self._leave(target)
        with report_on_this_machine() if target.driver_is_here else nullcontext(self._place_in(lake, context)) as self._place:
            settings = lake.storage_settings()
            for other in others:
                settings = settings.joined(other.storage_settings())
            self.env_vars = {**settings.environment, **(self.env_vars or {})} or None
            storage = hand_over(settings, target, self._place, self.conf or {}, remote=remote)
            self.application_args = [as_argument(text) for text in (*arguments(self._place.uri), *run_name(context), *storage)]
            report = self._run_client(self._place) if remote else self._run_job(context, self._place)
            if report is None:
                job = job_of(self._hook) if self._hook else None
                self.log.info("Job %s runs in the cluster; the task waits for its report in the triggerer.", job)
                seconds = self.execution_timeout and self.execution_timeout.total_seconds()
                self._wait_in_triggerer(lake, job, time.time() + seconds if seconds else None)
            return self._settle(context, lake, report)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Resume after the trigger fired, as :meth:`execute` does when the job has ended."""
        with as_airflow_errors():
            lake = CdcLakeHook(self.lake_conn_id)
            return self._settle(context, lake, self._report_of(event, context, lake))

    def _settle(self, context: Context, lake: CdcLakeHook, report: Any) -> dict[str, Any]:
        """Turn the report into the task's end.

        The report is removed last, after everything that can fail. Until then a retry finds the finished job's report and does all of this
        again. A task that dies after the removal finds a job without a report and submits another, which has nothing left to do.
        """
        self.report = report
        outcome = self.outcome(context, lake, report)
        if outcome.error and self.do_xcom_push:
            # Airflow keeps no result of a failed or skipped task.
            context["ti"].xcom_push(_RESULT, outcome.result)
        if self._place:
            self._place.remove()
        self.reported(lake, report)
        if outcome.error:
            raise outcome.error
        return outcome.result

    def _report_of(self, event: dict[str, Any], context: Context, lake: CdcLakeHook) -> Any:
        """Return the report that a deferred task waited for, or defer again.

        :raises AirflowException: when the job ended without a report, did not end in time, or its report cannot be read.
        """
        found = event["found"]
        why, job, until = found["why"], found["job"], found["until"]
        target = spark_target(self._conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary)
        self._leave(target)
        self._hook = self._get_hook()
        if job:
            take_up(self._hook, job)
        if event["status"] != "success":
            self.log.warning("The triggerer cannot look for the report of job %s: %s", job, event["message"])
        # Asked before the look: a job that ends in between has its report there.
        may_run = why != "report" and self._may_run(job, context)
        report = self._read(lake, found, waits=may_run)
        if report is None and may_run:
            if why == "late" or (until is not None and time.time() >= until):
                bound = f"execution_timeout ({self.execution_timeout})" if self.execution_timeout else f"{_LONGEST_UNASKED.days} days"
                raise self._given_up(job, f"Job {job} left no report within {bound}")
            self._wait_in_triggerer(lake, job, until)
        if report is None:
            raise AirflowException(f"Job {job} ended and left no report: it did not start, or was killed. See the cluster's log of it.")
        if target.is_kubernetes:
            # On YARN these commands ran when spark-submit ended.
            self._hook._run_post_submit_commands()
        return report

    def _read(self, lake: CdcLakeHook, found: dict[str, Any], *, waits: bool) -> Any:
        """Return the report that a trigger announced; None where there is none, or where it cannot be read now and the task may wait on."""
        try:
            self._place = lake_report(lake, found["report"])
            return self._place.read(self.parse)
        except Exception as error:
            refused = error if isinstance(error, CdcError) else storage_refusal(error)
            terminal = refused is not None and not refused.transient
            if waits and found["why"] == "ask" and not terminal and self._place:
                # The triggerer limits how long that may last.
                self.log.warning("The report of job %s cannot be looked for now: %s", found["job"], error)
                return None
            raise self._given_up(found["job"], f"The report of job {found['job']} cannot be read: {error}", terminal=terminal) from error

    def _given_up(self, job: str | None, problem: str, *, terminal: bool = False) -> AirflowException:
        """Kill a job that is no longer awaited, and return the error: without retries where a retry would run beside the job."""
        if self._can_ask:
            self.on_kill()
            return (AirflowFailException if terminal else AirflowException)(f"{problem}; it is killed.")
        return AirflowFailException(
            f"{problem}; it may still run: the Spark connection names no ResourceManager to kill it. Next step: end it by hand "
            f"(yarn application -kill {job}), then clear the task; a retry would run beside it."
        )

    def submit_job(self, context: Context) -> str | None:
        """Submit a job where none is taken up; the leftovers of an earlier job are removed first."""
        if self.durable and (store := context.get("task_state_store")) is not None:
            # A cached pod state would be taken for the next pod's.
            for key in (self.external_id_key, self._K8S_DRIVER_STATUS_KEY):
                store.delete(key)
        if self._place:
            self._place.remove()
        job: str | None = super().submit_job(context)
        return job

    def get_job_status(self, external_id: Any, context: Context) -> str:
        """Return the cluster's name for the state of a job."""
        try:
            return str(super().get_job_status(external_id, context))
        except RuntimeError as error:
            # YARN forgets applications that ended long ago, and the provider reports that as an error: each clear would fail.
            if "HTTP 404" not in str(error):
                raise
            return _GONE

    def is_job_succeeded(self, status: str) -> bool:
        """Return whether a job of an earlier try ended and its report is there; otherwise another job is submitted.

        Airflow's task state store outlives the task's success: the report of the job that it names has then been taken.
        """
        ended = status == _GONE or super().is_job_succeeded(status)
        return bool(ended and self._place and self._place.is_there)

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Wait for the job, unless the triggerer waits for it."""
        if not self._is_left:
            super().poll_until_complete(external_id, context)
        elif self._hook:
            # It may be the earlier try's job, which this hook did not submit.
            take_up(self._hook, external_id)

    def on_kill(self) -> None:
        """Kill spark-submit and all its children: Spark's hook kills the JVM alone, and the Python driver would go on."""
        if self._client:
            self._client.kill()
        if self._hook is None:
            return
        started = processes_of(self._hook)
        super().on_kill()
        for process in started:
            with contextlib.suppress(Exception):
                process.kill()

    def _get_hook(self) -> SparkSubmitHook:
        if self._rm_auth_path and self._yarn_rm_auth is None:
            self._yarn_rm_auth = made_auth(self._rm_auth_path)
        return super()._get_hook()

    def _place_in(self, lake: CdcLakeHook, context: Context) -> ReportPlace:
        """Return the report place of the next submission, or of an earlier try's job where one may be taken up."""
        store = context.get("task_state_store") if self.durable and self._can_ask else None
        known = store.get(_REPORT_KEY) if store is not None else None
        name = str(known or new_report_name())
        if store is not None and not known:
            store.set(_REPORT_KEY, name)
        return lake_report(lake, name)

    def _leave(self, target: SparkTarget) -> None:
        """Make spark-submit end once the cluster has accepted the job."""
        if why := why_not_left(target):
            # The Spark connection decides, and may differ in another environment: not an error.
            self.log.warning("%s: it is not deferred, and keeps the worker's slot.", why)
            return
        self.conf = conf_to_leave(target, self.conf or {})
        self._is_left = True
        if target.is_kubernetes:
            self._track_driver_via_k8s_api = True
        elif is_manager_known(self._get_hook()):
            self._yarn_track_via_rm_api = True
        else:
            # The cluster cannot be asked about an earlier try's job, and Spark's operator would refuse to start.
            self.durable = False

    def _wait_in_triggerer(self, lake: CdcLakeHook, job: str | None, until: float | None) -> NoReturn:
        assert self._place
        can_ask = job and self._can_ask
        if until is None and not can_ask:
            until = time.time() + _LONGEST_UNASKED.total_seconds()
        has_object = self._yarn_rm_auth is not None and not self._rm_auth_path
        if can_ask and has_object:
            self.log.warning("A user who ends the waiting task does not end job %s: yarn_rm_auth is no import path.", job)
        trigger = CdcReportTrigger(
            poke_interval=self.poke_interval,
            lake_conn_id=lake.conn_id,
            report=self._place.name,
            ask_at=time.time() + _ASK_EVERY if can_ask else None,
            until=until,
            job=job,
            spark_conn_id=self._conn_id if can_ask and not has_object else None,
            keytab=self.keytab,
            principal=self.principal,
            rm_auth=self._rm_auth_path,
        )
        self.defer(trigger=trigger, method_name="execute_complete")

    @property
    def _can_ask(self) -> bool:
        """Whether the cluster can be asked about a job left to it, and can kill it."""
        return bool(self._track_driver_via_k8s_api or self._yarn_track_via_rm_api)

    def _may_run(self, job: str | None, context: Context) -> bool:
        if not (job and self._can_ask):
            return True
        try:
            return bool(self.is_job_active(self.get_job_status(job, context)))
        except Exception as error:  # noqa: BLE001 - a cluster that does not answer proves nothing about the job.
            self.log.warning("The cluster does not answer whether job %s still runs: %s", job, error)
            return True

    def _prepare(self, target: SparkTarget, *, little_waits: bool) -> None:
        self.application = self.application or application_of(self.job)
        if target.is_connect:
            if names := without_effect(self):
                # Not an error: the same Dag may run by spark-submit in another environment.
                self.log.warning("The Spark connection leads to a Spark Connect server, which runs already: without effect are %s.", names)
            return
        self.conf = conf_for(target, self.conf or {}, jars=self.jars, packages=self.packages, little_waits=little_waits)
        # Their values are in conf now; as arguments they would hide Delta's.
        self.jars = self.packages = None
        self.env_vars = {**environment_for(target), **(self.env_vars or {})} or None
        self._spark_binary = binary_for(target)
        given = {"application": self.application, "py_files": self.py_files, "files": self.files, "archives": self._archives}
        check_files(target, given, self.conf)

    def _run_client(self, place: ReportPlace) -> Any:
        """Run the job as a client of a Spark Connect server and return its report."""
        self._client = ConnectClient(self.log.info)
        code = self._client.run(self.application, self.application_args or (), self.env_vars or {})
        report = place.read(self.parse)
        if report is None:
            lines = "\n".join(self._client.last_lines)
            raise AirflowException(f"The job ended with exit code {code} and left no report: it did not start, or was killed.\n{lines}")
        if report.ok and code:
            raise AirflowException(f"The job did all it had to and then ended with exit code {code}; a retry finds nothing left to do.")
        return report

    def _run_job(self, context: Context, place: ReportPlace) -> Any:
        """Submit the job and return its report; None where it continues without this task."""
        try:
            SparkSubmitOperator.execute(self, context)
        except Exception as error:
            # spark-submit's error shows the end of a log; the job's own cause is in the report.
            report = place.read(self.parse)
            if report is None and isinstance(error, ValueError):
                # Spark's hook and operator refuse conflicting settings; a retry would not change them.
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
        report = place.read(self.parse)
        if report is None and not self._is_left:
            raise AirflowException(f"spark-submit ended well, but no report is at {place.uri}; is {self.application} the right job?")
        return report

    def _close_pipe(self) -> None:
        submitted = self._hook and self._hook._submit_sp
        if submitted and submitted.stdout:
            submitted.stdout.close()
