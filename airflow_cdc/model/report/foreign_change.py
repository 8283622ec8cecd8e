"""ForeignChange: a commit by which somebody else changed a flow's table, and the pure rules that recognise one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

from airflow_cdc.model.plain_json import JsonObject

INTENDED = "airflow_cdc: intended"
"""Marker in a commit's user metadata: its author vouches for it, and no flow stops at it."""
APPLICATION, UPKEEP, INTENT, SEEN_THROUGH, REPAIRED = "application", "upkeep", "intent", "seen_through", "repaired"
"""Fields in the metadata of our own commits: the merging application, the application that only maintains the table, the intent's
digest, the table version through which foreign changes were looked for; and for a repair, the version of the flow's last commit that the
table holds again."""

_HARMLESS = frozenset(
    {
        "ADD COLUMN",
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "ADD FEATURE",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "CLUSTER BY",
        "COMPUTE STATS",
        "CREATE TABLE",
        "DOMAIN METADATA CLEANUP",
        "DROP CONSTRAINT",
        "DROP FEATURE",
        "OPTIMIZE",
        "OPTIMIZE CHECKPOINT",
        "REMOVE COLUMN MAPPING",
        "REORG",
        "REORG TABLE UPGRADE UNIFORM",
        "ROW TRACKING BACKFILL",
        "ROW TRACKING UNBACKFILL",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPDATE FIELD METADATA",
        "UPDATE TABLE METADATA",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations, of Delta and delta-rs, that change neither rows nor columns' names. Any other that has neither new data nor new metadata
changed nothing."""
_LOSES_VALUES = frozenset({"DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS"})
"""Operations that change no file, yet remove values, or put them under a name that the source does not have: its own column begins anew,
with NULL in all older rows."""
_RESTORE = "RESTORE"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class ForeignChange(JsonObject):
    """A commit that changed rows, or what they mean to the flow, and is not the flow's."""

    version: int
    operation: str
    at: str | None = None
    """Commit time in UTC; None where the commit does not record it."""
    by: str | None = None
    """The commit's user, or else its engine."""
    undone: str | None = None
    """The repair that undid it; None where the flow accepted the change."""

    def __str__(self) -> str:
        text = f"version {self.version}: {self.operation}"
        text += f" at {self.at}" if self.at else ""
        text += f" by {self.by}" if self.by else ""
        return text + (f"; {self.undone}" if self.undone else "")


@dataclass(frozen=True)
class TableCommit:
    """Metadata of one commit in a table's log."""

    version: int
    operation: str = "unknown operation"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user metadata where it is a JSON object."""
    is_intended: bool = False
    """Whether its user metadata contains :data:`INTENDED`."""
    at_millis: int | None = None
    by: str | None = None
    has_new_data: bool = True
    """Whether any of its files is marked as a data change; True where only the operation is known."""
    has_new_metadata: bool = False
    """Whether it sets the table's schema or properties."""
    unfreezes: bool = False
    """Whether it sets properties that are fixed when the table is created, such as its keys."""
    is_recorded: bool = False
    """Whether it gives a column the name that the flow had recorded for it before."""

    @property
    def microbatch(self) -> int | None:
        """Number of the merged microbatch; None where it merged none."""
        number = self.metadata.get("microbatch")
        return int(number) if number is not None else None

    @property
    def application(self) -> str:
        """The flow and incarnation that made it; empty where it is not ours."""
        return str(self.metadata.get(APPLICATION) or self.metadata.get(UPKEEP) or "")

    def is_of(self, flow: str) -> bool:
        """Return whether a flow made it, in any life of its state."""
        return self.application.rpartition(":")[0] == flow

    @property
    def changes_rows(self) -> bool:
        """Whether it may have changed rows, or what they mean to the flow: its columns' names, its keys."""
        if self.operation in _LOSES_VALUES:
            return not self.is_recorded
        return self.unfreezes or ((self.has_new_data or self.has_new_metadata) and self.operation not in _HARMLESS)

    @property
    def replaces_all(self) -> bool:
        """Whether it replaced the table's whole content."""
        return self.operation == "WRITE" and self.parameters.get("mode") == "Overwrite" and not self.parameters.get("predicate")

    @property
    def restored(self) -> int | None:
        """The restored version; None where it restored none, or restored by time."""
        version = self.parameters.get("version") if self.operation == _RESTORE else None
        return int(version) if version not in (None, "", "null") else None

    def repaired(self, flow: str) -> int | None:
        """Return the version of the flow's last commit that this repair brought back; None for other commits."""
        version = self.metadata.get(REPAIRED) if self.is_of(flow) else None
        return int(version) if version is not None else None

    def as_change(self, undone: str | None = None) -> ForeignChange:
        """Return the change for a report."""
        at = (_EPOCH + timedelta(milliseconds=self.at_millis)).isoformat(timespec="seconds") if self.at_millis is not None else None
        operation = f"RESTORE to version {self.restored}" if self.restored is not None else self.operation
        return ForeignChange(self.version, operation, at, self.by, undone)


@dataclass(frozen=True)
class ForeignChanges:
    """Changes by others to a flow's table since its last merge."""

    standing: tuple[TableCommit, ...] = ()
    """Commits still in effect, ascending."""
    undone: tuple[ForeignChange, ...] = ()
    """Changes that a repair of the flow undid."""
    merged: int = 0
    """Version of the flow's last commit."""
    through: int = 0
    """Highest number of a microbatch among the commits."""
    vouched: tuple[int, ...] = ()
    """Versions of the changes that somebody vouched for; the archive does not contain them."""


def foreign_changes(commits: Iterable[TableCommit], flow: str, *, known: int) -> ForeignChanges:
    """Return the foreign commits that changed a flow's table.

    A RESTORE undoes the commits after the version that it restores. It is itself no change where that version holds all that the flow has
    merged. The same rule applies to the flow's own repairs, because another run may have merged beside one. Whoever vouches for an
    overwrite of all rows vouches for everything before it.

    :param commits: ascending by version.
    :param known: version of the last merge that the flow's state records.
    """
    found: list[TableCommit] = []
    undone: list[ForeignChange] = []
    vouched: list[int] = []
    merged, through = known, 0
    for commit in commits:
        repaired = commit.repaired(flow)
        if repaired is not None and repaired >= merged:
            how = commit.operation if commit.restored is None else f"RESTORE to version {commit.restored}"
            undone += [change.as_change(f"repaired by version {commit.version} ({how})") for change in found]
            found = []
        elif repaired is None and commit.is_of(flow):
            merged, through = max(merged, commit.version), max(through, commit.microbatch or 0)
        elif commit.restored is not None and commit.restored >= merged:
            found = [change for change in found if change.version <= commit.restored]
        elif commit.is_intended and commit.changes_rows:
            found = [] if commit.replaces_all else found
            vouched = [] if commit.replaces_all else [*vouched, commit.version]
        elif commit.changes_rows and not commit.is_intended:
            found.append(commit)
    return ForeignChanges(tuple(found), tuple(undone), merged, through, tuple(vouched))
