"""Find the offsets that a file skips: a second read, only of files whose record count shows that there are any."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.completeness import MOST_RUNS
from airflow_cdc.model.archive.survey import OffsetHoles
from airflow_cdc.model.columns import FILE, RAW
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines

_GROUP = (FILE, "topic", "partition")


def find_holes(spark: SparkSession, archive: str, files: Sequence[ArchivedFile]) -> tuple[OffsetHoles, ...]:
    """Return the holes between the offsets of each file, topic and partition; at most :data:`MOST_RUNS` each, the largest.

    Lines whose topic, partition or offset cannot be read are left out.
    """
    if not files:
        return ()
    lines = read_lines(spark, archive, files).selectExpr(FILE, f"from_json({RAW}, 'topic STRING, partition STRING, offset STRING') AS line")
    records = lines.selectExpr(
        FILE,
        "line.topic AS topic",
        f"coalesce(try_cast(line.partition AS INT), {file_literal(files, 'partition', 'INT')}) AS partition",
        "try_cast(line.`offset` AS BIGINT) AS `offset`",
    ).dropna()
    previous = F.lag("offset").over(Window.partitionBy(*_GROUP).orderBy("offset"))
    holes = records.withColumn("previous", previous).filter("`offset` > previous + 1")
    holes = holes.selectExpr(*_GROUP, "struct(`offset` - previous - 1 AS size, previous + 1 AS first, `offset` - 1 AS last) AS hole")
    largest = F.row_number().over(Window.partitionBy(*_GROUP).orderBy(F.desc("hole")))
    found = (
        holes.withColumn("listed", largest <= MOST_RUNS)
        .groupBy(*_GROUP)
        .agg(
            F.sort_array(F.collect_list(F.when(F.col("listed"), F.struct("hole.first", "hole.last")))).alias("holes"),
            F.coalesce(F.sum(F.when(~F.col("listed"), F.col("hole.size"))), F.lit(0)).alias("unlisted"),
        )
        .collect()
    )
    return tuple(
        sorted(
            OffsetHoles(
                row[FILE], row["topic"], row["partition"], tuple((hole["first"], hole["last"]) for hole in row["holes"]), row["unlisted"]
            )
            for row in found
        )
    )
