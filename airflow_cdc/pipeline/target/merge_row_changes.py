"""Merge row changes: one Delta commit on the target applies a microbatch's change to each key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.columns import COMMITTED_AT, MICROBATCH, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.operation import FILL, KEEP, MEND
from airflow_cdc.pipeline.decode.mongodb import DOCUMENT
from airflow_cdc.pipeline.reconcile.value_positions import may_fill, value_position, value_positions
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.flag_deletes import MADE_ROOM, Assigned, Vanishing, flagging_clauses, is_taken
from airflow_cdc.pipeline.target.key_range import KeyRange
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The parts of one MERGE of row changes.

    ``__cdc_op`` decides for a key that the target holds (``d``: the row is deleted, ``k``: kept, ``f``: its missing values are
    filled, ``n``: its values are replaced, while its event stays), ``__cdc_op_if_absent`` for a key that it does not hold.
    """

    row_changes: DataFrame
    """At most one per key."""
    columns: Sequence[str]
    """The source's columns that the changes carry."""
    microbatch: int
    late: bool = False
    """Whether some changes only fill or replace values (``f``, ``n``)."""
    vanishing: Sequence[Vanishing] = ()
    """Truncates and snapshots: they remove rows that no change is about."""
    unread: str = "false"
    """SQL over a row ``t`` and a change ``s``: whether the row counts as absent in deciding what a change means."""
    new_columns: Collection[str] = ()
    """Columns that the target lacked until now."""
    left_out: Collection[str] = ()
    """Columns that at least one change leaves out (``__cdc_unavailable``): the target's value stays."""
    document_columns: Collection[str] = ()
    """Columns that arrive with the document and only with it."""
    within: Sequence[KeyRange] = ()
    """Key ranges that contain every change's key, where they are known and nothing vanishes."""


def merge_row_changes(spark: SparkSession, target: TargetTable, merge: Merge) -> None:
    """Make one MERGE commit of row changes."""
    merge.row_changes.createOrReplaceTempView("cdc_row_changes")
    values = _assigned(target, merge)
    if target.flags_deletes:
        clauses = flagging_clauses(values, vanishing=merge.vanishing, late=merge.late, microbatch=merge.microbatch, unread=merge.unread)
    else:
        clauses = _removing_clauses(values, merge)
    # Delta skips files only by conditions on the target alone.
    on_keys = " AND ".join([sql.same_key("t", "s", target.keys), *(keys.of_rows("t") for keys in merge.within)])
    spark.sql(f"MERGE INTO {sql.delta(target.uri)} AS t USING cdc_row_changes AS s ON {on_keys} {' '.join(clauses)}")


def _assigned(target: TargetTable, merge: Merge) -> Assigned:
    """Return what the MERGE assigns to a new row, to an existing row, and to a row with a late change."""
    columns, left_out = merge.columns, list(merge.left_out)
    if target.flags_deletes:
        # A delete keeps all values of the row.
        left_out = [name for name in columns if name not in target.keys]
    elif DOCUMENT in left_out:
        left_out = [*left_out, *merge.document_columns]
    recorded_as = {name: DOCUMENT if name in merge.document_columns else name for name in columns}
    number = _opaque_number(merge.microbatch)
    inserted = {sql.name(name): f"s.{sql.name(name)}" for name in (*columns, POSITION, OP, COMMITTED_AT, PARTITION, OFFSET)}
    of_new, of_held = (value_positions("s", row, new=merge.new_columns) if left_out else f"s.{VALUE_POSITIONS}" for row in (None, "t"))
    inserted |= {MICROBATCH: number, VALUE_POSITIONS: of_new}
    kept = {
        sql.name(name): f"if(array_contains(s.{UNAVAILABLE}, {sql.text(recorded_as[name])}), t.{sql.name(name)}, s.{sql.name(name)})"
        for name in left_out
    }
    updated = {**inserted, **kept, VALUE_POSITIONS: of_held}
    mended = {name: inserted[name] for name in map(sql.name, columns)} | {VALUE_POSITIONS: f"s.{VALUE_POSITIONS}", MICROBATCH: number}
    return Assigned(inserted=inserted, updated=updated, filled=_filled(recorded_as, number), mended=mended)


def _removing_clauses(values: Assigned, merge: Merge) -> list[str]:
    """Return the clauses of a MERGE that removes deleted rows."""
    inserted, updated, filled = values.inserted, values.updated, values.filled
    vanishing, unread = merge.vanishing, merge.unread
    insert = f"INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})"
    taken = is_taken(vanishing)
    clauses = []
    if vanishing:
        # The old row is gone: the change applies as for a key that the target does not hold.
        clauses += [
            f"WHEN MATCHED AND {taken} AND s.{OP_IF_ABSENT} IN ('d', '{KEEP}') THEN DELETE",
            f"WHEN MATCHED AND {taken} THEN UPDATE SET {sql.assign(inserted)}",
        ]
    clauses += [f"WHEN MATCHED AND {MADE_ROOM} AND {unread} THEN DELETE"] if unread != "false" else []
    of_late = {FILL: filled, MEND: values.mended} if merge.late else {}
    clauses += [f"WHEN MATCHED AND s.{OP} = '{op}' THEN UPDATE SET {sql.assign(assigned)}" for op, assigned in of_late.items()]
    clauses += [
        f"WHEN MATCHED AND s.{OP} = 'd' THEN DELETE",
        f"WHEN MATCHED AND s.{OP} <> '{KEEP}' THEN UPDATE SET {sql.assign(updated)}",
        f"WHEN NOT MATCHED AND s.{OP_IF_ABSENT} NOT IN ('d', '{KEEP}') THEN {insert}",
    ]
    return clauses + ([f"WHEN NOT MATCHED BY SOURCE AND {taken} THEN DELETE"] if vanishing else [])


def _opaque_number(number: int) -> str:
    """Return the SQL of a number that Spark does not embed in its generated code.

    An embedded microbatch number would make the code differ from one microbatch to the next: each would be compiled and warmed up again.
    """
    # An operation is one letter, so substr yields ''. Spark inlines no text literals into that code.
    return f"CAST(concat('{number}', substr(s.{OP}, 2)) AS BIGINT)"


def _filled(recorded_as: Mapping[str, str], microbatch: str) -> dict[str, str]:
    """Return the assignments of a late change: it fills only values that the row's newer events left out.

    :param recorded_as: by column, the column under whose name ``__cdc_told_at`` records its source event.
    :param microbatch: SQL of its number.
    """
    values = {}
    for name, recorded in recorded_as.items():
        fills = f"exists(t.{VALUE_POSITIONS}, entry -> entry.column = {sql.text(recorded)} AND {may_fill('s', 'entry')})"
        values[sql.name(name)] = f"if({fills}, s.{sql.name(name)}, t.{sql.name(name)})"
    better = f"named_struct('column', entry.column, 'position', {value_position('s', 'entry.column')}, 'known', true)"
    values[VALUE_POSITIONS] = f"transform(t.{VALUE_POSITIONS}, entry -> if({may_fill('s', 'entry')}, {better}, entry))"
    values[MICROBATCH] = microbatch
    return values
