"""The page "Where it runs", made of ``airflow_cdc/runtime/where_it_runs.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reference_docstrings import table

from airflow_cdc.runtime.spark_minors import minor_of, spark_minors, where_it_runs

LEAD = (
    "Reference: the versions of Spark, Delta, Java, Python and Airflow that jobs run with, and the releases of services that have them. "
    "The code reads the same data: it chooses Delta by it, and refuses at the start what is not in it."
)


_ON_SPARK = """\
Scala is 2.13. Delta's jar is built for one minor version of Spark, and a job refuses another at its start. With Hadoop before 3.4.2, which
Spark 4.0 has, S3A does not make Delta's commits conditional puts: keep other Spark writers off tables on S3 there
([object stores](../how-to/object-stores.md)). Hadoop before 3.5 has no connector of its own for `gs://`; the one that errors name was not
tested. Spark 3.5 is refused, as tried with 3.5.8: functions that jobs use, and the type VARIANT, are missing there
([ADR 31](../adr/0031-one-wheel-for-three-minors-of-spark.md))."""
_ON_RELEASES = """\
Give the left column to `release` of `CdcJob` ([run on your Spark service](../how-to/run-on-your-spark-service.md)), with the patch or
without: `emr-8.0.0`, `glue-6.0`."""
_ON_AIRFLOW = """\
## Airflow

Airflow 3.1 to 3.3. The wheel installs under the constraints of 3.1.7, 3.2.1 and 3.3.1, and changes none of the packages that they pin
(`make test-install`). What the Spark provider of an older Airflow cannot do:
[Airflow versions](../how-to/airflow-versions.md#constraints)."""


def where_parts() -> Iterator[str]:
    """Yield the sections of the page."""
    data = where_it_runs()
    yield "## Spark\n\n" + table(("Spark", "Delta", "Avro reader", "Hadoop", "Java"), map(_spark_row, spark_minors()))
    yield _ON_SPARK
    yield "## Tested here\n\n" + table(("what", "by"), ((each["what"], each["by"]) for each in data["tested"]))
    yield f"## Releases of services\n\nBy their own documentation, as of {data['checked']}; none was run here. {_ON_RELEASES}"
    columns = ("release", "Spark", "its Delta", "Python", "Java", "jobs run")
    yield table(columns, (_release_row(name, facts) for name, facts in data["releases"].items()))
    yield _ON_AIRFLOW


def _spark_row(minor: str) -> tuple[str, ...]:
    facts = spark_minors()[minor]
    return minor, f"`{facts.delta}`", f"`{facts.avro}`", facts.hadoop, facts.java


def _release_row(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    runs = "by documentation" if minor_of(facts["spark"]) else "no: the native engine only"
    return f"`{name}`", facts["spark"], facts["delta"], facts.get("python", "–"), facts.get("java", "–"), runs
