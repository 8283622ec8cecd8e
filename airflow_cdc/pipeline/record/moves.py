"""Moves: rows that took a new key in an event without all of their values, so that a late event under an old key still finds its row.

They are appended before the merge. A crash between the two is harmless: a move only makes later microbatches look into the archive, and the
resumed microbatch ignores its own. Duplicates are harmless.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH, OFFSET, PARTITION, POSITION
from airflow_cdc.pipeline.reconcile.trace_moved_rows import FROM, TO, numbered
from airflow_cdc.pipeline.record.append_once import read_appended


def moves_of(moves: DataFrame, keys: Sequence[str], microbatch: int) -> DataFrame:
    """Return moves (:attr:`~airflow_cdc.pipeline.reconcile.trace_moved_rows.Traced.moves`) as the log keeps them."""
    ours = (*numbered(FROM, keys), *numbered(TO, keys), POSITION, PARTITION, OFFSET)
    return moves.select(*ours, F.lit(microbatch).cast("bigint").alias(MICROBATCH)).distinct()


def read_moves(spark: SparkSession, uri: str, *, except_microbatch: int) -> DataFrame | None:
    """Return the moves that other microbatches wrote down, None if there are none."""
    moves = read_appended(spark, uri)
    return None if moves is None else moves.filter(F.col(MICROBATCH) != except_microbatch).drop(MICROBATCH)


def names_of_moves(keys: Sequence[str]) -> dict[str, list[str]]:
    """Return by key column the log's columns that hold its values."""
    return {key: list(names) for key, *names in zip(keys, numbered(FROM, keys), numbered(TO, keys), strict=True)}
