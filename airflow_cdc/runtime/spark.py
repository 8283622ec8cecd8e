"""Spark's settings for Delta, and the environment that Spark is started in."""

from __future__ import annotations

import sys

from airflow_cdc.runtime.delta_jars import delta_jars
from airflow_cdc.runtime.java_home import require_java_home
from airflow_cdc.runtime.layout import pyspark_folder
from airflow_cdc.runtime.spark_minors import own_minor

DELTA_OPTIONS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
"""Spark settings of a session that reads and writes Delta."""

DRIVER_OPTIONS = {
    # The driver keeps the plans of this many queries; ours are large, and a job over many tables would fill its heap with them.
    "spark.sql.ui.retainedExecutions": "50",
    # Each PySpark call would otherwise record its call site, at a millisecond per column: twice the time to plan a batch.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # One batch needs about as many generated classes as Spark keeps by default; the next would compile and warm up all of them again.
    "spark.sql.codegen.cache.maxEntries": "500",
    # Delta writes a log version by `create` without overwriting. With this option, and Hadoop 3.4.2 or newer, S3A makes that a conditional
    # put: the store itself refuses the second of two writers, unlike S3A's own check beforehand (docs/how-to/object-stores.md).
    "spark.hadoop.fs.s3a.create.performance": "true",
}
"""Spark settings that improve our drivers, wherever they run."""


def spark_options() -> dict[str, str]:
    """Return the Spark settings for Delta and Avro: the installed jars, or the packages to resolve where none are installed.

    :raises ConfigurationError: for a pyspark that jobs do not run on.
    """
    jars = delta_jars()
    return {
        **DELTA_OPTIONS,
        **({"spark.jars": ",".join(map(str, jars))} if jars else {"spark.jars.packages": ",".join(own_minor().packages)}),
    }


def spark_environment(master: str = "local[*]") -> dict[str, str]:
    """Return the environment variables for spark-submit.

    A cluster's nodes have their own addresses and Pythons, and spark-submit passes ``PYSPARK_PYTHON`` on to them. So with a master that is
    not local, only what the submitting machine itself needs is set.

    :param master: Spark's master, such as ``local[2]`` or ``yarn``.
    :raises JavaNotFoundError: when there is no Java to start it with.
    """
    submitting = {"JAVA_HOME": str(require_java_home()), "SPARK_HOME": str(pyspark_folder())}
    if not master.startswith("local"):
        return submitting
    # A laptop's host name may resolve to a changing address, or to none, and Spark would fail to bind to it.
    return {**submitting, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
