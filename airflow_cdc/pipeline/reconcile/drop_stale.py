"""Drop the row changes that the target already knows better: late events never regress a row, nor bring one back."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import POSITION
from airflow_cdc.pipeline import sql

_KNOWN = "__cdc_known_position"


def drop_stale(row_changes: DataFrame, known: Sequence[DataFrame], keys: Sequence[str]) -> tuple[DataFrame, int]:
    """Return the row changes newer than anything known of their key, and how many were not.

    Asked only when the microbatch does not lie wholly after what was applied: it joins.

    :param known: frames with the keys and ``__cdc_position``: the target's rows, and the delete markers.
    """
    key_columns = [F.col(sql.name(key)) for key in keys]
    positions = [frame.select(*key_columns, F.col(POSITION).alias(_KNOWN)) for frame in known]
    everything = positions[0]
    for frame in positions[1:]:
        everything = everything.unionByName(frame)
    changed = row_changes.select(*key_columns, POSITION)
    stale = changed.join(everything, list(keys)).filter(F.col(_KNOWN) >= F.col(POSITION)).select(*key_columns).distinct()
    return row_changes.join(stale, list(keys), "left_anti"), stale.count()
