"""Reads a lake's tables and quarantine when told to, in one Spark session that starts while Airflow does."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_cdc.demo.worker import serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER = "local[2]"
_OPTIONS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Compiling a plan costs more than running it over a handful of rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def read_lake(order: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of flows, and the quarantined records of all."""
    from airflow_cdc.console import plain
    from airflow_cdc.pipeline.inspect_lake import read_quarantine, read_rows

    spark = _session()
    rows = {flow: plain(read_rows(spark, order["lake"], flow).rows) for flow in order["flows"]}
    return {"rows": rows, "quarantine": plain(read_quarantine(spark, order["lake"]))}


@cache
def _session() -> SparkSession:
    from airflow_cdc import runtime
    from airflow_cdc.pipeline.session import start_session

    os.environ.update(runtime.spark_environment(_MASTER))
    # A session that lives for a minute gains nothing from the JVM's second compiler.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=200m"
    return start_session("airflow-cdc demo", master=_MASTER, options=_OPTIONS)


if __name__ == "__main__":
    _session()
    serve(read_lake)
