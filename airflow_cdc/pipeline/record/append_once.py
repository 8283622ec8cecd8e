"""Append to one of our own Delta tables, at most once per microbatch."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.pipeline.session import clear_transaction, set_transaction


def append_once(spark: SparkSession, rows: DataFrame, uri: str, *, application: str, version: int) -> None:
    """Append rows under a transaction identifier: a second append of the same version changes nothing.

    :param application: who appends; the version must rise with every append of the same application.
    """
    set_transaction(spark, application=application, version=version)
    try:
        rows.write.format("delta").mode("append").option("mergeSchema", "true").save(uri)
    finally:
        clear_transaction(spark)
