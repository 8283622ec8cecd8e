"""Merge versions: diff the target's versions against those cut from the events, and MERGE the difference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import END_POSITION, IS_CURRENT, MICROBATCH, OFFSET, OP, POSITION, PREVIOUS_KEY, VALID_FROM, VALID_TO
from airflow_cdc.pipeline.reconcile.cut_versions import OPEN
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.target_table import TargetTable

ACTION = "__cdc_action"
"""What happens to a version in the target: ``i``, ``u`` or ``d``."""
ASKS = "__cdc_asks"
"""Whether these events decide the version's previous key; otherwise the target's stays."""
_CAME_FROM = "__cdc_came_from"
_COMPARED = (END_POSITION, VALID_FROM, VALID_TO, IS_CURRENT, OP, OFFSET, PREVIOUS_KEY)


def differing_versions(cut: DataFrame, held: DataFrame, target: TargetTable, *, keys: Sequence[str], others: Sequence[str]) -> DataFrame:
    """Return the versions to insert (action ``i``), update (``u``) or delete (``d``).

    :param cut: versions derived from the events.
    :param held: versions in the target, under the default names of our columns.
    :param keys: our names for the key columns, in their order.
    :param others: the columns that are not keys.
    """
    on = " AND ".join([*(f"v.{key} = h.{key}" for key in keys), f"v.{POSITION} = h.{POSITION}"])
    both = cut.alias("v").join(held.alias("h"), F.expr(on), "full_outer")
    origin = F.col(f"v.{PREVIOUS_KEY}").cast(held.schema[PREVIOUS_KEY].dataType)
    both = both.withColumn(_CAME_FROM, F.when(F.col(f"v.{ASKS}"), origin).otherwise(F.col(f"h.{PREVIOUS_KEY}")))
    compared = [name for name in (*others, *_COMPARED) if name != PREVIOUS_KEY]
    pairs = [(F.col(f"v.{sql.name(name)}"), F.col(f"h.{sql.name(name)}")) for name in compared]
    pairs.append((F.col(_CAME_FROM), F.col(f"h.{PREVIOUS_KEY}")))
    differs = reduce(Column.__or__, [~ours.eqNullSafe(theirs) for ours, theirs in pairs])
    action = F.when(F.col(f"h.{POSITION}").isNull(), "i").when(F.col(f"v.{POSITION}").isNull(), "d").when(differs, "u")
    judged = both.withColumn(ACTION, action).filter(f"{ACTION} IS NOT NULL")
    return judged.select(
        *[F.coalesce(f"v.{name}", f"h.{name}").alias(key) for key, name in zip(target.keys, keys, strict=True)],
        F.coalesce(f"v.{POSITION}", f"h.{POSITION}").alias(POSITION),
        *[F.col(f"v.{sql.name(name)}").alias(name) for name in compared],
        F.col(_CAME_FROM).alias(PREVIOUS_KEY),
        F.col(f"v.{OPEN}").alias(OPEN),
        ACTION,
    )


def merge_versions(spark: SparkSession, target: TargetTable, changes: DataFrame, *, microbatch: int) -> None:
    """Make one MERGE commit of version changes."""
    changes.createOrReplaceTempView("cdc_version_changes")
    named = target.scd_columns.by_default
    columns = [*target.columns, POSITION, *_COMPARED]
    values = {sql.name(named.get(name, name)): f"s.{sql.name(name)}" for name in columns} | {MICROBATCH: str(microbatch)}
    assigned = ", ".join(f"{column} = {value}" for column, value in values.items())
    spark.sql(
        f"MERGE INTO {sql.delta(target.uri)} AS t USING cdc_version_changes AS s"
        f" ON {sql.same_key('t', 's', target.keys)} AND t.{POSITION} = s.{POSITION}"
        f" WHEN MATCHED AND s.{ACTION} = 'd' THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {assigned}"
        f" WHEN NOT MATCHED THEN INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})"
    )


def current_versions(spark: SparkSession, target: TargetTable, changes: DataFrame) -> DataFrame:
    """Return the versions that will be current after the merge, with the source's columns."""
    same = f"{sql.same_key('h', 'v', target.keys)} AND h.{POSITION} = v.{POSITION}"
    rows = target.with_default_names(spark.sql(f"SELECT * FROM {sql.delta(target.uri)}"))
    held = rows.alias("h").join(changes.alias("v"), F.expr(same), "left_anti")
    columns = [*map(sql.name, target.columns), IS_CURRENT]
    written = changes.filter(f"{ACTION} <> 'd'").select(*columns)
    return held.select(*columns).unionByName(written).filter(IS_CURRENT).drop(IS_CURRENT)
