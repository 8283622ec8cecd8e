"""Java and the Delta jars; standard library only, for Airflow's side and the pipeline's alike."""

from __future__ import annotations

from airflow_cdc.runtime.class_archive import SMALL_JVM, archive_classes, archived_classes
from airflow_cdc.runtime.connect_server import ServerNotStartedError
from airflow_cdc.runtime.delta_jars import delta_jars
from airflow_cdc.runtime.install import install
from airflow_cdc.runtime.java_home import JavaNotFoundError, installed_java, java_home, require_java_home
from airflow_cdc.runtime.layout import RuntimeInstallError
from airflow_cdc.runtime.spark import DELTA_OPTIONS, DRIVER_OPTIONS, spark_environment, spark_options
from airflow_cdc.runtime.spark_minors import newest_minor, own_minor, release_minor

__all__ = [
    "DELTA_OPTIONS",
    "DRIVER_OPTIONS",
    "SMALL_JVM",
    "JavaNotFoundError",
    "RuntimeInstallError",
    "ServerNotStartedError",
    "archive_classes",
    "archived_classes",
    "delta_jars",
    "install",
    "installed_java",
    "java_home",
    "newest_minor",
    "own_minor",
    "release_minor",
    "require_java_home",
    "spark_environment",
    "spark_options",
]
