"""Fold documents: apply updates' changes to the last known document, in the microbatch or in the target.

Only keys whose last event carries no document are folded, at the cost of a second read of the archive. The fold itself is Python
(:mod:`airflow_cdc.pipeline.documents.documents`): no SQL function changes JSON text and keeps its digits.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OP, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.mongodb import DOCUMENT, PATCH, PRE_IMAGE
from airflow_cdc.pipeline.documents.document_functions import fold
from airflow_cdc.pipeline.reconcile.order_events import ORDER
from airflow_cdc.pipeline.reconcile.rule import is_known_newer
from airflow_cdc.pipeline.spark import sql

_LACKS_DOCUMENT = f"({OP} = 'u' AND {DOCUMENT} IS NULL)"
_FOLDED = "__cdc_folded"
_BASE = "__cdc_base"


def keys_to_fold(row_changes: DataFrame, keys: Sequence[str], *, keeps_deleted: bool) -> DataFrame:
    """Return the keys of the row changes whose last event does not carry the document.

    :param keeps_deleted: whether a deleted row keeps its document, which a delete does not carry.
    """
    asked = f"({_LACKS_DOCUMENT} OR {OP} = 'd')" if keeps_deleted else _LACKS_DOCUMENT
    return row_changes.filter(asked).select(*map(sql.name, keys))


def fold_documents(row_changes: DataFrame, events: DataFrame, rows: DataFrame | None, keys: Sequence[str]) -> DataFrame:
    r"""Return the row changes with the documents that result from their keys' events.

    >>> #  position  op  document            patch                              document
    >>> #        10   c  {"_id": 1,"a": 1}                                 ->   {"_id": 1,"a": 2}
    >>> #        11   u                      {"updatedFields": "{\"a\": 2}"}

    An unknown document is NULL, and marked as not known in ``__cdc_told_at``. For a folded document, ``__cdc_told_at`` holds its position.

    :param events: good row events of the keys to fold, with :data:`~airflow_cdc.pipeline.reconcile.order_events.ORDER` and the
        dialect's own columns.
    :param rows: the target's rows, None if there are none.
    """
    step = F.struct(ORDER, OP, DOCUMENT, PATCH, PRE_IMAGE)
    gathered = events.groupBy(*map(sql.name, keys)).agg(F.array_sort(F.collect_list(step)).alias("steps"))
    if rows is None:
        based = gathered.withColumn(_BASE, F.lit(None).cast("string"))
    else:
        based = gathered.join(rows.select(*map(sql.name, keys), F.col(DOCUMENT).alias(_BASE)), list(keys), "left")
    members = ", ".join(f"'{name}', step.{name}" for name in (OP, DOCUMENT, PATCH, PRE_IMAGE))
    steps = F.expr(f"transform(steps, step -> named_struct({members}))")
    folded = based.select(*map(sql.name, keys), fold(F.col(_BASE), steps).alias(_FOLDED))
    joined = row_changes.join(folded, list(keys), "left")
    needs = f"({DOCUMENT} IS NULL AND {OP} IN ('u', 'd'))"
    entry = f"named_struct('column', '{DOCUMENT}', 'position', {POSITION}, 'known', {_FOLDED} IS NOT NULL)"
    entries = f"CAST(array({entry}) AS {VALUE_POSITIONS_TYPE})"
    values = {
        DOCUMENT: F.expr(f"if({needs}, {_FOLDED}, {DOCUMENT})"),
        VALUE_POSITIONS: F.expr(f"if({_LACKS_DOCUMENT}, {entries}, {VALUE_POSITIONS})"),
        # An unknown document must not keep its former value.
        UNAVAILABLE: F.expr(f"if({_LACKS_DOCUMENT} OR {_FOLDED} IS NOT NULL, NULL, {UNAVAILABLE})"),
    }
    return joined.select(*[values.get(name, F.col(sql.name(name))).alias(name) for name in row_changes.columns])


def drop_known_documents(folded: DataFrame, rows: DataFrame, known: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """Return the row changes, folded from all events of their keys, that are not stale, and the keys of the others.

    :param rows: the target's rows.
    :param known: the target's rows and the delete markers: the keys, position, operation and offset.
    """
    by_key = F.expr(sql.same_key("s", "k", keys))
    # The events that made a row may have left the archive: a document that only they carried stays.
    says_nothing = f"k.{POSITION} > s.{POSITION} OR (s.{OP} = 'd' AND k.{OP} = 'd') OR (s.{OP} <> 'd' AND s.{DOCUMENT} IS NULL)"
    beaten = folded.alias("s").join(known.alias("k"), by_key).filter(is_known_newer("k", "s")).filter(says_nothing)
    is_same = F.expr(f"s.{OP} <> 'd' AND k.{POSITION} = s.{POSITION} AND k.{DOCUMENT} <=> s.{DOCUMENT}")
    same = folded.alias("s").join(rows.alias("k"), by_key & is_same)
    ours = [F.col(f"s.{sql.name(key)}") for key in keys]
    old = beaten.select(*ours).unionByName(same.select(*ours)).distinct()
    return folded.join(old, list(keys), "left_anti"), old
