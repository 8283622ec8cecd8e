"""Find overlapping versions: a row has at most one at any position and time, and at most one current."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import END_POSITION, IS_CURRENT, POSITION, VALID_FROM, VALID_TO
from airflow_cdc.pipeline.spark import sql

_BEFORE = "__cdc_before"


def overlapping_versions(versions: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the versions that begin before their predecessor ends, by position or by time, and those that are both current and ended, or
    neither.

    A version without an end, followed by another, is such a case; so without overlaps at most one version of a key is current.

    :param versions: rows of a table that keeps versions, with our columns.
    """
    ours = ", ".join(sql.name(key) for key in keys)
    ends = f"named_struct('position', {END_POSITION}, 'time', {VALID_TO})"
    before = f"lag({ends}) OVER (PARTITION BY {ours} ORDER BY {POSITION}, {END_POSITION} NULLS LAST)"
    # A time that the source did not record contradicts nothing.
    by_position = f"{_BEFORE} IS NOT NULL AND ({_BEFORE}.position IS NULL OR {_BEFORE}.position > {POSITION})"
    wrong = f"({by_position}) OR {_BEFORE}.time > {VALID_FROM} OR {VALID_TO} < {VALID_FROM} OR {END_POSITION} <= {POSITION}"
    flagged = f"NOT ({IS_CURRENT} <=> ({END_POSITION} IS NULL))"
    return versions.withColumn(_BEFORE, F.expr(before)).filter(f"coalesce({wrong}, false) OR {flagged}").drop(_BEFORE)
