"""Trace a row back through its key changes: values that are unavailable under the new key are found under the old one.

A key change is a delete and a create at the same position. The create leaves out unchanged large values, and neither event
carries them (docs/sources/debezium.md#unavailable-values). They belong to the old key: in an earlier event of the microbatch, in the
target's row, or, if that row moved too, one key further back.

Runs Spark jobs: each step back is staged, and the next one taken only if some row still needs a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MOVED, OFFSET, OP, PARTITION, POSITION, RAW, RAW_KEY, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.decode.decode_events import VALUE_POSITIONS_TYPE
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType
from airflow_cdc.pipeline.reconcile.fold_row_versions import HELD, fold_row_versions
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH
from airflow_cdc.pipeline.reconcile.order_events import ORDER
from airflow_cdc.pipeline.reconcile.value_positions import UNKNOWN_NAMES
from airflow_cdc.pipeline.spark import sql

TO = "__cdc_to_"
"""Prefix of the keys of the row that needs values, while the frame's row is the one from which it came."""
FROM = "__cdc_from_"
"""Prefix of the keys of the row from which it came."""
# Prefixed names, because the source's columns may have any other name.
_NAMES = "__cdc_names"
"""array<string>: the columns that are needed."""
_PLACE = "__cdc_place"
"""struct<commit, change>: place of the move."""
_OF_TARGET = "__cdc_of_target"
"""array<string>: the columns that only the target's row can provide."""
_HIDDEN = "__cdc_hidden"
"""array<string>: the columns whose values lie behind an earlier move."""
_FURTHER = "__cdc_further"
"""The earlier move, like ``__cdc_moved``."""
_KNOWN = "__cdc_known"
"""array<string>: the columns that are known now."""
_FIRST = "__cdc_first"
"""Position of the first event under the old key."""
IN_DOUBT = "__cdc_in_doubt"
"""boolean: whether the target's row under the old key is newer than the move, or than events before it: it shows nothing then."""
_NO_NAMES = "CAST(array() AS array<string>)"


@dataclass(frozen=True)
class Traced:
    """Row changes with the values that their rows had under other keys."""

    row_changes: DataFrame
    moves: DataFrame
    """The key changes looked behind: the keys (:data:`TO`) of a row whose values depend on the events before a position under another key
    (:data:`FROM`, NULLs where no event names it); the partition and offset of the row's last event; :data:`IN_DOUBT`."""


def trace_moved_rows(
    row_changes: DataFrame,
    events: DataFrame,
    rows: DataFrame | None,
    *,
    keys: Sequence[str],
    columns: Mapping[str, ColumnType],
    change_restarts: bool,
    write_down: Callable[[DataFrame, str], DataFrame],
) -> Traced:
    """Find the values that rows had under other keys.

    :param row_changes: folded row changes; those with ``__cdc_moved`` need values.
    :param events: all good row events of the batch, ordered, with images.
    :param rows: the target's rows before the microbatch; None if there is no table.
    :param columns: the types of the columns, keys included.
    :param change_restarts: as for :func:`~airflow_cdc.pipeline.reconcile.order_events.order_events`.
    :param write_down: stages a frame under a name, so that a round does not compute the rounds before it again.
    """
    if rows is None:
        rows = events.filter("false").withColumn(VALUE_POSITIONS, F.lit(None).cast(VALUE_POSITIONS_TYPE))
    to = numbered(TO, keys)
    renamed = [F.col(sql.name(key)).alias(name) for key, name in zip(keys, to, strict=True)]
    placed = (PARTITION, OFFSET)
    asking = row_changes.filter(f"{MOVED} IS NOT NULL").select(*renamed, F.expr(UNKNOWN_NAMES).alias(_NAMES), MOVED, *placed)
    moves = []
    # Each step goes to an earlier place in the log, so there is a last one.
    for move in count():
        asking = write_down(asking, f"asking-{move}")
        if asking.isEmpty():
            break
        located = _locate(asking, events, rows, keys=keys, columns=columns)
        earlier = _until_move(located, events, keys)
        folded = fold_row_versions(earlier, to, [*to, *columns], subject_of_last=True, change_restarts=change_restarts)
        # On its own: the optimizer would repeat the fold's long expressions in whatever asks for its result.
        folded = write_down(folded, f"lived-{move}")
        lived = _rows_under_old_keys(located, folded, keys, columns)
        answers = write_down(_with_target(lived, rows, keys, list(columns)), f"answers-{move}")
        row_changes = write_down(_take(row_changes, answers, keys, list(columns)), f"traced-{move}")
        still_open = F.array_except(_NAMES, _KNOWN)
        further = answers.select(*to, still_open.alias(_NAMES), F.col(_FURTHER).alias(MOVED), *placed)
        moves.append(answers.select(*to, *numbered(FROM, keys), POSITION, *placed, IN_DOUBT))
        asking = further.filter(f"{MOVED} IS NOT NULL AND size({_NAMES}) > 0")
    return Traced(row_changes, reduce(DataFrame.unionByName, moves) if moves else _no_moves(asking, columns, keys))


def _no_moves(asking: DataFrame, columns: Mapping[str, ColumnType], keys: Sequence[str]) -> DataFrame:
    old = [F.lit(None).cast(columns[key].sql_type).alias(name) for key, name in zip(keys, numbered(FROM, keys), strict=True)]
    never = F.lit(False).alias(IN_DOUBT)  # noqa: FBT003
    return asking.select(*numbered(TO, keys), *old, F.expr(f"{MOVED}.position").alias(POSITION), PARTITION, OFFSET, never)


def unpaired_moves(moved: DataFrame, events: DataFrame) -> DataFrame:
    """Return the places of row changes that came from a key whose delete is not among the events, one per row change."""
    deletes = events.filter(f"{OP} = 'd'").selectExpr(f"struct({POSITION}.commit, {POSITION}.change) AS place")
    return moved.selectExpr(f"struct({MOVED}.position.commit, {MOVED}.position.change) AS place").join(deletes, "place", "left_anti")


def numbered(prefix: str, keys: Sequence[str]) -> list[str]:
    """Return our own names for the key columns."""
    return [f"{prefix}{place}" for place in range(len(keys))]


def _until_move(located: DataFrame, events: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the events under each moved row's old key up to the move, with the moved row's key."""
    to, old = numbered(TO, keys), numbered(FROM, keys)
    same_key = [F.col(f"a.{name}") == F.col(f"e.{sql.name(key)}") for name, key in zip(old, keys, strict=True)]
    # A read's own position compares with no move: its place in the order does.
    place = f"struct(e.{ORDER}.position.commit, e.{ORDER}.position.change)"
    # Up to the move's own delete: of the several rows that may have had the key, the deleted one is the one that moved.
    until_move = F.expr(f"{place} < a.{_PLACE} OR ({place} = a.{_PLACE} AND e.{OP} = 'd')")
    return events.alias("e").join(located.alias("a"), [*same_key, until_move]).select("e.*", *[f"a.{name}" for name in to], f"a.{HELD}")


def _rows_under_old_keys(located: DataFrame, folded: DataFrame, keys: Sequence[str], columns: Mapping[str, ColumnType]) -> DataFrame:
    """Return for each moved row the row under its old key, as the microbatch's events before the move left it.

    :return: the moved row's key and needed names, the old key, the columns, :data:`_OF_TARGET`, :data:`_HIDDEN` and :data:`_FURTHER`.
    """
    to = numbered(TO, keys)
    lived = folded.filter(f"{OP} NOT IN ('d', '{KEEP}')").select(
        *to,
        *[F.col(sql.name(name)) for name in columns],
        F.coalesce(F.col(UNAVAILABLE), F.expr(_NO_NAMES)).alias(_OF_TARGET),
        F.coalesce(F.expr(UNKNOWN_NAMES), F.expr(_NO_NAMES)).alias(_HIDDEN),
        F.col(MOVED).alias(_FURTHER),
        F.expr(f"{REACH}.first").alias(_FIRST),
    )
    return located.join(lived, to, "left").withColumns(
        {_OF_TARGET: F.coalesce(_OF_TARGET, _NAMES), _HIDDEN: F.coalesce(_HIDDEN, F.expr(_NO_NAMES))}
    )


def _locate(asking: DataFrame, events: DataFrame, rows: DataFrame, *, keys: Sequence[str], columns: Mapping[str, ColumnType]) -> DataFrame:
    """Return the moved rows with their old key (``__cdc_from_…``): the header's, else that of the delete at the same position; else NULLs.

    ``__cdc_held`` says whether the target has a row under it.
    """
    to, old = numbered(TO, keys), numbered(FROM, keys)
    deletes = events.filter(f"{OP} = 'd'").select(
        F.expr(f"struct({POSITION}.commit, {POSITION}.change)").alias(_PLACE),
        F.struct(*[F.col(sql.name(key)).alias(name) for key, name in zip(keys, old, strict=True)]).alias("deleted"),
    )
    placed = asking.withColumn(_PLACE, F.expr(f"struct({MOVED}.position.commit, {MOVED}.position.change)"))
    header = F.from_json(F.col(MOVED)["old_key"], ", ".join(f"{sql.name(key)} STRING" for key in keys))
    # A decimal's rule inspects the record's text for the encoding; here that text is the header's.
    text = dict.fromkeys((RAW, RAW_KEY), F.col(MOVED)["old_key"])
    paired = placed.join(deletes, _PLACE, "left").withColumns({"header": header, **text})
    of_header = F.struct(*[F.expr(columns[key].read(f"header.{sql.name(key)}")).alias(name) for key, name in zip(keys, old, strict=True)])
    old_key = F.when(F.col("header").isNotNull(), of_header).otherwise(F.col("deleted"))
    # With several deletes at one position, any choice would be a guess: the least is deterministic.
    kept = {name: F.first(name).alias(name) for name in (_NAMES, PARTITION, OFFSET)}
    one = paired.groupBy(*to, _PLACE).agg(*kept.values(), F.first(f"{MOVED}.position").alias(POSITION), F.min(old_key).alias("old"))
    held = rows.select(*[F.col(sql.name(key)).alias(name) for key, name in zip(keys, old, strict=True)], F.lit(True).alias(HELD))  # noqa: FBT003
    located = one.select(*to, _PLACE, *kept, POSITION, "old.*")
    return located.join(held, old, "left").fillna({HELD: False})


def _with_target(lived: DataFrame, rows: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return the moved rows with the columns' values, :data:`_KNOWN`, :data:`_FURTHER` and :data:`IN_DOUBT`."""
    old = numbered(FROM, keys)
    on = [F.col(f"a.{name}") == F.col(f"t.{sql.name(key)}") for name, key in zip(old, keys, strict=True)]
    joined = lived.alias("a").join(rows.alias("t"), on, "left")
    held = {name.lower() for name in rows.columns}
    of_target = f"t.{POSITION} IS NOT NULL AND NOT exists(t.{VALUE_POSITIONS}, entry -> entry.column = name AND NOT entry.known)"
    place = f"struct(t.{POSITION}.commit, t.{POSITION}.change)"
    # A read's position compares with no move: rows read behind it are told by their offset.
    is_behind = f"t.{PARTITION} = a.{PARTITION} AND t.{OFFSET} > a.{OFFSET}"
    is_newer = f"CASE WHEN t.{OP} = 'r' THEN {is_behind} ELSE {place} >= a.{_PLACE} OR coalesce(t.{POSITION} > a.{_FIRST}, false) END"
    in_doubt = f"coalesce({is_newer}, false)"
    known = F.expr(
        f"filter(a.{_NAMES}, name -> NOT {in_doubt} AND NOT array_contains(a.{_HIDDEN}, name)"
        f" AND (NOT array_contains(a.{_OF_TARGET}, name) OR coalesce({of_target}, t.{POSITION} IS NOT NULL)))"
    )
    values = [
        F.when(F.array_contains(f"a.{_OF_TARGET}", name), F.col(f"t.{sql.name(name)}") if name.lower() in held else F.lit(None))
        .otherwise(F.col(f"a.{sql.name(name)}"))
        .alias(name)
        for name in columns
    ]
    kept = (*numbered(TO, keys), *numbered(FROM, keys), _NAMES, POSITION, PARTITION, OFFSET)
    further = F.expr(f"CASE WHEN NOT {in_doubt} THEN a.{_FURTHER} END").alias(_FURTHER)
    return joined.select(*[f"a.{name}" for name in kept], *values, known.alias(_KNOWN), further, F.expr(in_doubt).alias(IN_DOUBT))


def _take(row_changes: DataFrame, answers: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Return the row changes with the known values filled in; their position stays that of the move."""
    on = [F.col(f"a.{name}") == F.col(f"s.{sql.name(key)}") for name, key in zip(numbered(TO, keys), keys, strict=True)]
    joined = row_changes.alias("s").join(answers.alias("a"), on, "left")
    is_open = f"exists(s.{VALUE_POSITIONS}, entry -> entry.column = {{name}} AND NOT entry.known AND array_contains(a.{_KNOWN}, {{name}}))"
    values = {
        name: F.when(F.expr(is_open.format(name=sql.text(name))), F.col(f"a.{sql.name(name)}")).otherwise(F.col(f"s.{sql.name(name)}"))
        for name in columns
    }
    now_known = f"entry.known OR coalesce(array_contains(a.{_KNOWN}, entry.column), false)"
    positions = F.expr(
        f"transform(s.{VALUE_POSITIONS}, entry -> named_struct('column', entry.column, 'position', entry.position, 'known', {now_known}))"
    )
    changed = {**values, VALUE_POSITIONS: positions}
    return joined.select(*[changed.get(name, F.col(f"s.{sql.name(name)}")).alias(name) for name in row_changes.columns])
