"""Reads a lake's tables and quarantine when told to, in one Spark session."""

from __future__ import annotations

import os
from typing import Any

from airflow_cdc.demo.worker import serve

_MASTER = "local[2]"


def read_lake(order: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of flows, and the quarantined records of all."""
    from airflow_cdc import runtime
    from airflow_cdc.console import plain
    from airflow_cdc.pipeline.inspect_lake import read_quarantine, read_rows
    from airflow_cdc.pipeline.session import start_session

    os.environ.update(runtime.spark_environment(_MASTER))
    # A session that lives for a minute gains nothing from the JVM's second compiler.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    spark = start_session("airflow-cdc demo", master=_MASTER, options={"spark.sql.shuffle.partitions": "1"})
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "1")
    rows = {flow: plain(read_rows(spark, order["lake"], flow).rows) for flow in order["flows"]}
    return {"rows": rows, "quarantine": plain(read_quarantine(spark, order["lake"]))}


if __name__ == "__main__":
    serve(read_lake)
