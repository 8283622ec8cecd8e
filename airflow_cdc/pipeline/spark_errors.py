"""SPARK_ERRORS: the errors by which Spark says that it failed.

PySpark gives what Spark's analysis refuses errors of its own; a job that failed arrives in py4j's, with Java's as its cause.
"""

from __future__ import annotations

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JJavaError)
