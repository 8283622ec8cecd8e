"""Alter a target table without a Spark job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.target.alter_table import gets_deletion_vectors, with_deletion_vectors
from airflow_cdc.pipeline.target.commit_natively import commit_deletion_vectors, commit_properties
from airflow_cdc.pipeline.target.open_natively import open_table
from airflow_cdc.pipeline.target.target_table import TargetTable

_PLAIN = 2
"""The newest protocol of writers that implies no feature of a kind that a table would have to name."""


def with_deletion_vectors_natively(spark: SparkSession, target: TargetTable) -> TargetTable:
    """Switch deletion vectors on, as :func:`airflow_cdc.pipeline.target.alter_table.with_deletion_vectors`.

    :param spark: alters a table of an older protocol.
    :raises ConcurrentRunError: when another run committed first.
    :raises NotReached: where delta-rs is not used.
    """
    if target.deletion_vectors or not gets_deletion_vectors(target):
        return target
    table = open_table(target.uri)
    held = table.protocol()
    if not held.writer_features and held.min_writer_version > _PLAIN:
        return with_deletion_vectors(spark, target)
    commit_deletion_vectors(target.uri, table)
    return replace(target, deletion_vectors=True)


def set_properties_natively(_: SparkSession, uri: str, properties: Mapping[str, str]) -> None:
    """Set properties that ask nothing of a table's writers, as :func:`airflow_cdc.pipeline.target.alter_table.set_properties`.

    :raises ConcurrentRunError: when another run committed first.
    :raises NotReached: where delta-rs is not used.
    """
    commit_properties(uri, open_table(uri), properties)
