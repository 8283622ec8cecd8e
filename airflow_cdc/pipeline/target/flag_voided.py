"""Flag rows that a truncate or a complete snapshot of the same microbatch voids: they existed, and they are gone."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION, UNAVAILABLE
from airflow_cdc.model.operation import KEEP, VOID
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.flag_deletes import Vanishing, committed_at


def flag_voided(row_changes: DataFrame, vanishing: Vanishing, others: Sequence[str]) -> DataFrame:
    """Return void row changes as flagged deletes, for a table that flags deletes.

    :param row_changes: changes at positions before ``vanishing``.
    :param others: the columns that are not keys.
    """
    died = F.col(OP) == "d"
    return row_changes.withColumns(
        {
            POSITION: F.when(died, F.col(POSITION)).otherwise(F.expr(position_literal(vanishing.position))),
            COMMITTED_AT: F.when(died, F.col(COMMITTED_AT)).otherwise(F.expr(committed_at(vanishing))),
            PARTITION: F.when(died, F.col(PARTITION)),
            OFFSET: F.when(died, F.col(OFFSET)),
            # Voids the row that the target holds, not a row that came and went within the microbatch.
            UNAVAILABLE: F.when(F.col(OP) == KEEP, F.expr(sql.texts(others))).otherwise(F.col(UNAVAILABLE)),
            OP_IF_ABSENT: F.when(died, "d").otherwise("t"),
            OP: F.lit(VOID),
        }
    )
