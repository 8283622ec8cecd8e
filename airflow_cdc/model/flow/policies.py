"""The choices of a flow's settings: what it does when something happens, and what it says of its source."""

from __future__ import annotations

from enum import Enum


class OnTruncate(str, Enum):
    """What a TRUNCATE in the source does to the target."""

    APPLY = "apply"
    """Remove every row last written before the truncate's position."""
    IGNORE = "ignore"
    """Keep the rows; count the event as control."""
    FAIL = "fail"
    """Stop the flow and leave the decision to a person."""


class OnDelete(str, Enum):
    """What a DELETE in the source does to the target's row."""

    REMOVE = "remove"
    """Remove the row."""
    FLAG = "flag"
    """Keep the row with its last values, flagged as deleted; also where a truncate or a complete snapshot removed it."""


class OnDroppedColumn(str, Enum):
    """What a row holds in a table column that its last event's schema lacks."""

    KEEP = "keep"
    """Its previous value."""
    CLEAR = "clear"
    """NULL."""


class WriteDisposition(str, Enum):
    """How events reach the target."""

    MERGE = "merge"
    """By key."""
    APPEND = "append"
    """Each event as its own row: the table is a change log."""


class OnGap(str, Enum):
    """What happens when offsets are missing between a topic-partition's archived files."""

    WARN = "warn"
    """Continue, and report it."""
    WAIT = "wait"
    """Do not apply the files behind the missing range until it has come."""
    STOP = "stop"
    """Stop the flow and leave the decision to a person."""


class OnAllRejected(str, Enum):
    """What happens when every event of a flow is rejected before it has a table."""

    STOP = "stop"
    """Stop the flow: the shape of its records is not known, and its files stay pending."""
    QUARANTINE = "quarantine"
    """Set them aside, as single rejected records are."""


class OnUnknownTypes(str, Enum):
    """What happens before a column is made whose type comes from JSON values alone, if these look as if they encode something else."""

    STOP = "stop"
    """Stop the flow before the table or the column is made, with the settings to paste."""
    TEXT = "text"
    """The column is STRING: the JSON text as it is."""
    GUESS = "guess"
    """The column gets the type that its JSON values look like."""


class OnForeignChange(str, Enum):
    """What happens when somebody else changed rows of the target since the flow's last merge."""

    STOP = "stop"
    """Stop the flow and leave the decision to a person."""
    WARN = "warn"
    """Continue, and report it."""
    REPAIR = "repair"
    """Undo the change and report it: restore the table's version before it, or rebuild the table from the archive."""


class OnSnapshot(str, Enum):
    """What a complete later snapshot of a table does to the rows that it does not find."""

    AUTO = "auto"
    """Remove them where a connector's initial snapshot proves that they are gone; otherwise keep and count them."""
    REPLACE = "replace"
    """Remove them after any proven snapshot, whatever its kind."""
    KEEP = "keep"
    """Keep and count them."""
    STOP = "stop"
    """Stop the flow before the snapshot is merged, and leave the decision to a person."""


class OnLogWentBack(str, Enum):
    """What happens when the source's log goes back (restore, RESET MASTER, failover without GTID) and no snapshot follows."""

    STOP = "stop"
    """Stop the flow and leave the decision to a person."""
    ACCEPT = "accept"
    """Take the events in the archive's order: a new epoch of the log begins."""
    REDELIVERY = "redelivery"
    """Where offsets are missing below them, take the events for what a restarted connector sent again: its log did not go back."""


class OnOtherLog(str, Enum):
    """What happens when events name another log (``source.name``) than the flow's earlier ones."""

    STOP = "stop"
    """Stop the flow and leave the decision to a person."""
    FOLLOW = "follow"
    """It continues the earlier one: the connector was renamed, or went to another database."""


class OnRepeatedOffsets(str, Enum):
    """How repeated offsets are understood where the archive does not prove it."""

    STOP = "stop"
    """Stop the flow and leave the decision to a person."""
    REDELIVERY = "redelivery"
    """The same records, redelivered."""
    NEW_LIFE = "new_life"
    """Other records: the topic was deleted and recreated, or Kafka moved to a new cluster."""


class OnUnknownOrder(str, Enum):
    """How events of one row with one position are ordered if neither offsets, nor a common file, nor their images show their order."""

    STOP = "stop"
    """Stop the flow and leave the decision to a person."""
    FILE_NAMES = "file_names"
    """By the names of their files: whoever writes the archive gives them names that rise with time."""


class ReplicaIdentity(str, Enum):
    """What the before images of a PostgreSQL table hold (docs/sources/postgresql.md#deletes-that-do-not-name-their-row)."""

    UNKNOWN = "unknown"
    """What each image itself proves."""
    FULL = "full"
    """Whole rows, in all that is archived."""


class OnMissingFile(str, Enum):
    """What happens when a late part of a transaction needs an applied file that is gone from the archive."""

    STOP = "stop"
    """Stop the flow and leave the decision to a person."""
    KEEP = "keep"
    """Order by the events' positions, delete no row that the missing file may have written, and count the keys in the report."""
