"""Delete markers: the keys that microbatches deleted, with position, so that a late event cannot bring a row back.

Written before the merge. A crash between the two is harmless: a marker says only that older events of its key are
stale, and the same microbatch, taken up again, does not look at its own markers.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OFFSET, OP, POSITION
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH

_MICROBATCH = "microbatch"


def markers_of(row_changes: DataFrame, keys: Sequence[str], microbatch: int) -> DataFrame:
    """Return the deletes among row changes as markers: the keys, position, operation, offset, and the microbatch that deleted them.

    A row that lives because a delete behind it was for another row of its key leaves a marker too: older events may tell that there
    was none (:func:`airflow_cdc.pipeline.reconcile.rejoin_transactions.find_cut_keys`).

    :param row_changes: with :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.REACH`.
    """
    deletes = row_changes.filter((F.col(OP) == "d") | (F.col(REACH)["depends"] & F.col(OP).isin("r", "c", "u"))).withColumn(OP, F.lit("d"))
    marked = F.lit(microbatch).cast("bigint").alias(_MICROBATCH)
    return deletes.select(*[F.col(sql.name(key)) for key in keys], POSITION, OP, OFFSET, marked)


def read_markers(spark: SparkSession, uri: str, *, except_microbatch: int) -> DataFrame | None:
    """Return the markers that other microbatches left, None where there are none."""
    try:
        return spark.read.format("delta").load(uri).filter(F.col(_MICROBATCH) != except_microbatch)
    except AnalysisException as error:
        if (error.getCondition() or "").startswith(("DELTA_", "PATH_NOT_FOUND")):
            return None
        raise
