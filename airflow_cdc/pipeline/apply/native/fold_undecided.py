"""Keys whose last event alone does not decide the row: handed on from row to row, or deleted where deleted rows keep their last values.

Such keys are few: their events' images are read in a second pass over the files, and their row versions folded in Python. The result is
that of :func:`airflow_cdc.pipeline.apply.fold_changes.resolve_hazards`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

from airflow_cdc.model.columns import (
    BEGAN,
    COMMITTED_AT,
    DEPENDS,
    OFFSET,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    PASSED,
    POSITION,
    TRANSACTION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.pipeline.apply.native.decode_sql import EVENTS
from airflow_cdc.pipeline.apply.native.fold_sql import CHANGES, Fold, in_order, names_of, positions_of
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.left_out import LEFT_OUT
from airflow_cdc.pipeline.apply.native.row_versions import Image, KeyEvent, KeyFold, Special, fold_versions
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.fillers import FILLERS
from airflow_cdc.pipeline.decode.unavailable_values import PLACEHOLDER_TEXTS
from airflow_cdc.pipeline.native.connect_duckdb import rows_by_name
from airflow_cdc.pipeline.native.duckdb_sql import of_source

CHOSEN = "cdc_chosen"
"""The table of the numbers of their events (``event``)."""
_LATEST, _FOLDS, _STRETCHES, _FOLDED = "cdc_latest", "cdc_folds", "cdc_stretches", "cdc_folded"
MOST_EVENTS = 100_000
"""Events that Python folds, in about a second; many more are no few exceptions."""
_PLACEHOLDERS = frozenset(PLACEHOLDER_TEXTS)
_COUNTED = ("copies", "first_offset", "last_offset", "expects", "deletes", "writes")
"""Sums over a key's events that its copies do not count for."""


def choose_events(connection: Any, how: Fold) -> list[list[dict[str, Any]]]:
    """Make :data:`CHOSEN`, and return the events of each such key in order.

    :raises HandedOver: where they are many, or leave values out.
    """
    import pyarrow as pa

    tables = in_order(how, f"SELECT {how.key} FROM {CHANGES} WHERE hazard")
    left_out = f"{LEFT_OUT} IS NOT NULL" if how.left_out else "false"
    query = f"""
WITH {tables} SELECT event, {how.key}, {OP} AS op, {POSITION} AS position, {TRANSACTION} AS transaction, {PARTITION} AS partition,
  {OFFSET} AS "offset", {left_out} AS leaves_out
FROM ordered ORDER BY {how.key}, {how.in_order}"""
    ((count,),) = connection.execute(f"SELECT sum(events) FROM {CHANGES} WHERE hazard").fetchall()
    if count > MOST_EVENTS:
        raise HandedOver(f"{count:,} events of keys whose last event alone does not decide the row")
    events = rows_by_name(connection.execute(query))
    if any(event["leaves_out"] for event in events):
        raise HandedOver("an unavailable value of a key whose last event alone does not decide the row")
    _create(connection, CHOSEN, {"event": [event["event"] for event in events]}, kinds={"event": pa.int64()})
    return [list(group) for _, group in groupby(events, key=itemgetter(*(f"column {key}" for key in how.keys)))]


def fold_chosen(
    connection: Any, how: Fold, events: Sequence[Sequence[Mapping[str, Any]]], *, images: Sequence[Mapping[str, Any]], rule: ImageRule
) -> None:
    """Give each such key in :data:`CHANGES` the row that its events leave, and all rows
    :data:`~airflow_cdc.pipeline.apply.native.fold_sql.OF_VERSIONS`.

    :param events: from :func:`choose_events`.
    :param images: rows of :func:`airflow_cdc.pipeline.apply.native.decode_sql.read_images`.
    :raises HandedOver: where the files were read in another order than before.
    """
    by_event = {image["event"]: image for image in images}
    if any(by_event.get(event["event"], {}).get("op") != event["op"] for group in events for event in group):
        raise HandedOver("images of other events than those that were read")
    keyed = (list(_with_images(group, by_event, rule, by_commit=how.change_restarts)) for group in events)
    folds = [fold_versions(group, keeps_deleted=how.keeps_deleted, may_repeat=how.change_restarts) for group in keyed]
    connection.execute(f"ALTER TABLE {CHANGES} RENAME TO {_LATEST}")
    _create_folds(connection, folds)
    connection.execute(_fold_latest(how))
    own = f"SELECT *, {OP} AS {OP_IF_ABSENT}, if(false, {POSITION}, NULL) AS {BEGAN}, false AS {DEPENDS} FROM {_LATEST} WHERE NOT hazard"
    connection.execute(f"CREATE TEMP VIEW {CHANGES} AS {own} UNION ALL BY NAME FROM {_FOLDED}")


@dataclass(frozen=True)
class ImageRule:
    """What the texts of a table's images show."""

    omits: Sequence[bool]
    """By column: whether NULL of a before image may stand for a value that it does not carry."""
    has_fillers: bool
    """Whether before images may hold fillers."""

    @classmethod
    def of(cls, decoder: Decoder) -> ImageRule:
        """Return the rule of a microbatch's images."""
        return cls([column in decoder.omitted_before for column in decoder.hashed_columns], decoder.dialect.images.before_has_fillers)

    def before(self, texts: Sequence[str | None] | None) -> Image | None:
        """Return a before image; None where there is none, and where it may be fillers beside the key."""
        if texts is None or (self.has_fillers and all(text is None or text in FILLERS or text in _PLACEHOLDERS for text in texts)):
            return None
        return tuple(_value(text, Special.NOT_CARRIED if omits else Special.NULL) for text, omits in zip(texts, self.omits, strict=True))

    def after(self, texts: Sequence[str | None] | None) -> Image | None:
        """Return an after image; None where there is none."""
        return None if texts is None else tuple(_value(text, Special.NULL) for text in texts)


def _value(text: str | None, null: Special) -> str | Special:
    if text is None:
        return null
    return Special.NOT_CARRIED if text in _PLACEHOLDERS else text


def _with_images(
    events: Sequence[Mapping[str, Any]], images: Mapping[int, Mapping[str, Any]], rule: ImageRule, *, by_commit: bool
) -> Iterator[KeyEvent]:
    for event in events:
        found = images[event["event"]]
        yield KeyEvent(
            event=event["event"],
            op=event["op"],
            transaction=event["transaction"],
            place=event["position"]["commit"] if by_commit else tuple(event["position"].values()),
            partition=event["partition"],
            offset=event["offset"],
            before=rule.before(found["before"]),
            after=rule.after(found["after"]),
        )


def _fold_latest(how: Fold) -> str:
    """Return the statement that makes the table of the folded keys' changes."""
    values = {of_source(column): f"survivor.{of_source(column)}" for column in how.others}
    values |= {OP: "fold.op", OFFSET: f"last.{how.start}", **{name: f"last.{name}" for name in (COMMITTED_AT, PARTITION)}}
    values |= {name: f"fold.{name}" for name in _COUNTED} | {"conflicts": "false", "hazard": "false"}
    if how.keeps_deleted:
        # The values of the row that was deleted last: an event's, else the target's.
        values[UNAVAILABLE] = f"CASE WHEN fold.dies AND fold.survivor IS NULL THEN {names_of(how.others)} END"
        positions = positions_of(how.others, f"survivor.{POSITION}")
        values[VALUE_POSITIONS] = f"CASE WHEN fold.dies AND fold.survivor IS NOT NULL THEN {positions} END"
    replaced = ", ".join(f"{value} AS {column}" for column, value in values.items())
    more = f"fold.op_if_absent AS {OP_IF_ABSENT}, began.{POSITION} AS {BEGAN}, fold.depends AS {DEPENDS}, earlier.{PASSED}"
    stretch = f'{{position: ended.{POSITION}, "partition": ended.{PARTITION}, "offset": ended.{how.start}, began: began.{POSITION}}}'
    same_key = " AND ".join(f"latest.{of_source(key)} = last.{of_source(key)}" for key in how.keys)
    return f"""
CREATE TEMP TABLE {_FOLDED} AS
SELECT latest.* REPLACE ({replaced}), {more}
FROM {_FOLDS} AS fold
  JOIN {EVENTS} AS last ON last.rowid = fold."last"
  JOIN {_LATEST} AS latest ON {same_key}
  JOIN {EVENTS} AS began ON began.rowid = fold.began
  LEFT JOIN {EVENTS} AS survivor ON survivor.rowid = fold.survivor
  LEFT JOIN (
    SELECT passed."last" AS fold, list({stretch} ORDER BY passed.began) AS {PASSED}
    FROM {_STRETCHES} AS passed
      JOIN {EVENTS} AS began ON began.rowid = passed.began JOIN {EVENTS} AS ended ON ended.rowid = passed.ended
    GROUP BY ALL
  ) AS earlier ON earlier.fold = fold."last"
"""


def _create_folds(connection: Any, folds: Sequence[KeyFold]) -> None:
    import pyarrow as pa

    kinds = {name: pa.int64() for name in ("last", "survivor", "began", "copies", "first_offset", "last_offset")}
    kinds |= {name: pa.bool_() for name in ("expects", "deletes", "writes", "depends", "dies")}
    kinds |= {name: pa.string() for name in ("op", "op_if_absent")}
    _create(connection, _FOLDS, {name: [getattr(fold, name) for fold in folds] for name in kinds}, kinds=kinds)
    stretches = [(fold.last, *stretch) for fold in folds for stretch in fold.passed]
    columns = {name: [stretch[place] for stretch in stretches] for place, name in enumerate(("last", "began", "ended"))}
    _create(connection, _STRETCHES, columns, kinds=dict.fromkeys(columns, pa.int64()))


def _create(connection: Any, table: str, columns: Mapping[str, Sequence[Any]], *, kinds: Mapping[str, Any]) -> None:
    """Create a temporary table; ``kinds``: Arrow types by column."""
    import pyarrow as pa

    connection.register("cdc_new", pa.table(dict(columns), schema=pa.schema(list(kinds.items()))))
    try:
        connection.execute(f"CREATE TEMP TABLE {table} AS FROM cdc_new")
    finally:
        connection.unregister("cdc_new")
