"""Compare same-named tables of two lakes exactly by Spark: schema and rows of the source's columns.

Small tables are compared without it (:mod:`airflow_cdc.pipeline.look.differences`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.state.lake import FlowState, flows_in
from airflow_cdc.pipeline.look import differences
from airflow_cdc.pipeline.look.differences import LakeComparison, TableDifference
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.target_table import read_target
from airflow_cdc.pipeline.upkeep.inspect_lake import source_rows, with_json

_SIDE = "__cdc_side"
_ROW = "__cdc_row"


def compare_lakes(spark: SparkSession, left: str, right: str, globs: Iterable[str] = (), sample: int = 20) -> LakeComparison:
    """Compare the same-named tables of two lakes.

    :param sample: maximum number of differing keys to return per table.
    """
    patterns = tuple(globs)
    in_left, in_right = (tables_in(spark, lake, patterns) for lake in (left, right))
    both = [flow for flow in in_left if flow in in_right]
    return LakeComparison(
        tables=tuple(_compare(spark, left, right, flow, sample) for flow in both),
        only_left=tuple(flow for flow in in_left if flow not in both),
        only_right=tuple(flow for flow in in_right if flow not in both),
    )


def tables_in(spark: SparkSession, lake: str, globs: tuple[str, ...]) -> list[str]:
    """Return the flows of a lake that have a table."""
    fs, root = file_system(lake)
    flows = [flow for flow in flows_in(fs, root) if matches_any(flow, globs)]
    tables = {flow: FlowState(fs, root, flow).checkpoint().table_in(lake) for flow in flows}
    return [flow for flow, table in tables.items() if table and read_target(spark, spark_uri(table)) is not None]


def _compare(spark: SparkSession, left: str, right: str, flow: str, sample: int) -> TableDifference:
    left_rows, keys = source_rows(spark, left, flow)
    right_rows, _ = source_rows(spark, right, flow)
    schema = schema_differences(left_rows, right_rows)
    names = [name for name, kind in left_rows.dtypes if (name, kind) in right_rows.dtypes]
    if not set(keys) <= set(names):
        return TableDifference(flow, schema)
    # JSON text of all columns would render NaN and NULL alike; structs keep them apart.
    whole = F.struct(*map(sql.name, names)).alias(_ROW)
    lefts, rights = with_json(left_rows).select(whole), with_json(right_rows).select(whole)
    only_left = lefts.exceptAll(rights).withColumn(_SIDE, F.lit("left"))
    only_right = rights.exceptAll(lefts).withColumn(_SIDE, F.lit("right"))
    differing = only_left.unionAll(only_right).cache()
    try:
        counts = {row[_SIDE]: int(row["count"]) for row in differing.groupBy(_SIDE).count().collect()}
        picked = [F.col(f"{_ROW}.{sql.name(key)}").alias(key) for key in keys] or [F.to_json(_ROW).alias("row")]
        order = [sql.name(key) for key in keys or ("row",)]
        shown = differing.select(F.col(_SIDE).alias("side"), *picked).orderBy(*order, "side").limit(sample).collect()
        values = _value_differences(differing, keys, names) if keys and len(counts) == 2 else {}
    finally:
        differing.unpersist()
    return TableDifference(flow, schema, counts.get("left", 0), counts.get("right", 0), tuple(row.asDict() for row in shown), values)


def _value_differences(differing: DataFrame, keys: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    """Return by column how many keys have different values on the two sides."""
    left, right = (differing.filter(F.col(_SIDE) == side).alias(side) for side in ("left", "right"))
    same = [F.col(f"left.{_ROW}.{sql.name(key)}").eqNullSafe(F.col(f"right.{_ROW}.{sql.name(key)}")) for key in keys]
    pairs = left.join(right, reduce(and_, same))
    others = [name for name in names if name not in keys]
    if not others:
        return {}
    found = pairs.selectExpr(*[f"count_if(NOT left.{_ROW}.{sql.name(name)} <=> right.{_ROW}.{sql.name(name)})" for name in others]).first()
    return {name: count for name, count in zip(others, found or (), strict=True) if count}


def schema_differences(left: DataFrame, right: DataFrame) -> tuple[str, ...]:
    """Return, as text, the columns that are missing or have another type in one frame."""
    left_types, right_types = ({field.name: field.dataType.simpleString() for field in rows.schema.fields} for rows in (left, right))
    return differences.schema_differences(left_types, right_types)
