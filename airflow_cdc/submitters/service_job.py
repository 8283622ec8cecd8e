"""ServiceJob: a job of this package in the spelling of services that Airflow's Spark provider does not reach."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.job_argument import ALL_ARGUMENTS
from airflow_cdc.runtime import DELTA_OPTIONS, DRIVER_OPTIONS, newest_minor, release_minor
from airflow_cdc.runtime.spark_minors import SparkMinor, needed_minor
from airflow_cdc.submitters.job_arguments import JobArguments, NamedArguments

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_EXTENSIONS = "spark.sql.extensions"
_SECRET = re.compile(r"spark\.hadoop\.fs\.(?!.*provider).*(secret|password|token|(access|account|private)[._]?key)", re.IGNORECASE)
"""Hadoop's settings whose values are credentials; the name of what provides them is none."""
_WORD = re.compile(r"[^\s'\"\\]+")


@dataclass(frozen=True, kw_only=True)
class ServiceJob:
    """A job of another service: its arguments, packages and files, in the spelling of each.

    Each method returns what a templated field of the service's own operator takes. The arguments are made when Airflow renders that
    field, by the connections of the environment in which the task runs; parsing a Dag file looks nothing up. The job writes its report
    into the lake, where an operator of :mod:`airflow_cdc.operators.report` takes it.

    The job reaches its stores by the identity that the service gives it. A storage connection with keys is refused, and so are keys in
    ``conf``: arguments and settings are shown in the service's pages and in Airflow's.

    :raises ConfigurationError: where ``conf`` holds a credential, and for a release whose Spark jobs do not run on.
    """

    application: str
    """URI of the job's file of :mod:`airflow_cdc.jobs` where the driver finds it; ``local:///…`` in an image. (templated)"""
    lake_conn_id: str = CdcLakeHook.default_conn_name
    """Connection of the lake. (templated)"""
    tables: str | Sequence[str] | None = None
    """Globs of flow names, as a sequence or one text with commas; none: every flow. (templated)"""
    flows_file: str | None = None
    """Path or URI of a flows file where the driver runs, or its content as JSON. (templated)"""
    py_files: Sequence[str] = ()
    """URIs of this package's wheel and of other Python files; none: the image or cluster has them. (templated)"""
    jars: Sequence[str] = ()
    """URIs of jars, Delta's among them. (templated)"""
    packages: Sequence[str] | None = None
    """Maven coordinates; none: those of Delta and of Spark's Avro reader, unless jars are named; empty: the image or cluster has them.
    (templated)"""
    release: str | None = None
    """The service's release, such as ``emr-8.0.0`` or ``dataproc-3.0``, whose Spark decides which Delta that is
    (docs/reference/where-it-runs.md); none: Delta for the newest Spark."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's options; they override those that Delta and the job need. (templated)"""

    def __post_init__(self) -> None:
        self._minor()
        if secrets := [name for name in self.conf if _SECRET.match(name)]:
            raise ConfigurationError(
                f"conf sets {secrets[0]}, and Spark's options are shown in the service's pages and in Airflow's rendered fields.",
                next_step="Take it out, and give the job an identity of its own: the service's execution role, service account or instance "
                "profile (docs/how-to/run-on-your-spark-service.md#credentials).",
            )

    def stores(self) -> Sequence[CdcStorageHook]:
        """Return the stores that the job reaches."""
        return [CdcLakeHook(self.lake_conn_id)]

    def asked(self, context: Context, report: str) -> Iterable[str]:
        """Return the job's own arguments, not encoded; called on the job with its fields rendered.

        :param report: URI at which the job writes its report.
        :raises ConfigurationError: for what the job would refuse.
        """
        raise NotImplementedError

    def emr_serverless(self) -> dict[str, Any]:
        """Return the ``job_driver`` of ``EmrServerlessStartJobOperator``.

        :raises ConfigurationError: where an option cannot stand in the one text that EMR Serverless divides at blanks.
        """
        words = self._submit_words()
        if unfit := [word for word in words if not _WORD.fullmatch(word)]:
            raise ConfigurationError(
                f"EMR Serverless divides sparkSubmitParameters at blanks, and {unfit[0]!r} holds a blank, a quote or a backslash.",
                next_step="Set that option in configuration_overrides of the operator: classification spark-defaults.",
            )
        arguments = JobArguments(self, "EMR Serverless")
        given = {"entryPoint": self.application, "entryPointArguments": arguments, "sparkSubmitParameters": " ".join(words)}
        return {"sparkSubmit": given}

    def emr_step(self, name: str = "airflow-cdc") -> dict[str, Any]:
        """Return one of the ``steps`` of ``EmrAddStepsOperator``: spark-submit on the cluster, its driver in YARN.

        :param name: of the step.
        """
        before = ("spark-submit", "--deploy-mode", "cluster", *self._submit_words(), self.application)
        step = {"Jar": "command-runner.jar", "Args": JobArguments(self, "EMR", before)}
        # A failed flow is no reason to end the cluster.
        return {"Name": name, "ActionOnFailure": "CONTINUE", "HadoopJarStep": step}

    def dataproc(self, cluster_name: str) -> dict[str, Any]:
        """Return the ``job`` of ``DataprocSubmitJobOperator``.

        :param cluster_name: of the cluster that runs it. (templated)
        """
        packages = ",".join(self._packages(self._minor()))
        job = {
            "main_python_file_uri": self.application,
            "args": JobArguments(self, "Dataproc"),
            "python_file_uris": list(self.py_files),
            "jar_file_uris": list(self.jars),
            "properties": {**self._options(), **({"spark.jars.packages": packages} if packages else {})},
        }
        return {"placement": {"cluster_name": cluster_name}, "pyspark_job": job}

    def glue(self, script_args: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return ``script_location`` and ``script_args`` of ``GlueJobOperator``. Delta is Glue's own, unless jars are named.

        Glue takes no Maven coordinates, and adds its own arguments to those of the job.

        :param script_args: other parameters of Glue's, such as ``--additional-python-modules``. (templated)
        """
        options = " --conf ".join(f"{name}={value}" for name, value in self._options().items())
        files = {"--extra-py-files": ",".join(self.py_files), "--extra-jars": ",".join(self.jars)}
        given = {name: value for name, value in files.items() if value} | ({} if self.jars else {"--datalake-formats": "delta"})
        arguments = {ALL_ARGUMENTS: NamedArguments(self, "AWS Glue"), "--conf": options, **given, **(script_args or {})}
        return {"script_location": self.application, "script_args": arguments}

    def databricks(self, *, task_key: str = "merge", new_cluster: Mapping[str, Any] | None = None, **task: Any) -> dict[str, Any]:
        """Return one of the ``tasks`` of ``DatabricksSubmitRunOperator``. Delta is Databricks's own, and none of ours is added.

        :param task_key: name of the task within the run.
        :param new_cluster: the cluster that is made for the run; its ``spark_conf`` overrides the job's.
        :param task: other fields of the task, such as ``existing_cluster_id``, to whose options nothing is added.
        """
        if new_cluster is not None:
            options = {**DRIVER_OPTIONS, **self.conf, **new_cluster.get("spark_conf", {})}
            task["new_cluster"] = {**new_cluster, "spark_conf": options}
        libraries = [
            *({"whl": uri} for uri in self.py_files),
            *({"jar": uri} for uri in self.jars),
            *({"maven": {"coordinates": package}} for package in self.packages or ()),
            *task.pop("libraries", ()),
        ]
        python = {"python_file": self.application, "parameters": JobArguments(self, "Databricks")}
        return {"task_key": task_key, "spark_python_task": python, "libraries": libraries, **task}

    def spark_application(
        self, *, image: str, driver: Mapping[str, Any], executor: Mapping[str, Any], spark_version: str = "4.2.0", **spec: Any
    ) -> dict[str, Any]:
        """Return the ``template_spec`` of ``SparkKubernetesOperator``: a ``SparkApplication`` of the Kubeflow Spark operator.

        :param image: the image of driver and executors.
        :param driver: the driver's pod: ``cores``, ``memory``, ``serviceAccount`` and the like.
        :param executor: the executors' pods, with ``instances``.
        :param spark_version: of the image; Delta for it is added.
        :param spec: other fields of the specification.
        :raises ConfigurationError: for a Spark that jobs do not run on.
        """
        # Airflow retries; another driver beside a try of its own would be another job.
        never = {"restartPolicy": {"type": "Never"}}
        packages = self._packages(needed_minor(spark_version, of="The image"))
        dependencies = {"packages": packages, "jars": list(self.jars), "pyFiles": list(self.py_files)}
        ours = {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "sparkVersion": spark_version,
            "image": image,
            "mainApplicationFile": self.application,
            "arguments": JobArguments(self, "Kubernetes"),
            "deps": {name: found for name, found in dependencies.items() if found},
            "sparkConf": self._options(),
            "driver": dict(driver),
            "executor": dict(executor),
        }
        return {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {},
            "spec": {**never, **ours, **spec},
        }

    def _minor(self) -> SparkMinor:
        return release_minor(self.release) if self.release else newest_minor()

    def _packages(self, minor: SparkMinor) -> list[str]:
        if self.packages is not None:
            return list(self.packages)
        return [] if self.jars else list(minor.packages)

    def _options(self) -> dict[str, str]:
        given = {name: str(value) for name, value in self.conf.items()}
        if more := given.get(_EXTENSIONS):
            given[_EXTENSIONS] = ",".join(dict.fromkeys((DELTA_OPTIONS[_EXTENSIONS], *more.split(","))))
        return {**DELTA_OPTIONS, **DRIVER_OPTIONS, **given}

    def _submit_words(self) -> list[str]:
        """Return spark-submit's options as its command line has them."""
        words = [word for name, value in self._options().items() for word in ("--conf", f"{name}={value}")]
        for option, values in (("--packages", self._packages(self._minor())), ("--jars", self.jars), ("--py-files", self.py_files)):
            if values:
                words += [option, ",".join(values)]
        return words
