"""The textbook's way with small events, into a table that it makes (:mod:`benchmarks.textbook`)."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.textbook import TextbookTable

COLUMNS = "id BIGINT, amount DECIMAL(12,2), name STRING, city STRING, visits BIGINT, note STRING"
_ROW = "id: BIGINT, amount: DECIMAL(12,2), name: STRING, city: STRING, visits: BIGINT, note: STRING"
_TABLE = TextbookTable(
    record=f"value STRUCT<op: STRING, before: STRUCT<{_ROW}>, after: STRUCT<{_ROW}>, source: STRUCT<lsn: BIGINT>>",
    key="coalesce(value.after.id, value.before.id)",
    newest_first="value.source.lsn DESC",
    names=[column.split()[0] for column in COLUMNS.split(", ")],
)


def merge(spark: SparkSession, file: Path, table: Path) -> None:
    """Merge one file of events into the Delta table, which is made where there is none."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({COLUMNS}) USING delta")
    _TABLE.merge(spark, [str(file)], table)
