"""Quarantine: records that cannot be merged, set aside with reason, raw text and place."""

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
"""Schema of a flow's quarantine table; ``line`` counts from 1 in ``file``, ``raw`` is the line as archived, with U+FFFD for bytes that are
no UTF-8."""


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
        # Readers of Parquet other than Spark fail at a string that is no UTF-8.
        F.make_valid_utf8(RAW).alias("raw"),
        F.make_valid_utf8(RAW_KEY).alias("raw_key"),
    )


def quarantined_files(spark: SparkSession, uri: str, reasons: Collection[str] = ()) -> frozenset[str]:
    """Return the files of which records are in a quarantine.

    :param reasons: only for these reasons; none: for any.
    """
    rows = read_appended(spark, uri)
    if rows is None:
        return frozenset()
    wanted = rows.filter(F.col("reason").isin(*reasons)) if reasons else rows
    return frozenset(row["file"] for row in wanted.select("file").distinct().collect())


def count_replaced(spark: SparkSession, uri: str, microbatch: Microbatch, past: FlowState) -> int:
    """Return how many records the quarantine has of what a microbatch reads again (:func:`drop_replaced`)."""
    rows = read_appended(spark, uri)
    return 0 if rows is None else rows.filter(_replaced(rows, microbatch, past)).count()


def drop_replaced(spark: SparkSession, uri: str, microbatch: Microbatch, past: FlowState) -> None:
    """Remove what earlier microbatches set aside of the files that a microbatch read again, whole: it has set aside what still cannot be
    merged.

    Done when the microbatch is merged, before its commit marker: after a crash in between the next run does it.

    :param past: the flow's intents.
    """
    rows = read_appended(spark, uri)
    if rows is not None and (replaced := _replaced(rows, microbatch, past)) != "false":
        spark.sql(f"DELETE FROM {sql.delta(uri)} WHERE {replaced}")


def _replaced(rows: DataFrame, microbatch: Microbatch, past: FlowState) -> str:
    """Return the SQL that is true for the records of a quarantine that a microbatch reads again."""
    whole = [file.path for file in microbatch.files if file.path not in microbatch.parts]
    of_files = f"microbatch < {microbatch.number} AND file IN ({', '.join(map(sql.text, whole)) or 'NULL'})"
    # Two archives of one lake may have files of one name.
    numbers = [row["microbatch"] for row in rows.filter(of_files).select("microbatch").distinct().collect()]
    ours = [str(number) for number in numbers if (intent := past.intent(number)) and intent.archive == microbatch.archive]
    return f"{of_files} AND microbatch IN ({', '.join(ours)})" if ours else "false"
