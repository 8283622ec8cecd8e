"""The textbook's way: parse everything, keep each key's last event by ``row_number``, MERGE on the key."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

RECORD = """
value STRUCT<op: STRING, before: STRUCT<id: BIGINT>, after: STRUCT<id: BIGINT, amount: DECIMAL(12,2), name: STRING, city: STRING>,
source: STRUCT<lsn: BIGINT>>
"""


def merge(spark: SparkSession, file: Path, table: Path) -> None:
    """Merge one file of events into the Delta table, which is made where there is none."""
    columns = "id BIGINT, amount DECIMAL(12,2), name STRING, city STRING"
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({columns}) USING delta")
    spark.read.schema(RECORD).json(str(file)).createOrReplaceTempView("events")
    spark.sql(
        """
        CREATE OR REPLACE TEMP VIEW latest AS SELECT * FROM (
            SELECT coalesce(value.after.id, value.before.id) AS key, value.op AS op, value.after.*,
                row_number() OVER (PARTITION BY coalesce(value.after.id, value.before.id) ORDER BY value.source.lsn DESC) AS place
            FROM events) WHERE place = 1
        """
    )
    spark.sql(
        f"""
        MERGE INTO delta.`{table}` AS t USING latest AS s ON t.id = s.key
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET amount = s.amount, name = s.name, city = s.city
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT (id, amount, name, city) VALUES (s.key, s.amount, s.name, s.city)
        """
    )
