"""Reads the demo's tables with delta-rs: another implementation of Delta is an independent check, and needs no second JVM."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from airflow_cdc.console import plain
from airflow_cdc.model.columns import is_reserved
from airflow_cdc.model.places import quarantine_uri


def read_tables(lake: Path, flows: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of flows, with the source's columns only, as plain values (:func:`airflow_cdc.console.plain`)."""
    return {flow: [_without_ours(row) for row in _rows(lake / flow, "1")] for flow in flows}


def read_quarantine(lake: Path, flows: Iterable[str]) -> list[dict[str, Any]]:
    """Return the quarantined records of flows, in archive order, as plain values (``record.quarantine.QUARANTINE_SCHEMA``)."""
    tables = {flow: Path(quarantine_uri(str(lake), flow)) for flow in flows}
    return [{"flow": flow, **row} for flow, table in tables.items() if table.exists() for row in _rows(table, "microbatch, file, line")]


def _without_ours(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not is_reserved(name)}


def _rows(table: Path, order: str) -> list[dict[str, Any]]:
    import pyarrow
    from deltalake import DeltaTable, QueryBuilder

    # Not DeltaTable.to_pyarrow_table: with it the process sometimes aborts at its end.
    found = QueryBuilder().register("cdc", DeltaTable(str(table))).execute(f"SELECT * FROM cdc ORDER BY {order}")
    return [plain(row) for row in pyarrow.table(found.read_all()).to_pylist()]
