"""What Spark is told: the options that make it Delta's, and the environment it is started in."""

from __future__ import annotations

import sys

from airflow_cdc.runtime.delta_jars import AVRO_PACKAGE, DELTA_PACKAGE, delta_jars
from airflow_cdc.runtime.java_home import require_java_home
from airflow_cdc.runtime.layout import pyspark_folder

DRIVER_OPTIONS = {
    # The driver keeps the plans of that many queries; ours are large, and a job over many tables would fill its heap with them.
    "spark.sql.ui.retainedExecutions": "50",
    # Each call of PySpark would otherwise ask for the lines that made it, at a millisecond a column: twice the time to plan a batch.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # One batch asks for about as many generated classes as Spark keeps by default; the next would compile and warm up all of them anew.
    "spark.sql.codegen.cache.maxEntries": "500",
    # Delta writes a version of its log by `create` without overwriting. With this, and Hadoop 3.4.2 or newer, S3A makes that a conditional
    # put: the store itself then refuses the second of two writers, which S3A's own look beforehand does not (docs/how-to/object-stores.md).
    "spark.hadoop.fs.s3a.create.performance": "true",
}
"""Spark settings that a driver of ours is better off with, wherever it runs."""


def spark_options() -> dict[str, str]:
    """Return the Spark settings for Delta and Avro: the installed jars, or where none are installed the packages to resolve."""
    jars = delta_jars()
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        **({"spark.jars": ",".join(map(str, jars))} if jars else {"spark.jars.packages": f"{DELTA_PACKAGE},{AVRO_PACKAGE}"}),
    }


def spark_environment(master: str = "local[*]") -> dict[str, str]:
    """Return the environment variables that spark-submit is started with.

    A cluster's nodes have addresses and Pythons of their own, and spark-submit passes ``PYSPARK_PYTHON`` on to them: with a
    master that is not local only what the submitting machine itself needs is set.

    :param master: Spark's master, such as ``local[2]`` or ``yarn``.
    :raises JavaNotFoundError: when there is no Java to start it with.
    """
    submitting = {"JAVA_HOME": str(require_java_home()), "SPARK_HOME": str(pyspark_folder())}
    if not master.startswith("local"):
        return submitting
    # A laptop's host name may resolve to an address that changes, or to none: Spark would bind to it and fail.
    return {**submitting, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
