"""ForeignChange: a commit by which somebody else changed a flow's table. The rules say which commits are one; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

INTENDED = "airflow_cdc: intended"
"""In a commit's user metadata: whoever made it vouches for it, and no flow stops at it."""
APPLICATION, UPKEEP, INTENT, SEEN_THROUGH = "application", "upkeep", "intent", "seen_through"
"""What the metadata of our own commits carries: who merges, who only keeps the table, which files, and through which version of the table
it was looked for foreign changes before."""

_HARMLESS = frozenset(
    {
        "ADD COLUMNS",
        "ADD CONSTRAINT",
        "CHANGE COLUMN",
        "CHANGE COLUMNS",
        "CLUSTER BY",
        "COMPUTE STATS",
        "CREATE TABLE",
        "DROP CONSTRAINT",
        "OPTIMIZE",
        "RENAME COLUMN",
        "REORG",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations that leave every row as it is."""
_LOSES_VALUES = frozenset({"DROP COLUMNS", "REPLACE COLUMNS"})
"""Operations that change no file, and take values away all the same."""
_RESTORE = "RESTORE"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class ForeignChange:
    """A commit that changed rows and is none of the flow's."""

    version: int
    operation: str
    at: str | None = None
    """When, in UTC; None where the commit does not say."""
    by: str | None = None
    """The user, or else the engine, as the commit names it."""

    def __str__(self) -> str:
        when = f" at {self.at}" if self.at else ""
        return f"version {self.version}: {self.operation}{when}" + (f" by {self.by}" if self.by else "")


@dataclass(frozen=True)
class TableCommit:
    """What a commit in a table's log says of itself."""

    version: int
    operation: str = "unknown operation"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The user metadata where it is a JSON object."""
    is_intended: bool = False
    """Whether its user metadata says :data:`INTENDED`."""
    at_millis: int | None = None
    by: str | None = None
    has_new_data: bool = True
    """Whether any of its files is marked as a change of data; True where only the operation is known."""

    @property
    def microbatch(self) -> int | None:
        """Number of the microbatch that it merged; None where it merged none."""
        number = self.metadata.get("microbatch")
        return int(number) if number is not None else None

    @property
    def application(self) -> str:
        """The flow and its incarnation that made it; empty where it is none of ours."""
        return str(self.metadata.get(APPLICATION) or self.metadata.get(UPKEEP) or "")

    def is_of(self, flow: str) -> bool:
        """Tell whether a flow made it, in this life of its state or another."""
        return self.application.rpartition(":")[0] == flow

    @property
    def changes_rows(self) -> bool:
        """Whether rows of the table may differ behind it."""
        return self.operation in _LOSES_VALUES or (self.has_new_data and self.operation not in _HARMLESS)

    @property
    def replaces_all(self) -> bool:
        """Whether nothing of what was there before is left behind it."""
        return self.operation == "WRITE" and self.parameters.get("mode") == "Overwrite" and not self.parameters.get("predicate")

    @property
    def restored(self) -> int | None:
        """The version that it restored; None where it restored none, or by a time."""
        version = self.parameters.get("version") if self.operation == _RESTORE else None
        return int(version) if version not in (None, "", "null") else None

    def as_change(self) -> ForeignChange:
        """Return it as reports name it."""
        at = (_EPOCH + timedelta(milliseconds=self.at_millis)).isoformat(timespec="seconds") if self.at_millis is not None else None
        operation = f"RESTORE to version {self.restored}" if self.restored is not None else self.operation
        return ForeignChange(self.version, operation, at, self.by)


def foreign_changes(commits: Iterable[TableCommit], flow: str, *, known: int) -> tuple[TableCommit, ...]:
    """Return the commits that changed a flow's table, are none of the flow's, and are still in effect.

    A RESTORE takes back what came behind the version that it restores. It is itself no change where that version holds all that the flow
    has merged. Who vouches for an overwrite of all rows has seen to what was there before.

    :param commits: ascending by version.
    :param known: version of the last merge that the flow's state knows.
    """
    found: list[TableCommit] = []
    merged = known
    for commit in commits:
        if commit.is_of(flow):
            merged = max(merged, commit.version)
        elif commit.restored is not None and commit.restored >= merged:
            found = [change for change in found if change.version <= commit.restored]
        elif commit.is_intended:
            found = [] if commit.replaces_all else found
        elif commit.changes_rows:
            found.append(commit)
    return tuple(found)
