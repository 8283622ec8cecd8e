"""The position and the Kafka partition of a collected row, as the model's types."""

from __future__ import annotations

from pyspark.sql import Row

from airflow_cdc.model.columns import PARTITION
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION


def position_of(row: Row) -> Position:
    """Return a position from its struct."""
    return Position(int(row["commit"]), int(row["change"]), int(row["serial"]))


def partition_of(row: Row) -> str:
    """Return a row's Kafka partition, named as in reports."""
    return UNKNOWN_PARTITION if row[PARTITION] is None else str(row[PARTITION])
