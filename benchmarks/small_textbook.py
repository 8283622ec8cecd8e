"""The textbook's way with small events: parse everything, keep each key's last event by ``row_number``, MERGE on the key."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

COLUMNS = "id BIGINT, amount DECIMAL(12,2), name STRING, city STRING, visits BIGINT, note STRING"
_ROW = "id: BIGINT, amount: DECIMAL(12,2), name: STRING, city: STRING, visits: BIGINT, note: STRING"
_RECORD = f"value STRUCT<op: STRING, before: STRUCT<{_ROW}>, after: STRUCT<{_ROW}>, source: STRUCT<lsn: BIGINT>>"


def merge(spark: SparkSession, file: Path, table: Path) -> None:
    """Merge one file of events into the Delta table, which is made where there is none."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table}` ({COLUMNS}) USING delta")
    spark.read.schema(_RECORD).json(str(file)).createOrReplaceTempView("events")
    spark.sql(
        """
        CREATE OR REPLACE TEMP VIEW latest AS SELECT * FROM (
            SELECT coalesce(value.after.id, value.before.id) AS key, value.op AS op, value.after.*,
                row_number() OVER (PARTITION BY coalesce(value.after.id, value.before.id) ORDER BY value.source.lsn DESC) AS place
            FROM events) WHERE place = 1
        """
    )
    names = [column.split()[0] for column in COLUMNS.split(", ")]
    assigned = ", ".join(f"{name} = s.{name}" for name in names if name != "id")
    values = ", ".join("s.key" if name == "id" else f"s.{name}" for name in names)
    spark.sql(
        f"""
        MERGE INTO delta.`{table}` AS t USING latest AS s ON t.id = s.key
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {assigned}
        WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({", ".join(names)}) VALUES ({values})
        """
    )
