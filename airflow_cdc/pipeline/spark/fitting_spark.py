"""fitting_spark: refuse a Spark, a Delta or a server that jobs do not run on, at the start and by name.

With a Delta for another minor version of Spark, a job would fail in the middle of a merge with NoSuchMethodError.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pyspark
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.runtime.spark_minors import DELTA_ARTIFACT, SparkMinor, minor_of, needed_minor

_DELTA_CLASS = "io.delta.sql.DeltaSparkSessionExtension"
_SCALA = "2.13"
"""Of every Spark 4."""


def refuse_unfit_driver() -> None:
    """Check the Spark of this process before it is used; starts nothing.

    Otherwise a job would succeed as long as the native engine can do its microbatches alone.

    :raises ConfigurationError: for a minor version of Spark that jobs do not run on.
    """
    needed_minor(pyspark.__version__, of="The driver of this job")


def refuse_unfit(session: SparkSession) -> None:
    """Check the Spark of this process, and the Delta that it has loaded.

    :raises ConfigurationError: for a minor version of Spark that jobs do not run on, and for a Delta that is built for another, or missing.
    """
    minor = needed_minor(session.version, of="The driver of this job")
    jar = _delta_jar(session)
    if jar is None:
        raise ConfigurationError(
            f"Spark {session.version} runs here without Delta: {_DELTA_CLASS} is on no class path.", next_step=_give(minor)
        )
    found = DELTA_ARTIFACT.search(jar)
    # A service's own Delta has another name, and fits its own Spark.
    if found and (found["minor"] not in {None, minor.minor} or found["scala"] != _SCALA or _is_too_old(found, minor)):
        built_for = f"Spark {found['minor']}" if found["minor"] else f"another Spark (Delta {found['version']})"
        raise ConfigurationError(
            f"{jar.rpartition('/')[2]} is built for {built_for} and Scala {found['scala']}; this is Spark {session.version} of {_SCALA}.",
            next_step=_give(minor),
        )


def refuse_other_server(session: SparkSession, where: str) -> None:
    """Check the Spark of a Spark Connect server against its client here.

    :raises ConfigurationError: for a minor version of Spark that jobs do not run on, or another than the client's.
    """
    minor = needed_minor(session.version, of=f"The Spark Connect server {where}")
    if minor_of(pyspark.__version__) != minor:
        raise ConfigurationError(
            f"The Spark Connect server {where} has Spark {session.version}, and its client here is of {pyspark.__version__}.",
            next_step=f'Install "pyspark[connect]=={minor.minor}.*" where the job runs, or ask a server of the client\'s version.',
        )


def _give(minor: SparkMinor) -> str:
    return (
        f"Give the job {minor.delta} and no other Delta: in `packages` of the operator or `spark.jars.packages`; where jars lie in an "
        "image or environment, `python -m airflow_cdc.runtime install` brings the right ones (docs/reference/where-it-runs.md)."
    )


def _is_too_old(found: Any, minor: SparkMinor) -> bool:
    # Delta 3 and 4.0 name no Spark: 3 is of Spark 3.5, 4.0 of Spark 4.0.
    return found["minor"] is None and (found["version"].startswith("3.") or (found["version"].startswith("4.0") and minor.minor != "4.0"))


def _delta_jar(session: SparkSession) -> str | None:
    """Return the URL of the jar that Delta was loaded from; None where it is on no class path."""
    from py4j.protocol import Py4JError

    jvm: Any = session._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loaded = jvm.java.lang.Class.forName(_DELTA_CLASS, False, loader)  # noqa: FBT003 - Java's
        source = loaded.getProtectionDomain().getCodeSource()
        return unquote(str(source.getLocation().toString())) if source else ""
    except Py4JError as error:
        return None if "ClassNotFoundException" in str(error) else ""
