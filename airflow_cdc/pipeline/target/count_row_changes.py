"""Count the target's rows that a microbatch would change or has changed; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH, OP, OP_IF_ABSENT
from airflow_cdc.model.operation import KEEP
from airflow_cdc.model.report.batch_report import RowCounts
from airflow_cdc.pipeline.reconcile.fold_row_versions import HELD
from airflow_cdc.pipeline.reconcile.value_positions import HAS_UNKNOWN
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.flag_deletes import Vanishing, is_taken
from airflow_cdc.pipeline.target.target_table import TargetTable


def count_row_changes(
    spark: SparkSession, target: TargetTable, row_changes: DataFrame, *, vanishing: Sequence[Vanishing] = ()
) -> RowCounts:
    """Return how many rows a MERGE of the row changes would insert, update and delete; nothing is written."""
    rows = spark.sql(f"SELECT *, true AS {HELD} FROM {sql.delta(target.uri)}")
    on_keys = F.expr(sql.same_key("t", "s", target.keys))
    op = F.expr(f"if({is_taken(vanishing)}, if(s.{OP_IF_ABSENT} = '{KEEP}', 'd', s.{OP_IF_ABSENT}), s.{OP})").alias(OP)
    judged = row_changes.alias("s").join(rows.alias("t"), on_keys, "left").select(f"t.{HELD}", op, f"s.{OP_IF_ABSENT}")
    counts = judged.agg(
        F.count_if(F.expr(f"{HELD} IS NULL AND {OP_IF_ABSENT} NOT IN ('d', '{KEEP}')")).alias("inserted"),
        F.count_if(F.expr(f"{HELD} AND {OP} NOT IN ('d', '{KEEP}')")).alias("updated"),
        F.count_if(F.expr(f"{HELD} AND {OP} = 'd'")).alias("deleted"),
    ).collect()[0]
    found = RowCounts(*(int(counts[name]) for name in ("inserted", "updated", "deleted")))
    if not vanishing:
        return found
    left = rows.alias("t").join(row_changes.alias("s"), on_keys, "left_anti")
    return found + RowCounts(deleted=left.filter(" OR ".join(each.takes for each in vanishing)).count())


def count_unresolved(spark: SparkSession, uri: str, microbatch: int) -> int:
    """Return how many rows a microbatch merged with a value that no event has provided."""
    # Flagged deletes are excluded.
    lives = f"{OP} NOT IN ('d', 't')"
    return spark.sql(f"SELECT 1 FROM {sql.delta(uri)} WHERE {MICROBATCH} = {microbatch} AND {lives} AND {HAS_UNKNOWN}").count()
