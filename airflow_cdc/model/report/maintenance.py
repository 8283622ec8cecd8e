"""Maintenance: settings for the upkeep of a lake's tables, and the report of each table's upkeep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.report.flows_report import FlowsReport
from airflow_cdc.model.truth import truth

SAFE_RETENTION = timedelta(days=7)
"""Delta's own lower bound. With less, a reader or writer that began before the clean-up may miss its files."""


class TableKind(str, Enum):
    """The role of one of a flow's Delta tables."""

    TARGET = "target"
    DELETE_MARKERS = "delete_markers"
    EXPIRED_MARKERS = "expired_markers"
    MOVES = "moves"
    QUARANTINE = "quarantine"
    EVENTS = "events"


class Action(str, Enum):
    """One step of a table's upkeep."""

    STATISTICS = "statistics"
    """Correct in the log the statistics of files that delta-rs wrote; their data stays as it is."""
    CLUSTER = "cluster"
    """Set the table's clustering columns as the flow asks."""
    PURGE = "purge"
    """Rewrite files without the rows that deletion vectors hide."""
    COMPACT = "compact"
    """Combine small files into larger ones, clustered where the table is."""
    EXPIRE = "expire"
    """Remove delete markers and moves that are older than any late event may be."""
    VACUUM = "vacuum"
    """Remove files that no version within the retention needs."""


@dataclass(frozen=True)
class MaintenanceSettings:
    """Settings of one run of maintenance. Validated here once."""

    vacuum_after: timedelta = SAFE_RETENTION
    """How long files stay that the table no longer needs."""
    expire_after: timedelta = timedelta(days=30)
    """How long delete markers and moves stay behind the flow's newest microbatch: the longest lateness of an event."""
    purge_from: float = 0.1
    """Share of a table's rows, hidden ones included, that deletion vectors may hide before a purge."""
    compact_from: int = 8
    """Files beyond the number needed at which a table is compacted."""
    allow_short_retention: bool = False
    """Whether ``vacuum_after`` may be less than :data:`SAFE_RETENTION`; Delta's own check is then off for that one statement."""
    keep_microbatches: int = 64
    """Number of last microbatches whose delete markers stay, whatever their age: they are needed to complete a cut transaction."""
    dry_run: bool = False
    """Whether only to report what would be done."""

    def __post_init__(self) -> None:
        if self.vacuum_after < timedelta(0) or self.expire_after < timedelta(0):
            raise ConfigurationError("A retention is negative.", next_step="Give the number of days that files and markers stay.")
        if self.vacuum_after < SAFE_RETENTION and not self.allow_short_retention:
            raise ConfigurationError(
                f"Files are to stay for {self.vacuum_after}, less than {SAFE_RETENTION.days} days: a job that runs meanwhile may lose its"
                " files, and a transaction that late files complete the version it began upon.",
                next_step=f"Give at least {SAFE_RETENTION.days} days; or, where nothing else runs, allow a short retention explicitly.",
            )
        if not 0 < self.purge_from <= 1 or self.compact_from < 1 or self.keep_microbatches < 1:
            raise ConfigurationError(
                f"purge_from is {self.purge_from}, compact_from {self.compact_from}, keep_microbatches {self.keep_microbatches}; expected a"
                " share above 0 and up to 1, and positive whole numbers.",
                next_step="Correct them.",
            )

    def to_json(self) -> dict[str, Any]:
        """Return what :meth:`from_json` reads."""
        return {
            "vacuum_after_days": self.vacuum_after / timedelta(days=1),
            "expire_after_days": self.expire_after / timedelta(days=1),
            "purge_from": self.purge_from,
            "compact_from": self.compact_from,
            "allow_short_retention": self.allow_short_retention,
            "dry_run": self.dry_run,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> MaintenanceSettings:
        """Read settings, with retentions in days. Numbers and booleans may be texts, as templates render them.

        :raises ConfigurationError: for an unknown setting or a wrong value.
        """
        values: dict[str, Any] = {}
        try:
            for name, value in document.items():
                field_name, read = _READERS[name]
                values[field_name] = read(value)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(
                f"Maintenance setting {name} is {value!r}; known are {list(_READERS)}.",
                next_step="Correct it: the last two are true or false, the others numbers.",
            ) from error
        return cls(**values)


def _days(value: Any) -> timedelta:
    return timedelta(days=float(value))


_READERS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "vacuum_after_days": ("vacuum_after", _days),
    "expire_after_days": ("expire_after", _days),
    "purge_from": ("purge_from", float),
    "compact_from": ("compact_from", int),
    "allow_short_retention": ("allow_short_retention", truth),
    "dry_run": ("dry_run", truth),
}


@dataclass(frozen=True)
class TableMaintenance(JsonObject):
    """Upkeep of one Delta table; in a dry run, what would be done."""

    kind: TableKind
    table: str
    """URI of the table."""
    actions: tuple[Action, ...] = ()
    """In the order of execution; empty where there was nothing to do."""
    files_before: int = 0
    files_after: int = 0
    """Data files of the newest version; unchanged in a dry run."""
    bytes_before: int = 0
    bytes_after: int = 0
    version_before: int | None = None
    version_after: int | None = None
    rows_purged: int = 0
    """Hidden rows that are no longer in any file of the newest version."""
    deletion_vectors_purged: int = 0
    markers_removed: int = 0
    """Expired delete markers, or moves, counted in a dry run too."""
    files_vacuumed: int = 0
    """Files that were permanently removed."""
    retention_hours: float | None = None
    """Retention of the clean-up of files, in hours; None where there was none."""

    def line(self) -> str | None:
        """Return a line for people; None where there was nothing to do."""
        if not self.actions:
            return None
        changes = [f"{self.files_before} → {self.files_after} files"] if self.files_before != self.files_after else []
        counted = {
            "hidden rows purged": self.rows_purged,
            f"{self.kind.value.replace('_', ' ')} removed": self.markers_removed,
            "old files removed": self.files_vacuumed,
        }
        changes += [f"{count} {what}" for what, count in counted.items() if count]
        return f"{self.kind.value}: {', '.join(action.value for action in self.actions)}" + (f" ({', '.join(changes)})" if changes else "")


@dataclass(frozen=True)
class FlowMaintenance(JsonObject):
    """Upkeep of one flow's tables and folders."""

    flow: str
    tables: tuple[TableMaintenance, ...] = ()
    staging_removed: int = 0
    """Staging folders that crashed microbatches left behind."""
    error: dict[str, Any] | None = None
    """Why the flow's upkeep failed (:meth:`airflow_cdc.model.errors.CdcError.to_json`); the other flows are not affected."""

    def lines(self) -> Iterator[str]:
        """Yield lines for people on the flow."""
        lines = [line for table in self.tables if (line := table.line())]
        lines += [f"{self.staging_removed} left-over staging folders removed"] if self.staging_removed else []
        if self.error:
            lines.append(f"failed: {self.error['type']}: {self.error['message']}")
        yield from (f"{self.flow}: {line}" for line in lines or ["nothing to do"])


@dataclass(frozen=True)
class MaintenanceReport(FlowsReport):
    """Report of one run of maintenance on a lake."""

    lake: str
    dry_run: bool = False
    flows: tuple[FlowMaintenance, ...] = field(default=())
    error: dict[str, Any] | None = None
    """Set when the run stopped before it reached any flow."""
    reports_removed: int = 0
    """Old job reports that no task has taken, counted in a dry run too."""

    def lines(self) -> Iterator[str]:
        """Yield the report as lines for people."""
        yield from super().lines()
        if self.reports_removed:
            yield f"{self.reports_removed} old job reports removed"
