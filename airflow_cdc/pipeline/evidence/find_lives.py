"""Find the lives of a topic: compare the records of files that hold the same offsets.

Runs only for files whose offsets were archived before, or occur twice in one file, as known from the surveys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.columns import FILE, LINE, ORDINAL, RAW, RAW_KEY
from airflow_cdc.model.position.lives import Meeting, Stretch
from airflow_cdc.pipeline.read.read_lines import file_literal, read_lines
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import computed

_PLACE = (FILE, "partition")
_STRETCH = (*_PLACE, "stretch")


def find_stretches(
    spark: SparkSession, archive: str, topic: str, files: Sequence[ArchivedFile]
) -> tuple[tuple[Stretch, ...], tuple[Meeting, ...]]:
    """Return the stretches of files of a topic, in the archive's order, and the pairs that hold the same offsets.

    Costs a read of the files and a join on their offsets.
    """
    records = _records(read_lines(spark, archive, files, numbered=True), topic, files)
    # Lines out of order, or copies of each other, start no stretch: only a different record at the same offset of a file does.
    twice = records.groupBy(*_PLACE, "offset").agg(F.countDistinct("digest").alias("records")).filter("records > 1")
    torn = twice.select(*_PLACE).distinct().withColumn("is_torn", F.lit(True))  # noqa: FBT003
    by_line = Window.partitionBy(*_PLACE).orderBy(LINE)
    back = F.coalesce(F.col("offset") <= F.lag("offset").over(by_line), F.lit(False))  # noqa: FBT003
    parted = records.withColumn("back", back.cast("int")).withColumn("stretch", F.sum("back").over(by_line))
    placed = parted.join(F.broadcast(torn), list(_PLACE), "left").withColumn("stretch", F.expr("if(is_torn, stretch, 0)"))
    placed = computed(placed.select(*_STRETCH, LINE, "offset", "digest", "ms"))
    order = {file.path: place for place, file in enumerate(files)}
    found = placed.groupBy(*_STRETCH).agg(
        F.min(LINE).alias("line"), *[pick("offset").alias(f"{pick.__name__}_offset") for pick in (F.min, F.max)], F.min("ms"), F.max("ms")
    )
    rows = sorted(found.collect(), key=lambda row: (order[row[FILE]], row["line"]))
    stretches = {tuple(row[name] for name in _STRETCH): _stretch(row) for row in rows}
    met = tuple(Meeting(stretches[one].name, stretches[two].name, *counts) for (one, two), counts in _meetings(placed, files).items())
    return tuple(stretches.values()), met


def _records(lines: DataFrame, topic: str, files: Sequence[ArchivedFile]) -> DataFrame:
    """Return the topic's records: file, line, partition, offset, digest of key and value, and ``ts_ms``.

    A value file carries its start offset, not the offset of each line, and no tombstones. Its lines count from the start offset.
    """
    members = "topic STRING, partition STRING, offset STRING, key STRING, value STRING, ts_ms STRING"
    parsed = lines.selectExpr(FILE, LINE, ORDINAL, RAW, RAW_KEY, f"from_json({RAW}, {sql.text(members)}) AS line")
    start = file_literal(files, "start_offset", "BIGINT")
    ours = parsed.filter(f"coalesce(line.topic, {sql.text(topic)}) = {sql.text(topic)}")
    is_record = "line.topic IS NOT NULL"
    value = f"if({is_record}, line.value, {RAW})"
    times = ", ".join(f"get_json_object(value, '{path}')" for path in ("$.ts_ms", "$.payload.ts_ms"))
    return (
        ours.selectExpr(
            FILE,
            LINE,
            f"coalesce(try_cast(line.partition AS INT), {file_literal(files, 'partition', 'INT')}) AS partition",
            f"if({is_record}, try_cast(line.`offset` AS BIGINT), {start} + {LINE} - 1) AS `offset`",
            f"if({is_record}, line.key, {RAW_KEY}) AS key",
            f"{value} AS value",
        )
        # A value that is not an object, or cannot be read, is not an event, and so not a different record.
        .filter("value IS NULL OR (startswith(ltrim(value), '{') AND get_json_object(value, '$') IS NOT NULL)")
        .selectExpr(*_PLACE, LINE, "`offset`", "xxhash64(key, value) AS digest", f"try_cast(coalesce({times}) AS BIGINT) AS ms")
        .dropna(subset=["partition", "offset"])
    )


def _stretch(row: Row) -> Stretch:
    times = (row["min(ms)"], row["max(ms)"])
    return Stretch(row[FILE], row["partition"], row["line"], row["min_offset"], row["max_offset"], *times)


_Pair = tuple[tuple[Any, ...], tuple[Any, ...]]


def _meetings(placed: DataFrame, files: Sequence[ArchivedFile]) -> dict[_Pair, tuple[int, int]]:
    """Return for each two stretches the number of offsets at which they hold the same record, and different ones."""
    one, two = placed.alias("one"), placed.alias("two")
    names = {side: F.struct(*[F.col(f"{side}.{name}").alias(name) for name in _STRETCH]) for side in ("one", "two")}
    apart = names["one"] < names["two"]
    met = one.join(two, (F.col("one.partition") == F.col("two.partition")) & (F.col("one.offset") == F.col("two.offset")) & apart)
    counted = (
        met.select(*[name.alias(side) for side, name in names.items()], F.expr("one.digest = two.digest").alias("same"))
        .groupBy("one", "two")
        .agg(F.count_if("same").alias("same"), F.count_if(~F.col("same")).alias("other"))
        .collect()
    )
    counts = {(tuple(row["one"]), tuple(row["two"])): (row["same"], row["other"]) for row in counted}
    return {**counts, **_of_values(placed, counts, files)}


def _of_values(placed: DataFrame, counts: Mapping[_Pair, tuple[int, int]], files: Sequence[ArchivedFile]) -> dict[_Pair, tuple[int, int]]:
    """Return the meetings of value files, recounted: one shared record, at any offset, proves a redelivery."""
    numbered = {file.path for file in files if file.start_offset is not None}
    doubtful = {pair for pair in counts if {pair[0][0], pair[1][0]} & numbered}
    if not doubtful:
        return {}
    digests = placed.select(F.struct(*_STRETCH).alias("stretch"), "digest").distinct()
    shared = digests.alias("one").join(digests.alias("two"), F.expr("one.digest = two.digest AND one.stretch < two.stretch"))
    rows = shared.groupBy(F.col("one.stretch").alias("one"), F.col("two.stretch").alias("two")).count().collect()
    both = {(tuple(row["one"]), tuple(row["two"])): int(row["count"]) for row in rows}
    return {pair: (both[pair], 0) if pair in both else counts[pair] for pair in doubtful}
