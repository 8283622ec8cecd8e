"""Stories of one table, load by load: PostgreSQL events in few words, and the table as it then is."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.report.apply_report import FlowOutcome
from tests.conftest import Apply
from tests.support.events import Record, postgresql, write_records
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
PLACEHOLDER = "__debezium_unavailable_value"
EPOCH = 1_700_000_000_000
"""Milliseconds: an event at position n is committed n later."""
CHOSEN = ScdColumns(valid_from="valid from", valid_to="t.valid `to`", is_current="s", previous_key="früherer Schlüssel, falls {bekannt}")
"""Chosen names of the columns of versions: SQL or Parquet would refuse them, or our statements use them."""


def event(
    op: str,
    change: int,
    key: int,
    v: str | None = None,
    *,
    commit: int | None = None,
    note: str | None = "-",
    snapshot: str | None = None,
    **more: Any,
) -> Record:
    """Return one event, of a transaction of its own unless ``commit`` names one; a delete's image is its key and fillers.

    :param more: what goes over the record: its offset, its headers.
    """
    images = {"before": {"id": key, "v": "", "note": ""}} if op == "d" else {"after": {"id": key, "v": v, "note": note}}
    made = postgresql(op, commit=None if op == "r" else (commit or change - 1), change=change, **images)
    source = {**made["value"]["source"], "txId": commit or change}
    source |= {"snapshot": snapshot} if snapshot else {}
    return {**made, "value": {**made["value"], "source": source}, **more}


def truncate(change: int) -> Record:
    return {**postgresql("t", commit=change - 1, change=change), "key": None}


def milliseconds(time: Any) -> int | None:
    """Return a time as the position of the event that was committed then."""
    return None if time is None else round(time.timestamp() * 1000) - EPOCH


def under_default_names(rows: Iterable[Mapping[str, Any]], names: ScdColumns) -> list[dict[str, Any]]:
    """Return rows of a table of versions with the default names of its columns, in place of those that its flow chose."""
    defaults = {name: default for default, name in names.by_default.items()}
    found = list(rows)
    assert all(defaults.keys() <= row.keys() and not ({*defaults.values()} - {*defaults}) & row.keys() for row in found), found[:1]
    return [{defaults.get(name, name): value for name, value in row.items()} for row in found]


def overlaps(rows: Iterable[Mapping[str, Any]], keys: Iterable[str]) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Return the versions of a key that overlap with the one before them, by position or by time, or follow a current one."""
    names = tuple(keys)
    ordered = sorted(rows, key=lambda row: (*(row[name] for name in names), tuple(row["__cdc_position"].values())))
    found = []
    for one, other in itertools.pairwise(ordered):
        end, times = one["__cdc_end_position"], (one["__cdc_valid_to"], other["__cdc_valid_from"])
        if [one[name] for name in names] == [other[name] for name in names] and (
            one["__cdc_is_current"]
            or end is None
            or tuple(end.values()) > tuple(other["__cdc_position"].values())
            or (None not in times and times[0] > times[1])
        ):
            found.append((one, other))
    return found


class Table:
    """One table, to which an archive is applied load by load; offsets follow each other unless an event has one."""

    def __init__(self, apply: Apply, spark: SparkSession, folder: Path, flow: CdcFlow) -> None:
        self._apply, self._spark, self._folder, self.flow = apply, spark, folder, flow
        self._loads = self._offset = 0

    def archive(self, *events: Record) -> None:
        """Archive one more file."""
        records = []
        for item in events:
            records.append({**item, "offset": self._offset} if item["offset"] is None else item)
            self._offset += 1
        write_records(self._folder / "archive" / f"{self._loads:03d}.jsonl", records)
        self._loads += 1

    def load(self, *events: Record) -> FlowOutcome:
        """Archive one more file, and apply the archive."""
        self.archive(*events)
        outcome: FlowOutcome = self._apply(self._folder / "archive", self._folder / "lake", flows={TOPIC: self.flow}).flows[0]
        return outcome

    def rows(self, *, history: bool = True) -> list[dict[str, Any]]:
        found = read_rows(self._spark, str(self._folder / "lake"), TOPIC, history=history).rows
        if history and self.flow.mode is TableMode.VERSIONS:
            found = under_default_names(found, self.flow.scd_columns)
            assert overlaps(found, ("id",)) == []
        return found

    def live(self) -> list[tuple[int, str]]:
        return [(row["id"], row["v"]) for row in self.rows(history=False)]
