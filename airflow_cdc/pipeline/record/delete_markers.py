"""Delete markers: the keys that microbatches deleted, with position, so that a late event cannot bring a row back.

Written before the merge. A crash between the two is harmless: a marker says only that older events of its key are
stale, and the same microbatch, taken up again, does not look at its own markers. It writes them a second time then: a marker that is there
twice says what it says once, and Delta would put the table's state together at every append to know that it is none of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import BEGAN, DEPENDS, MICROBATCH, OFFSET, OP, PARTITION, POSITION
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH
from airflow_cdc.pipeline.record.append_once import read_appended
from airflow_cdc.pipeline.spark import sql

_LAST = f"coalesce({REACH}.last, {POSITION})"
_STAYS = f"{OP} = '{KEEP}' OR ({OP} <> 'd' AND {POSITION}.commit < {REACH}.last.commit)"


def markers_of(row_changes: DataFrame, keys: Sequence[str], microbatch: int) -> DataFrame:
    """Return what the row changes deleted: the keys, position, operation and offset, where its transaction began, whether
    it depends, and the microbatch.

    Operation ``d``: older events of the key are stale. :data:`KEEP`: rows came and went while the one that the target holds, or none,
    stayed: stale are only events of the same transaction, from where it *began* on. *Depends*: the key's last transaction left a row if
    the key was held before it, and none otherwise, or the other way round, so that older events may turn its outcome
    (:func:`airflow_cdc.pipeline.reconcile.rejoin_transactions.find_cut_keys`).

    :param row_changes: with :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.REACH`.
    """
    stays = F.expr(_STAYS)
    return row_changes.filter(f"{OP} = 'd' OR {REACH}.depends").select(
        *[F.col(sql.name(key)) for key in keys],
        F.expr(_LAST).alias(POSITION),
        F.when(stays, KEEP).otherwise("d").alias(OP),
        PARTITION,
        OFFSET,
        F.col(REACH)["began"].alias(BEGAN),
        (F.col(REACH)["depends"] & ~stays).alias(DEPENDS),
        F.lit(microbatch).cast("bigint").alias(MICROBATCH),
    )


def newest_per_transaction(markers: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return one marker a key and transaction: the one of the microbatch that saw most of it."""
    key_columns = [F.col(sql.name(key)) for key in keys]
    marker = F.max_by(F.struct(POSITION, OP, PARTITION, OFFSET, BEGAN, DEPENDS), F.struct(MICROBATCH, POSITION)).alias("marker")
    return markers.groupBy(*key_columns, F.col(POSITION)["commit"]).agg(marker).select(*key_columns, "marker.*")


def without_own(markers: DataFrame, row_changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the markers but for those of events that a row change of their key holds itself and that leave a row behind.

    So it is where events are read again and a transaction handed the key on: the marker is of the row that had the key before.
    """
    lives = row_changes.filter(f"{OP} NOT IN ('d', '{KEEP}')")
    same_event = F.expr(f"{sql.same_key('m', 's', keys)} AND m.{POSITION} = s.{REACH}.last")
    return markers.alias("m").join(lives.alias("s"), same_event, "left_anti")


def read_markers(spark: SparkSession, uri: str, *, except_microbatch: int, expired_uri: str | None = None) -> DataFrame | None:
    """Return the markers that other microbatches left, None where there are none.

    :param expired_uri: where the expired ones lie, for events that are read again; None: without them.
    """
    found = [read_appended(spark, each) for each in (uri, expired_uri) if each]
    markers = [frame.filter(F.col(MICROBATCH) != except_microbatch) for frame in found if frame is not None]
    # The tables have their columns by name: a key may have been widened in one of them since.
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), markers) if markers else None
