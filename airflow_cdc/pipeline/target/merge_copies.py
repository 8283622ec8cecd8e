"""Merge copies: bring a table without a key to the counted number of copies of each row."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import ADDED, COMMITTED_AT, CONTENT, COPY, MICROBATCH, OP, POSITION
from airflow_cdc.pipeline.reconcile.count_copies import COPIES, MISSING
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.target_table import TargetTable

_ACTION = "__cdc_action"
_ROW = "__cdc_row"
_OF_EVENT = (POSITION, OP, COMMITTED_AT)


def copy_changes(target: TargetTable, held: DataFrame, counted: DataFrame, *, log: DataFrame) -> DataFrame:
    """Return the rows to insert (action ``i``) and to delete (``d``), and one row (``m``) for each content with missing rows, whose copy
    number is minus their count.

    :param held: the target's rows of the counted contents.
    :param counted: number of copies by content.
    :param log: all known events.
    """
    wanted = counted.filter(f"{COPIES} > 0").select(CONTENT, F.explode(F.expr(f"sequence(1L, {COPIES})")).alias(COPY))
    both = wanted.withColumn(_ACTION, F.lit("i")).join(held.select(CONTENT, COPY).withColumn("held", F.lit("d")), [CONTENT, COPY], "full")
    changes = both.filter(f"{_ACTION} IS NULL OR held IS NULL").select(CONTENT, COPY, F.coalesce(_ACTION, "held").alias(_ACTION))
    missing = counted.filter(f"{MISSING} > 0").select(CONTENT, (-F.col(MISSING)).alias(COPY), F.lit("m").alias(_ACTION))
    all_changes = changes.unionByName(missing)
    return all_changes.join(_rows(target, log, changes), CONTENT, "left").select(CONTENT, COPY, _ACTION, f"{_ROW}.*")


def count_missing(changes: DataFrame) -> int:
    """Return how many rows were removed by events although no event is known to have added them."""
    found = changes.filter(f"{_ACTION} = 'm'").agg(F.sum(COPY)).collect()[0][0]
    return -int(found or 0)


def _rows(target: TargetTable, log: DataFrame, changes: DataFrame) -> DataFrame:
    """Return the values of each content that gains rows, from the last event that added it."""
    adding = (
        target.with_all_columns(log)
        .withColumn(CONTENT, F.col(ADDED))
        .join(changes.filter(f"{_ACTION} = 'i'").select(CONTENT).distinct(), CONTENT, "left_semi")
    )
    row = F.struct(*[F.col(sql.name(name)) for name in (*target.columns, *_OF_EVENT)])
    return adding.groupBy(CONTENT).agg(F.max_by(row, POSITION).alias(_ROW))


def merge_copies(spark: SparkSession, target: TargetTable, changes: DataFrame, *, microbatch: int) -> None:
    """Make one MERGE commit of inserted and deleted rows."""
    changes.createOrReplaceTempView("cdc_copy_changes")
    columns = [*target.columns, *_OF_EVENT, CONTENT, COPY]
    values = {sql.name(name): f"s.{sql.name(name)}" for name in columns} | {MICROBATCH: str(microbatch)}
    spark.sql(
        f"MERGE INTO {sql.delta(target.uri)} AS t USING cdc_copy_changes AS s ON t.{CONTENT} = s.{CONTENT} AND t.{COPY} = s.{COPY}"
        f" WHEN MATCHED AND s.{_ACTION} = 'd' THEN DELETE"
        f" WHEN NOT MATCHED AND s.{_ACTION} = 'i' THEN INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    )
