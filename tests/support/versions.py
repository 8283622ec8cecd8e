"""Versions of a row must not overlap: looked for in every table that a test makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.columns import END_POSITION, POSITION
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.overlapping_versions import overlapping_versions
from airflow_cdc.pipeline.target.target_table import read_target

Version = Mapping[str, Any]
Place = tuple[int, int, int]


def wrong_versions(spark: SparkSession, lake: str, flow: CdcFlow) -> list[Any]:
    """Return versions of a flow's table that contradict each other, as :mod:`airflow_cdc.pipeline.target.overlapping_versions`."""
    uri = flow.table_path(lake)
    try:
        table = open_table(uri)
        return list(_wrong(table)) if table and table.mode is TableMode.VERSIONS else []
    except NeedsSparkError:
        target = read_target(spark, spark_uri(uri))
        if target is None or target.mode is not TableMode.VERSIONS:
            return []
        versions = target.with_default_names(spark.sql(f"SELECT * FROM {sql.delta(target.uri)}"))
        return overlapping_versions(versions, target.keys).limit(5).collect()


def _wrong(table: NativeTable) -> Iterator[Version]:
    names = table.scd_columns
    by_key: dict[tuple[Any, ...], list[Version]] = {}
    for row in table.rows(list(table.types), history=True):
        by_key.setdefault(tuple(row[key] for key in table.keys), []).append(row)
    for versions in by_key.values():
        versions.sort(key=lambda row: (_place(row[POSITION]), row[END_POSITION] is None, _place(row[END_POSITION])))
        for row in versions:
            ends_early = row[END_POSITION] is not None and _place(row[END_POSITION]) <= _place(row[POSITION])
            if ends_early or _precedes(row[names.valid_to], row[names.valid_from]) or row[names.is_current] != (row[END_POSITION] is None):
                yield row
        for before, row in pairwise(versions):
            is_open = before[END_POSITION] is None or _place(before[END_POSITION]) > _place(row[POSITION])
            if is_open or _precedes(row[names.valid_from], before[names.valid_to]):
                yield row


def _place(position: Mapping[str, Any] | None) -> Place:
    return (int(position["commit"]), int(position["change"]), int(position["serial"])) if position else (-1, -1, -1)


def _precedes(one: Any, other: Any) -> bool:
    """Return whether a time is before another; one that the source did not record contradicts nothing."""
    return one is not None and other is not None and bool(one < other)
