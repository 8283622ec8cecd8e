"""spark_minors: which Delta belongs to which Spark, and which Spark a service's release has (``where_it_runs.json``).

Delta's jar is built for one minor version of Spark, and carries it in its name. The data is what docs/reference/where-it-runs.md shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.runtime.layout import found_pyspark, version_of_files

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 runs on."""
_PAGE = "docs/reference/where-it-runs.md"
_NUMBERS = re.compile(r"(\d+)\.(\d+)")
DELTA_ARTIFACT = re.compile(r"delta-spark_(?:(?P<minor>\d+\.\d+)_)?(?P<scala>2\.\d+)[-:](?P<version>\d[\w.]*?)(?:\.jar)?$")
"""Delta's name as a jar or as Maven coordinates; without a minor, of Delta 3 or of the first Delta for Spark 4."""


@dataclass(frozen=True)
class SparkMinor:
    """A minor version of Spark that jobs run on."""

    minor: str
    """Such as ``4.2``."""
    delta: str
    """Maven coordinates of the Delta that is built for it."""
    avro: str
    """Maven coordinates of an Avro reader that runs on it. Not every version of it is published."""
    hadoop: str
    """The version of its Hadoop, and so of the connectors of object stores."""
    gs: str
    """Maven coordinates of the connector of ``gs://``, which Hadoop has since 3.5."""
    newest_java: int | None = None
    """The newest Java that its Hadoop runs on, where a newer one is known not to do."""

    @property
    def packages(self) -> tuple[str, str]:
        """Maven coordinates of all that a job needs besides Spark."""
        return self.delta, self.avro

    def runs_on_java(self, version: int) -> bool:
        """Return whether it runs on a Java of this major version."""
        return version >= OLDEST_JAVA and (self.newest_java is None or version <= self.newest_java)

    @property
    def java(self) -> str:
        """The versions of Java, in words."""
        return f"{OLDEST_JAVA} to {self.newest_java}" if self.newest_java else f"{OLDEST_JAVA} or newer"


@cache
def where_it_runs() -> Mapping[str, Any]:
    """Return the data."""
    return dict(json.loads(Path(__file__).with_name("where_it_runs.json").read_text(encoding="utf-8")))


@cache
def spark_minors() -> Mapping[str, SparkMinor]:
    """Return the minor versions that jobs run on, the oldest first."""
    return {minor: SparkMinor(minor, **facts) for minor, facts in where_it_runs()["spark"].items()}


def newest_minor() -> SparkMinor:
    """Return the newest of them."""
    return list(spark_minors().values())[-1]


def minor_of(spark_version: str) -> SparkMinor | None:
    """Return the minor version of a Spark version, such as ``4.1.3`` or ``4.0.0-amzn-1``; None for one that jobs do not run on."""
    found = _NUMBERS.match(spark_version)
    return spark_minors().get(".".join(found.groups())) if found else None


def needed_minor(spark_version: str, *, of: str) -> SparkMinor:
    """Return the minor version of a Spark version.

    :param of: whose it is, for the error.
    :raises ConfigurationError: for one that jobs do not run on.
    """
    found = minor_of(spark_version)
    if found is None:
        raise ConfigurationError(
            f"{of} has Spark {spark_version}, and jobs run on Spark {', '.join(spark_minors())}.",
            next_step=f"Choose a release with one of these ({_PAGE}); the native engine alone needs no Spark (`--engine native`).",
        )
    return found


def installed_pyspark() -> str | None:
    """Return the version of this environment's pyspark, without importing it: that of its jars; None where there is none."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        pass
    # A Spark of the machine, on PYTHONPATH, has no metadata. The client's files alone have no jars beside them.
    folder = found_pyspark()
    return version_of_files(folder) if folder and (folder / "jars").is_dir() else None


def own_minor() -> SparkMinor:
    """Return the minor version of this environment's pyspark; the newest where there is none: what is submitted elsewhere.

    :raises ConfigurationError: for one that jobs do not run on.
    """
    installed = installed_pyspark()
    return needed_minor(installed, of="This Python environment") if installed else newest_minor()


def release_minor(release: str) -> SparkMinor:
    """Return the minor version of Spark of a service's release, such as ``emr-8.0.0``, ``glue-6.0`` or ``databricks-18.1``.

    :raises ConfigurationError: for a release that is not known, and for one whose Spark jobs do not run on.
    """
    known: Mapping[str, Mapping[str, str]] = where_it_runs()["releases"]
    # AWS writes emr-spark-8.0.0.
    parts = re.split(r"[-.]", release.replace("emr-spark-", "emr-"))
    found = [name for name in known if parts[: len(own := re.split(r"[-.]", name))] == own]
    if not found:
        raise ConfigurationError(
            f"The release {release!r} is not known.",
            next_step=f"Name one of {', '.join(known)}, or a later patch of it; for another one leave `release` out, and give "
            f"`packages` the Delta of its Spark ({_PAGE}).",
        )
    return needed_minor(known[found[0]]["spark"], of=f"The release {release}")
