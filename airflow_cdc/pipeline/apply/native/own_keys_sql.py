"""The native engine's SQL of keys that are not the records': key changes in one update, and deletes whose key may be made of fillers.

As :mod:`airflow_cdc.pipeline.decode.key_changes` and :mod:`airflow_cdc.pipeline.decode.key_guard`, for records whose keys have one shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, PARTITION, POSITION, SNAPSHOT, TRANSACTION
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.left_out import HAS_BEFORE
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.fillers import FILLERS, may_be_filler
from airflow_cdc.pipeline.decode.key_changes import changes_key
from airflow_cdc.pipeline.decode.key_guard import Updates
from airflow_cdc.pipeline.native.connect_duckdb import rows_by_name
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source
from airflow_cdc.pipeline.native.record_lines import START

MOVES = "__cdc_moves"
"""Column of events: whether an update changes the key. It is the create of the new key; :func:`insert_deletes` adds the delete."""


def of_leaves(decoder: Decoder, *, of_key: str, are_values: bool) -> dict[str, str]:
    """Return the SQL, by name, of what is read of a record's old key: :data:`MOVES`, its leaves, and whether each column is in doubt.
    Nothing where no update may be a key change.

    :param of_key: SQL of the record's key.
    """
    if not decoder.splits_key_changes:
        return {}
    keys = decoder.columns.keys
    moves = f"coalesce(payload.op = 'u' AND {changes_key(map(name, keys))}, false)"
    doubts = _doubts(decoder, of_key=of_key, are_values=are_values)
    return {MOVES: moves, **{f"old leaf {key}": f"CAST(payload.before.{name(key)} AS VARCHAR)" for key in keys}, **doubts}


def of_staged(decoder: Decoder) -> dict[str, str]:
    """Return the SQL, by name, of what is kept of them: :data:`MOVES`, the old key with its types, and the doubts."""
    if not decoder.splits_key_changes:
        return {}
    typed = {f"old {key}": _native(decoder, key) for key in decoder.columns.keys}
    return {MOVES: MOVES, **typed, **{f"doubt {key}": name(f"doubt {key}") for key in decoder.columns.keys}}


def _native(decoder: Decoder, key: str) -> str:
    rule = decoder.columns.types[key].native
    assert rule is not None
    return rule(name(f"old leaf {key}"))


def misfits(decoder: Decoder) -> str:
    """Return the cases of an old key that the engine cannot read, over the columns of both."""
    if not decoder.splits_key_changes:
        return ""
    conditions = (f"{name(f'old leaf {key}')} IS NOT NULL AND {name(f'old {key}')} IS NULL" for key in decoder.columns.keys)
    return f"WHEN {MOVES} AND ({' OR '.join(conditions)}) THEN 'a value of the old key'"


def _doubts(decoder: Decoder, *, of_key: str, are_values: bool) -> dict[str, str]:
    """Return the SQL of whether each column of a delete's key may be a filler, as the record alone shows."""
    guard = decoder.guard
    if not guard.has_fillers:
        return {f"doubt {key}": "false" for key in guard.keys}

    def before(column: str) -> str:
        return f"(payload.before.{name(column)} ->> '$')"

    beside = {column: f"NOT {guard.in_doubt(column, before(column))}" for column in decoder.columns.types if column not in guard.of_records}
    in_key = (f"({of_key}.{name(column)} ->> '$')" for column in sorted(guard.of_records))
    key_shows = _any(f"NOT {may_be_filler(text)}" for text in in_key)
    another = f"{_any(beside.values())} AND NOT ({' AND '.join(beside.values()) or 'true'})"
    is_row = (
        "false"
        if guard.defaults is None
        else f"{key_shows} AND {_any(shown for column, shown in beside.items() if column not in guard.keys)}"
    )
    has_null_key = "false" if are_values else "key IS NULL"
    takes = f"payload.before IS NOT NULL AND (payload.op = 'd' OR {MOVES}) AND NOT ({has_null_key} OR {is_row})"
    doubts = {}
    for key in guard.keys:
        own = guard.in_doubt(key, before(key)) + (f" OR {key_shows}" if guard.defaults is None else "")
        doubt = f"NOT {key_shows} AND {another}" if key in guard.of_records else own
        doubts[f"doubt {key}"] = f"coalesce({takes} AND ({doubt}), false)"
    return doubts


def _any(conditions: Iterable[str]) -> str:
    return f"({' OR '.join(conditions) or 'false'})"


def look_at_updates(connection: Any, decoder: Decoder, events: str) -> Updates:
    """Return what the updates and deletes show.

    :raises HandedOver: where a delete's key may be made of fillers.
    """
    in_doubt = " OR ".join(name(f"doubt {key}") for key in decoder.guard.keys)
    is_update = f"({OP} = 'u' OR {MOVES})"
    query = f"""
SELECT count_if({MOVES}) AS changes, count_if({is_update} AND NOT {HAS_BEFORE}) AS unseen,
  coalesce(bool_or({in_doubt}), false) AS in_doubt FROM {events} WHERE NOT is_tombstone"""
    (row,) = rows_by_name(connection.execute(query))
    updates = Updates(changes=row["changes"], unseen=row["unseen"])
    if row["in_doubt"] and decoder.guard.asks(updates):
        raise HandedOver(UNPROVEN)
    return updates


UNPROVEN = "a delete whose key may be made of fillers"


def insert_deletes(decoder: Decoder, events: str) -> str:
    """Return the statement that adds the deletes of the old keys to the events, behind them all."""
    serial = f"{{'commit': {POSITION}.commit, 'change': {POSITION}.change, 'serial': {POSITION}.serial - 1}}"
    values = {of_source(key): name(f"old {key}") for key in decoder.columns.keys}
    values |= {OP: "'d'", "is_tombstone": "false", POSITION: serial, HAS_BEFORE: "true", MOVES: "false"}
    values |= {column: column for column in (PARTITION, name(OFFSET), START, TRANSACTION, SNAPSHOT, COMMITTED_AT)}
    selected = ", ".join(f"{value} AS {column}" for column, value in values.items())
    return f"INSERT INTO {events} BY NAME SELECT {selected} FROM {events} WHERE {MOVES}"


def deletes_in_doubt(decoder: Decoder, events: str) -> str:
    """Return the query of the deletes (``event``) whose own key may be made of fillers alone."""
    filled = " AND ".join(may_be_filler(f"CAST({of_source(key)} AS VARCHAR)") for key in decoder.columns.keys)
    return f"SELECT rowid AS event FROM {events} WHERE {OP} = 'd' AND {HAS_BEFORE} AND {filled}"


def shows_another(decoder: Decoder, image: Mapping[str, Any]) -> bool:
    """Return whether a before image is no whole row for certain, and shows a column beside the key."""
    texts = dict(zip(decoder.hashed_columns, image["before"] or (), strict=False))
    defaults = decoder.guard.defaults or {}
    shown = [not (text is None or text in FILLERS or text == defaults.get(column)) for column, text in texts.items()]
    return any(shown) and not all(shown)
