"""Facts of a flow's table for people who look after it: columns, files, rows that deletion vectors hide, and its newest commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from airflow_cdc.model.errors import StateTooNewError
from airflow_cdc.model.report.foreign_change import APPLICATION, REPAIRED, UPKEEP
from airflow_cdc.model.state.commit_metadata import metadata_of
from airflow_cdc.pipeline.look.native_table import NativeTable
from airflow_cdc.pipeline.target.table_properties import is_ours

_COUNTED_UP_TO_BYTES = 256 * 1024**2
"""Size of a table above which its rows are not counted where the log does not have their number: each count would read its files."""
_CREATES = ("CREATE TABLE", "CREATE OR REPLACE TABLE", "REPLACE TABLE")
_REWRITES = ("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END")


@dataclass(frozen=True)
class TableColumn:
    """One column of a table."""

    name: str
    type: str
    """Spark SQL type."""
    is_key: bool
    is_ours: bool
    """Whether this package added it."""


@dataclass(frozen=True)
class TableChange:
    """One commit of a table."""

    version: int
    at: str | None
    """In UTC, ISO 8601; None where the commit does not record it."""
    operation: str
    by: str
    """``merge``, ``maintenance``, ``repair``, ``creation``, or ``others`` for a commit that is not ours."""
    microbatch: int | None
    metrics: Mapping[str, str]
    """Delta's operation metrics."""


@dataclass(frozen=True)
class TableDetails:
    """A table as of its newest version."""

    version: int
    mode: str
    """:class:`~airflow_cdc.model.flow.table_mode.TableMode`."""
    rows: int | None
    """Rows that the source has; None where counting them would read a large table."""
    stored_rows: int | None
    """Rows in the files, those included that deletion vectors hide and that are past or deleted; None where the log does not have it."""
    hidden_rows: int | None
    """Rows that deletion vectors hide; None where that is not counted."""
    files: int
    bytes: int
    columns: tuple[TableColumn, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the details as plain JSON values."""
        return {**vars(self), "columns": [dict(vars(column)) for column in self.columns]}


def details_of(table: NativeTable) -> TableDetails:
    """Return a table's details. Counts rows in its files only where these are small.

    :raises NeedsSparkError: where the rows are not read without Spark.
    """
    sizes = table.file_sizes
    stored, size = table.stored_rows, sum(sizes)
    is_cheap = table.counts_by_log or size <= _COUNTED_UP_TO_BYTES
    kept = table.count(live=False) if is_cheap else None
    return TableDetails(
        version=table.version,
        mode=table.mode.value,
        rows=table.count() if is_cheap else None,
        stored_rows=stored,
        hidden_rows=stored - kept if stored is not None and kept is not None else None,
        files=len(sizes),
        bytes=size,
        columns=tuple(
            TableColumn(name, kind, is_key=name in table.keys, is_ours=is_ours(name, table.scd_columns))
            for name, kind in table.types.items()
        ),
    )


def changes_of(table: NativeTable, limit: int) -> list[TableChange]:
    """Return the newest commits that the log still has, the newest first."""
    return [_change(table.uri, commit) for commit in table.delta.history(limit)]


def _change(uri: str, commit: Mapping[str, Any]) -> TableChange:
    version, operation = int(commit["version"]), str(commit.get("operation") or "unknown")
    try:
        ours = metadata_of(commit.get("userMetadata"), table=uri, version=version)
    except StateTooNewError:
        # It is ours all the same; which microbatch it was, a newer version knows.
        ours = {UPKEEP: True}
    millis = commit.get("timestamp")
    return TableChange(
        version=version,
        at=None if millis is None else datetime.fromtimestamp(millis / 1000, timezone.utc).isoformat(timespec="milliseconds"),
        operation=operation,
        by=_author(operation, ours),
        microbatch=ours.get("microbatch"),
        metrics={name: str(value) for name, value in (commit.get("operationMetrics") or {}).items()},
    )


def _author(operation: str, ours: Mapping[str, Any]) -> str:
    if ours.get(REPAIRED) is not None:
        return "repair"
    if ours.get("microbatch") is not None or ours.get(APPLICATION):
        return "merge"
    if operation in _REWRITES or ours.get(UPKEEP):
        return "maintenance"
    return "creation" if operation in _CREATES else "others"
