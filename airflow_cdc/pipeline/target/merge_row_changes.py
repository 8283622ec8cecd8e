"""Merge row changes: what a microbatch makes of each key becomes one Delta commit on the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.columns import COMMITTED_AT, MICROBATCH, OFFSET, OP, OP_IF_ABSENT, PARTITION, POSITION, TOLD_AT, UNAVAILABLE
from airflow_cdc.model.operation import FILL, KEEP
from airflow_cdc.pipeline.decode.mongodb import DOCUMENT
from airflow_cdc.pipeline.reconcile.told_at import may_fill, told_at, told_position
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.flag_deletes import MADE_ROOM, Assigned, Vanishing, flagging_clauses, is_taken
from airflow_cdc.pipeline.target.key_range import KeyRange
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What one MERGE of row changes is made of.

    ``__cdc_op`` of a change decides what becomes of a key that the target holds (``d``: its row goes, ``k``: it stays, ``f``: it takes
    what it lacks), ``__cdc_op_if_absent`` of one that it does not.
    """

    row_changes: DataFrame
    """At most one a key."""
    columns: Sequence[str]
    """The source's columns that the changes carry."""
    microbatch: int
    late: bool = False
    """Whether some changes only fill values (``f``)."""
    vanishing: Sequence[Vanishing] = ()
    """What takes rows that no change is about."""
    unread: str = "false"
    """SQL over a row ``t`` and a change ``s``: whether the row is as good as none where it decides what a change means."""
    untold: Collection[str] = ()
    """Columns that some change leaves out (``__cdc_unavailable``): the target's value stays."""
    document_columns: Collection[str] = ()
    """Columns that come with the document and only with it."""
    within: Sequence[KeyRange] = ()
    """Ranges in which the keys of all changes lie, where that is known and nothing vanishes."""


def merge_row_changes(spark: SparkSession, target: TargetTable, merge: Merge) -> None:
    """Make one MERGE commit of row changes."""
    merge.row_changes.createOrReplaceTempView("cdc_row_changes")
    values = _assigned(target, merge)
    if target.flags_deletes:
        clauses = flagging_clauses(values, vanishing=merge.vanishing, late=merge.late, microbatch=merge.microbatch, unread=merge.unread)
    else:
        clauses = _removing_clauses(values, merge)
    # Delta passes over files by what is said of the target alone.
    on_keys = " AND ".join([sql.same_key("t", "s", target.keys), *(keys.of_rows("t") for keys in merge.within)])
    spark.sql(f"MERGE INTO {sql.delta(target.uri)} AS t USING cdc_row_changes AS s ON {on_keys} {' '.join(clauses)}")


def _assigned(target: TargetTable, merge: Merge) -> Assigned:
    """Return what the MERGE assigns to a row that comes, to one that is there, and to one whose change is late."""
    columns, untold = merge.columns, list(merge.untold)
    if target.flags_deletes:
        # A delete leaves all of them to the row.
        untold = [name for name in columns if name not in target.keys]
    elif DOCUMENT in untold:
        untold = [*untold, *merge.document_columns]
    told_with = {name: DOCUMENT if name in merge.document_columns else name for name in columns}
    number = _opaque_number(merge.microbatch)
    inserted = {sql.name(name): f"s.{sql.name(name)}" for name in (*columns, POSITION, OP, COMMITTED_AT, PARTITION, OFFSET)}
    inserted |= {MICROBATCH: number, TOLD_AT: told_at("s", None) if untold else f"s.{TOLD_AT}"}
    kept = {
        sql.name(name): f"if(array_contains(s.{UNAVAILABLE}, {sql.text(told_with[name])}), t.{sql.name(name)}, s.{sql.name(name)})"
        for name in untold
    }
    updated = {**inserted, **kept, TOLD_AT: told_at("s", "t") if untold else f"s.{TOLD_AT}"}
    return Assigned(inserted, updated, _filled(told_with, number))


def _removing_clauses(values: Assigned, merge: Merge) -> list[str]:
    """Return the clauses of a MERGE that removes deleted rows."""
    inserted, updated, filled = values.inserted, values.updated, values.filled
    vanishing, unread = merge.vanishing, merge.unread
    insert = f"INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})"
    taken = is_taken(vanishing)
    clauses = []
    if vanishing:
        # Whatever lived there is gone: the change is one of a key that the target does not hold.
        clauses += [
            f"WHEN MATCHED AND {taken} AND s.{OP_IF_ABSENT} IN ('d', '{KEEP}') THEN DELETE",
            f"WHEN MATCHED AND {taken} THEN UPDATE SET {sql.assign(inserted)}",
        ]
    clauses += [f"WHEN MATCHED AND {MADE_ROOM} AND {unread} THEN DELETE"] if unread != "false" else []
    clauses += [f"WHEN MATCHED AND s.{OP} = '{FILL}' THEN UPDATE SET {sql.assign(filled)}"] if merge.late else []
    clauses += [
        f"WHEN MATCHED AND s.{OP} = 'd' THEN DELETE",
        f"WHEN MATCHED AND s.{OP} <> '{KEEP}' THEN UPDATE SET {sql.assign(updated)}",
        f"WHEN NOT MATCHED AND s.{OP_IF_ABSENT} NOT IN ('d', '{KEEP}') THEN {insert}",
    ]
    return clauses + ([f"WHEN NOT MATCHED BY SOURCE AND {taken} THEN DELETE"] if vanishing else [])


def _opaque_number(number: int) -> str:
    """Return the SQL of a number that Spark does not write into the code it generates.

    With the microbatch's number in it the code would differ from one microbatch to the next, and be compiled and warmed up anew each time.
    """
    # An operation is one letter, and no text of a statement stands in that code.
    return f"CAST(concat('{number}', substr(s.{OP}, 2)) AS BIGINT)"


def _filled(told_with: Mapping[str, str], microbatch: str) -> dict[str, str]:
    """Return the assignments of a change that is late: it fills only what the row's newer events did not tell.

    :param told_with: by column, the one under whose name ``__cdc_told_at`` says who told it.
    :param microbatch: SQL of its number.
    """
    values = {}
    for name, teller in told_with.items():
        fills = f"exists(t.{TOLD_AT}, entry -> entry.column = {sql.text(teller)} AND {may_fill('s', 'entry')})"
        values[sql.name(name)] = f"if({fills}, s.{sql.name(name)}, t.{sql.name(name)})"
    better = f"named_struct('column', entry.column, 'position', {told_position('s', 'entry.column')}, 'known', true)"
    values[TOLD_AT] = f"transform(t.{TOLD_AT}, entry -> if({may_fill('s', 'entry')}, {better}, entry))"
    values[MICROBATCH] = microbatch
    return values
