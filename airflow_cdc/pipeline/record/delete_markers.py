"""Delete markers: the keys that microbatches deleted, with position, so that a late event cannot bring a row back.

Markers are written before the merge. A crash between the two is harmless: a marker only makes older events of its key
stale, and the resumed microbatch ignores its own markers. It then writes them a second time. Duplicate markers are harmless, while
detecting them would make Delta reconstruct the table's state at every append.
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
_STAYS = f"({OP} = '{KEEP}' OR ({OP} <> 'd' AND {POSITION}.commit < {REACH}.last.commit))"
_OWN = f"""named_struct('{POSITION}', {_LAST}, '{OP}', if({_STAYS}, '{KEEP}', 'd'), '{PARTITION}', {PARTITION}, '{OFFSET}', {OFFSET},
    '{BEGAN}', {REACH}.began, '{DEPENDS}', {REACH}.depends AND NOT {_STAYS})"""
_EARLIER = f"""transform({REACH}.passed, each -> named_struct('{POSITION}', each.position, '{OP}', '{KEEP}', '{PARTITION}', each.partition,
    '{OFFSET}', each.offset, '{BEGAN}', each.began, '{DEPENDS}', false))"""
_MARKERS = f"inline(concat(array({_OWN}), if({_STAYS}, coalesce({_EARLIER}, array()), array())))"


def markers_of(row_changes: DataFrame, keys: Sequence[str], microbatch: int) -> DataFrame:
    """Return the markers of the row changes: the keys, position, operation and offset, the begin of the transaction, whether the outcome
    depends, and the microbatch.

    Operation ``d``: older events of the key are stale. :data:`KEEP`: rows came and went while the target's row, if any,
    stayed. Only events of the same transaction are stale, from where it *began*; the key's earlier transactions in the microbatch have
    a marker each: a copy of one of their events may arrive alone. *Depends*: the key's last transaction left a row if the key was held
    before it, and none otherwise, or vice versa, so that older events may change its outcome
    (:func:`airflow_cdc.pipeline.reconcile.rejoin_transactions.find_cut_keys`).

    :param row_changes: with :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.REACH`.
    """
    named = [F.col(sql.name(key)) for key in keys]
    marked = row_changes.filter(f"{OP} = 'd' OR {REACH}.depends")
    return marked.select(*named, F.expr(_MARKERS)).withColumn(MICROBATCH, F.lit(microbatch).cast("bigint"))


def newest_per_transaction(markers: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return one marker per key and transaction: that of the latest microbatch, which saw most of the transaction."""
    key_columns = [F.col(sql.name(key)) for key in keys]
    marker = F.max_by(F.struct(POSITION, OP, PARTITION, OFFSET, BEGAN, DEPENDS), F.struct(MICROBATCH, POSITION)).alias("marker")
    return markers.groupBy(*key_columns, F.col(POSITION)["commit"]).agg(marker).select(*key_columns, "marker.*")


def without_own(markers: DataFrame, row_changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the markers without those whose event is the last one of a row change that leaves a row under the key.

    This happens when events are read again and a transaction passed the key on: the marker is of the row that held the key before.
    """
    lives = row_changes.filter(f"{OP} NOT IN ('d', '{KEEP}')")
    same_event = F.expr(f"{sql.same_key('m', 's', keys)} AND m.{POSITION} = s.{REACH}.last")
    return markers.alias("m").join(lives.alias("s"), same_event, "left_anti")


def read_markers(spark: SparkSession, uri: str, *, except_microbatch: int, expired_uri: str | None = None) -> DataFrame | None:
    """Return the markers of other microbatches, None if there are none.

    :param expired_uri: table of the expired markers, for events that are read again; None: without them.
    """
    found = [read_appended(spark, each) for each in (uri, expired_uri) if each]
    markers = [frame.filter(F.col(MICROBATCH) != except_microbatch) for frame in found if frame is not None]
    # Union by name: a key may have been widened in one of the tables since.
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), markers) if markers else None
