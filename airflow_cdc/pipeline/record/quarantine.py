"""Quarantine: records that cannot be merged, with reason, raw text and place."""

from __future__ import annotations

from collections.abc import Collection

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import FILE, LINE, OFFSET, PARTITION, RAW, RAW_KEY, REJECT
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.record.append_once import read_appended
from airflow_cdc.pipeline.spark import sql

QUARANTINE_SCHEMA = (
    "microbatch bigint, reason string, detail string, topic string, partition int, offset bigint, file string, line bigint,"
    " raw string, raw_key string"
)
"""Schema of a flow's quarantine table. ``line`` counts from 1 in ``file``; ``raw`` is the line as archived, with U+FFFD for bytes that are
not UTF-8."""


def quarantined_rows(rejects: DataFrame, *, topic: str, microbatch: int) -> DataFrame:
    """Return rejects, decoded from numbered lines, as :data:`QUARANTINE_SCHEMA`."""
    return rejects.select(
        F.lit(microbatch).cast("bigint").alias("microbatch"),
        F.col(REJECT)["reason"].alias("reason"),
        F.col(REJECT)["detail"].alias("detail"),
        F.lit(topic).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(FILE).alias("file"),
        F.col(LINE).alias("line"),
        # Readers of Parquet other than Spark fail at a string that is not valid UTF-8.
        F.make_valid_utf8(RAW).alias("raw"),
        F.make_valid_utf8(RAW_KEY).alias("raw_key"),
    )


def quarantined_files(spark: SparkSession, uri: str, reasons: Collection[str] = ()) -> frozenset[str]:
    """Return the files with records in a quarantine.

    :param reasons: only for these reasons; empty: for any.
    """
    rows = read_appended(spark, uri)
    if rows is None:
        return frozenset()
    wanted = rows.filter(F.col("reason").isin(*reasons)) if reasons else rows
    return frozenset(row["file"] for row in wanted.select("file").distinct().collect())


def count_replaced(spark: SparkSession, uri: str, microbatch: Microbatch, past: FlowState) -> int:
    """Return the number of quarantined records that a microbatch reads again (:func:`drop_replaced`)."""
    rows = read_appended(spark, uri)
    return 0 if rows is None else rows.filter(_replaced(rows, microbatch, past)).count()


def drop_replaced(spark: SparkSession, uri: str, microbatch: Microbatch, past: FlowState) -> None:
    """Remove the records that earlier microbatches quarantined from files that a microbatch read again as a whole.

    The microbatch has quarantined those that still cannot be merged. Called after its merge and before its commit marker: after a crash
    in between, the next run removes them.

    :param past: the flow's intents.
    """
    rows = read_appended(spark, uri)
    if rows is not None and (replaced := _replaced(rows, microbatch, past)) != "false":
        spark.sql(f"DELETE FROM {sql.delta(uri)} WHERE {replaced}")


def _replaced(rows: DataFrame, microbatch: Microbatch, past: FlowState) -> str:
    """Return the SQL that is true for the quarantined records that a microbatch reads again."""
    whole = [file.path for file in microbatch.files if file.path not in microbatch.parts]
    of_files = f"microbatch < {microbatch.number} AND file IN ({', '.join(map(sql.text, whole)) or 'NULL'})"
    # Two archives of one lake may have files of the same name.
    numbers = [row["microbatch"] for row in rows.filter(of_files).select("microbatch").distinct().collect()]
    ours = [str(number) for number in numbers if (intent := past.intent(number)) and intent.archive == microbatch.archive]
    return f"{of_files} AND microbatch IN ({', '.join(ours)})" if ours else "false"
