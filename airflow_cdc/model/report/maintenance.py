"""Maintenance: what a lake's tables are kept tidy by, and the report of what was done to each."""

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
"""Below it a reader or writer that began before the clean-up may miss its files; Delta's own bound."""


class TableKind(str, Enum):
    """Which of a flow's Delta tables one is."""

    TARGET = "target"
    DELETE_MARKERS = "delete_markers"
    EXPIRED_MARKERS = "expired_markers"
    QUARANTINE = "quarantine"
    EVENTS = "events"


class Action(str, Enum):
    """What is done to a table."""

    CLUSTER = "cluster"
    """The table gets the columns by which the flow wants its rows to lie together."""
    PURGE = "purge"
    """Files are rewritten without the rows that deletion vectors hide."""
    COMPACT = "compact"
    """Small files become few larger ones, clustered where the table is."""
    EXPIRE = "expire"
    """Delete markers that are older than any late event may be are removed."""
    VACUUM = "vacuum"
    """Files that no version within the retention needs are removed."""


@dataclass(frozen=True)
class MaintenanceSettings:
    """What one run of maintenance does, and to what extent. Checked once, here."""

    vacuum_after: timedelta = SAFE_RETENTION
    """How long files stay that the table does not need any more."""
    expire_after: timedelta = timedelta(days=30)
    """How long delete markers stay, counted from the flow's newest microbatch: how late an event may come."""
    purge_from: float = 0.1
    """Share of a table's rows, hidden ones included, that may be hidden by deletion vectors."""
    compact_from: int = 8
    """How many files more than it needs a table may have."""
    allow_short_retention: bool = False
    """Whether ``vacuum_after`` may be less than :data:`SAFE_RETENTION`: Delta's own check is then off for that one statement."""
    keep_microbatches: int = 64
    """Of so many last microbatches the delete markers stay, however old they are: a cut transaction is put together from them."""
    dry_run: bool = False
    """Whether to tell what would be done, and change nothing."""

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
        """Read settings, retentions in days; numbers and truth values may be texts, as templates render them.

        :raises ConfigurationError: for a setting that does not exist, or anything else.
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
    """What was done to one Delta table; of a dry run, what would be."""

    kind: TableKind
    table: str
    """URI of the table."""
    actions: tuple[Action, ...] = ()
    """In the order in which they were done; none where there was nothing to do."""
    files_before: int = 0
    files_after: int = 0
    """Data files of the newest version; of a dry run as before."""
    bytes_before: int = 0
    bytes_after: int = 0
    version_before: int | None = None
    version_after: int | None = None
    rows_purged: int = 0
    """Rows that deletion vectors hid and that are in no file of the newest version any more."""
    deletion_vectors_purged: int = 0
    markers_removed: int = 0
    """Delete markers that are expired, also of a dry run."""
    files_vacuumed: int = 0
    """Files that were removed for good."""
    retention_hours: float | None = None
    """What the clean-up of files left alone; None where there was none."""

    def line(self) -> str | None:
        """Return what people are told, None where there was nothing to do."""
        if not self.actions:
            return None
        told = [f"{self.files_before} → {self.files_after} files"] if self.files_before != self.files_after else []
        counted = {
            "hidden rows purged": self.rows_purged,
            "delete markers removed": self.markers_removed,
            "old files removed": self.files_vacuumed,
        }
        told += [f"{count} {what}" for what, count in counted.items() if count]
        return f"{self.kind.value}: {', '.join(action.value for action in self.actions)}" + (f" ({', '.join(told)})" if told else "")


@dataclass(frozen=True)
class FlowMaintenance(JsonObject):
    """What was done to one flow's tables and folders."""

    flow: str
    tables: tuple[TableMaintenance, ...] = ()
    staging_removed: int = 0
    """Folders that crashed microbatches left behind."""
    error: dict[str, Any] | None = None
    """Why the flow was not done with (:meth:`airflow_cdc.model.errors.CdcError.to_json`); the others were all the same."""

    def lines(self) -> Iterator[str]:
        """Yield what people are told of the flow."""
        told = [line for table in self.tables if (line := table.line())]
        told += [f"{self.staging_removed} left-over staging folders removed"] if self.staging_removed else []
        if self.error:
            told.append(f"failed: {self.error['type']}: {self.error['message']}")
        yield from (f"{self.flow}: {line}" for line in told or ["nothing to do"])


@dataclass(frozen=True)
class MaintenanceReport(FlowsReport):
    """What one run of maintenance did to a lake."""

    lake: str
    dry_run: bool = False
    flows: tuple[FlowMaintenance, ...] = field(default=())
    error: dict[str, Any] | None = None
    """Set when the run stopped before it could look at any flow."""
    reports_removed: int = 0
    """Job reports that no task has taken and that were old, also of a dry run."""

    def lines(self) -> Iterator[str]:
        """Yield the report as lines for people."""
        yield from super().lines()
        if self.reports_removed:
            yield f"{self.reports_removed} old job reports removed"
