"""Where Spark runs by the Spark connection, and what a submission there needs."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import DEFAULT_SPARK_BINARY, SparkSubmitHook

import airflow_cdc
from airflow_cdc import jobs, runtime
from airflow_cdc.hooks.storage import existing_connection
from airflow_cdc.jobs.die_with_parent import SUBMITTER_VARIABLE
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.runtime import SMALL_JVM, archived_classes
from airflow_cdc.runtime.layout import found_pyspark

CONNECT_TYPE = "spark_connect"
"""Type of the connections that lead to a Spark Connect server."""
CONNECT_SCHEME = "sc://"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LISTS = ("spark.sql.extensions", "spark.jars", "spark.jars.packages")
"""Options whose values are lists: what Delta needs is added to the user's values."""
_MASTERS = re.compile(r"local(\[.*\])?$|yarn|spark://.+|k8s://.+")
_CLASS_PATH = "spark.driver.extraClassPath"


@dataclass(frozen=True)
class SparkTarget:
    """A Spark master and where the driver runs."""

    master: str
    deploy_mode: str
    """``client`` or ``cluster``."""
    binary: str
    """The spark-submit that the connection or the operator names."""

    @property
    def is_local(self) -> bool:
        """True when driver and executors are one process of this machine."""
        return self.master.startswith("local")

    @property
    def is_connect(self) -> bool:
        """True when a Spark Connect server does the work, and the job is its client."""
        return self.master.startswith(CONNECT_SCHEME)

    @property
    def is_kubernetes(self) -> bool:
        """True when Kubernetes runs the job."""
        return self.master.startswith("k8s")

    @property
    def driver_is_here(self) -> bool:
        """True when the driver runs on this machine, as a child of this process."""
        return self.deploy_mode != "cluster"

    @property
    def environment_stays_here(self) -> bool:
        """True when Spark passes spark-submit's variables to no other machine, where JAVA_HOME and the like would be wrong."""
        return self.driver_is_here and not self.master.startswith(("yarn", "k8s"))


def spark_target(conn_id: str, *, deploy_mode: str | None, spark_binary: str | None) -> SparkTarget:
    """Return where a Spark connection leads.

    :raises ConfigurationError: when the connection is missing or unreadable, or names no master that runs Python jobs. Spark's own hook
        treats a missing connection as YARN and logs that at info level only.
    """
    connection = existing_connection(conn_id, 'a connection of type spark, for example {"conn_type": "spark", "host": "local[2]"}')
    if connection.conn_type == CONNECT_TYPE:
        # Without the rest of its URL: a token is a secret.
        host = (connection.host or "").removeprefix(CONNECT_SCHEME).partition("/")[0]
        return SparkTarget(f"{CONNECT_SCHEME}{host}{f':{connection.port}' if connection.port else ''}", "client", "")
    try:
        resolved = SparkSubmitHook(conn_id=conn_id, deploy_mode=deploy_mode, spark_binary=spark_binary)._connection
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        # NameError: k8s:// without the cncf.kubernetes provider. TypeError: an older Spark provider, and a connection without a host.
        raise ConfigurationError(
            f"Spark connection {conn_id} cannot be used: {error}.",
            next_step="Correct the connection, or install the provider of its cluster (apache-airflow-providers-cncf-kubernetes for k8s://).",
        ) from error
    target = SparkTarget(resolved["master"], resolved["deploy_mode"] or "client", resolved["spark_binary"])
    if not _MASTERS.match(target.master):
        raise ConfigurationError(
            f"Spark connection {conn_id}: the master is {target.master!r}.",
            next_step="Set its host to local[n], yarn, spark://host:port or k8s://https://host:port.",
        )
    if target.master.startswith("spark://") and not target.driver_is_here:
        raise ConfigurationError(
            f"Spark connection {conn_id}: a standalone master takes no Python job in cluster deploy mode.",
            next_step="Set its deploy mode to client.",
        )
    return target


def application_of(job: str) -> str:
    """Return the path of one of this package's jobs, by its file name."""
    return str(Path(jobs.__file__).with_name(job))


def binary_for(target: SparkTarget) -> str:
    """Return the spark-submit to call.

    A local master gets the one of this environment's PySpark, so that driver, jars and Python have one version. Elsewhere the machine's own
    takes precedence, and PySpark's is the fallback.

    :raises ConfigurationError: when there is none at all.
    """
    if target.binary != DEFAULT_SPARK_BINARY:
        return target.binary
    on_path, ours = shutil.which(DEFAULT_SPARK_BINARY), _pyspark_home() / "bin" / DEFAULT_SPARK_BINARY
    if ours.is_file() and (target.is_local or not on_path):
        return str(ours)
    if on_path:
        return DEFAULT_SPARK_BINARY
    raise ConfigurationError(
        "There is no spark-submit: it is neither on PATH nor in this environment's PySpark.",
        next_step="Install pyspark beside Airflow, or give the operator spark_binary.",
    )


def _pyspark_home() -> Path:
    return found_pyspark() or Path("/nonexistent")


def conf_for(
    target: SparkTarget, conf: dict[str, Any], *, jars: str | None = None, packages: str | None = None, little_waits: bool = False
) -> dict[str, Any]:
    """Return the user's Spark options, completed with those that Delta and the job need.

    :param jars: value of ``--jars``, which would replace ``spark.jars``.
    :param packages: value of ``--packages``, which would replace ``spark.jars.packages``.
    :param little_waits: the job has little to do.
    """
    defaults: dict[str, Any] = {**runtime.spark_options(), **runtime.DRIVER_OPTIONS}
    given = {**conf}
    if jars:
        given["spark.jars"] = ",".join(filter(None, (jars, given.get("spark.jars"))))
    if packages:
        given["spark.jars.packages"] = ",".join(filter(None, (packages, given.get("spark.jars.packages"))))
    if "delta-spark" in given.get("spark.jars.packages", "") or "delta-spark" in given.get("spark.jars", ""):
        defaults.pop("spark.jars", None)
        defaults.pop("spark.jars.packages", None)
    archived = archived_classes() if target.is_local and little_waits and "spark.jars" in defaults and _CLASS_PATH not in given else {}
    if archived:
        del defaults["spark.jars"]
        defaults |= archived
    if target.is_local:
        # Nobody opens the UI of a job that lives for a minute, and the next job would find its port taken.
        defaults["spark.ui.enabled"] = "false"
    if target.driver_is_here:
        # The job must find this package and its pyspark, whatever python3 is first on PATH.
        defaults["spark.pyspark.driver.python"] = sys.executable
        # Of two equal -D options the JVM takes the last: the user's.
        defaults[_JAVA_OPTIONS] = " ".join(
            filter(None, (_java_options(target, little_waits=little_waits), str(defaults.get(_JAVA_OPTIONS, ""))))
        )
        if _JAVA_OPTIONS in given:
            given[_JAVA_OPTIONS] = f"{defaults[_JAVA_OPTIONS]} {given[_JAVA_OPTIONS]}"
    for name in _LISTS:
        if name in given and name in defaults:
            given[name] = _joined(str(defaults[name]), str(given[name]))
    return {**defaults, **given}


def environment_for(target: SparkTarget) -> dict[str, str]:
    """Return the variables that spark-submit needs besides the process's own."""
    if not target.environment_stays_here:
        return {}
    environment = {**runtime.spark_environment(target.master), SUBMITTER_VARIABLE: str(os.getpid())}
    if not binary_for(target).startswith(environment["SPARK_HOME"]):
        # Another Spark's scripts would start ours.
        del environment["SPARK_HOME"]
    return {**environment, **python_path()}


def python_path() -> dict[str, str]:
    """Return the variable by which a job finds this package in a checkout: a script has only its own folder on the path."""
    root = Path(airflow_cdc.__file__).parents[1]
    if root.name == "site-packages":
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))}


def _java_options(target: SparkTarget, *, little_waits: bool) -> str:
    log4j = f"-Dlog4j2.configurationFile=file:{Path(jobs.__file__).with_name('log4j2.properties')}"
    # Measured on two cores: without the JVM's second compiler a merge of 2 MiB takes 33 CPU seconds instead of 52,
    # one of 200 MiB takes 161 instead of 112.
    return f"{log4j} {SMALL_JVM}" if target.is_local and little_waits else log4j


def _joined(*lists: str) -> str:
    return ",".join(dict.fromkeys(item.strip() for text in lists for item in text.split(",") if item.strip()))
