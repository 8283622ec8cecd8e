"""Key changes in one update: each becomes a delete of the old key and a create of the new one.

Debezium splits such an update itself, but only by the record's own key. So it is split here where the flow's keys are others, and where a
connector never splits. Both halves are the event at its place; the create's serial is one higher, as SQL Server tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import KIND
from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.pipeline.decode.source_columns import is_single, member_names
from airflow_cdc.pipeline.spark import sql

HALF = "__cdc_half"
"""Staged column: 1 for a key change's delete, 2 for its create, 0 for any other event."""


def keys_of_records(shapes: Iterable[TopicShape], keys: Sequence[str]) -> frozenset[str]:
    """Return the columns that are in the key of each row event. A single value is the only key column's."""
    rows = {operation.value for operation in ROW_OPERATIONS}
    found = [_names(shape.key_shape, keys) for shape in shapes if shape.kind in rows]
    return frozenset.intersection(*found) if found else frozenset(keys)


def _names(key_shape: str | None, keys: Sequence[str]) -> frozenset[str]:
    if key_shape is None:
        return frozenset()
    return frozenset(keys if is_single(key_shape) else member_names(key_shape))


def changes_key(keys: Iterable[str]) -> str:
    """Return the SQL, of both engines, that is true for an update whose images differ in the key.

    :param keys: quoted names of the key columns.
    """
    moved = " OR ".join(
        f"(payload.before.{name} IS NOT NULL AND payload.before.{name} IS DISTINCT FROM payload.after.{name})" for name in keys
    )
    return f"(payload.before IS NOT NULL AND payload.after IS NOT NULL AND ({moved or 'false'}))"


def split_key_changes(records: DataFrame, keys: Sequence[str], *, keeps_key: bool) -> DataFrame:
    """Return the records with each key change as its two halves (:data:`HALF`).

    :param records: with our kind, ``payload`` as an envelope, and ``key``, the struct of the key's texts.
    :param keeps_key: whether the record's key is the old row's too, and not the new one's alone.
    """
    is_change = f"{KIND} = 'u' AND {changes_key(map(sql.name, keys))}"
    halves = records.withColumn(HALF, F.explode(F.expr(f"if({is_change}, array(1, 2), array(0))")))
    payload = F.col("payload")
    kept = {"before": payload["before"], "after": payload["after"]}
    for half, image in ((1, "after"), (2, "before")):
        kept[image] = F.when(F.col(HALF) != half, payload[image])
    kind = f"CASE {HALF} WHEN 1 THEN 'd' WHEN 2 THEN 'c' ELSE {KIND} END"
    split = {KIND: F.expr(kind), "payload": payload.withField("before", kept["before"]).withField("after", kept["after"])}
    if not keeps_key:
        split["key"] = F.when(F.col(HALF) != 1, F.col("key"))
    return halves.withColumns(split)
