"""Quarantine: records that cannot be merged, set aside with reason, raw text and place."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import FILE, LINE, OFFSET, PARTITION, RAW, RAW_KEY, REJECT

QUARANTINE_SCHEMA = (
    "microbatch bigint, reason string, detail string, topic string, partition int, offset bigint, file string, line bigint,"
    " raw string, raw_key string"
)
"""Schema of a flow's quarantine table; ``line`` counts from 1 in ``file``, ``raw`` is the line as archived."""


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
        F.col(RAW).alias("raw"),
        F.col(RAW_KEY).alias("raw_key"),
    )
