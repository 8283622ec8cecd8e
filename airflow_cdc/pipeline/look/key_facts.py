"""What a table and the state beside it hold of one key: its rows, its delete markers, its rejected records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.columns import COMMITTED_AT, DELETED, MICROBATCH, OP, POSITION
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.places import delete_markers_uri, quarantine_uri
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.look.key_outcomes import Written
from airflow_cdc.pipeline.look.key_text import Key
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from airflow_cdc.pipeline.look.story import StoryRow
from airflow_cdc.pipeline.native.duckdb_sql import name as quoted
from airflow_cdc.pipeline.native.duckdb_sql import text as literal


@dataclass(frozen=True)
class KeyFacts:
    """What the table and the state beside it hold of the key."""

    rows: tuple[StoryRow, ...] = ()
    deleted: tuple[Written, ...] = ()
    rejects: Mapping[tuple[str, int], str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def facts_of(lake: str, state: FlowState, table: NativeTable | None, key: Key, files: Iterable[str]) -> KeyFacts:
    """Return what is found of a key without Spark.

    :param table: the flow's table; None: its rows are not searched.
    :param files: files with records of the key, whose rejects are looked up.
    """
    notes: list[str] = []
    rows: tuple[StoryRow, ...] = ()
    deleted: tuple[Written, ...] = ()
    rejects: dict[tuple[str, int], str] = {}
    try:
        rows = tuple(_row(table, each) for each in table.rows(list(table.types), where=_where(key, table), history=True)) if table else ()
        markers = open_table(delete_markers_uri(lake, state.folder))
        if markers:
            found = markers.rows([POSITION, OP, MICROBATCH], where=_where(key, markers), history=True)
            own = {
                Written(each[MICROBATCH], position, "d") for each in found if each[OP] == "d" and (position := _position(each[POSITION]))
            }
            deleted = tuple(sorted(own, key=lambda each: each.position))
        quarantine = open_table(quarantine_uri(lake, state.folder)) if files else None
        if quarantine:
            where = f"file IN ({', '.join(map(literal, sorted(files)))})"
            for each in quarantine.rows(["file", "line", "reason", "detail"], where=where):
                rejects[each["file"], each["line"]] = ": ".join(filter(None, (each["reason"], each["detail"])))
    except NeedsSparkError as reason:
        notes.append(f"not everything beside the events was read: {reason}")
    return KeyFacts(rows, deleted, rejects, tuple(notes))


def _where(key: Key, table: NativeTable) -> str:
    conditions = []
    for column, value in key.items():
        kind = table.types[column]
        given = (
            f"from_base64({literal(value.text)})" if kind == "binary" else f"TRY_CAST({literal(value.text)} AS {_CASTS.get(kind, kind)})"
        )
        conditions.append(f"{quoted(column)} = {given}")
    return " AND ".join(conditions)


_CASTS = {"timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP"}


def _position(value: Mapping[str, Any] | None) -> Position | None:
    if value is None or value["commit"] is None:
        return None
    return Position(int(value["commit"]), int(value["change"]), int(value["serial"]))


def _row(table: NativeTable, row: Mapping[str, Any]) -> StoryRow:
    live = {TableMode.FLAGGED: not row.get(DELETED), TableMode.VERSIONS: bool(row.get(table.scd_columns.is_current))}
    values = {name: row[name] for name in table.source_columns}
    facts = (_position(row.get(POSITION)), row.get(OP), row.get(COMMITTED_AT), row.get(MICROBATCH))
    return StoryRow(values, live.get(table.mode, True), *facts)
