"""Errors, terminal or transient by type, and the reasons for which a record is rejected.

An error carries the facts that it was built from. Its text states what, where, seen against expected, and the next step.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class CdcError(Exception):
    """Root of every error this package raises on purpose.

    :param message: what went wrong, where, and what was seen against what was expected.
    :param next_step: what the user can do about it.
    :param facts: the values behind the message, for logs and reports.
    """

    transient = False

    def __init__(self, message: str, *, next_step: str, **facts: Any) -> None:
        super().__init__(f"{message} Next step: {next_step}")
        self.message = message
        self.next_step = next_step
        self.facts = facts

    def to_json(self) -> dict[str, Any]:
        """Return the error in the report's form."""
        return {
            "type": type(self).__name__,
            "message": self.message,
            "next_step": self.next_step,
            "transient": self.transient,
        }


class TerminalError(CdcError):
    """Raised when a retry cannot help: the configuration or the data must change first."""


class TransientError(CdcError):
    """Raised when the same run may succeed later without any change."""

    transient = True


class ConfigurationError(TerminalError):
    """Raised when a setting is missing, unknown or impossible."""


class ArchiveNotFoundError(TerminalError):
    """Raised when the archive root does not exist."""


class ArchivedFileMissingError(TerminalError):
    """Raised when a file that a microbatch owns is no longer in the archive."""


class ArchivedFileChangedError(TransientError):
    """Raised when a file has changed since its survey; nothing was merged, and the next run surveys it again."""


class UnreadableFileError(TerminalError):
    """Raised when an archived file cannot be read to its end: the format differs from its name, it is cut off, or Hadoop refuses its
    name.
    """


class KeysUnknownError(TerminalError):
    """Raised when neither the events nor the flow name the columns that identify a row."""


class UnsupportedConnectorError(TerminalError):
    """Raised when a topic holds events of a connector that has no dialect here, or that its flow's table cannot take."""


class SchemaChangeError(TerminalError):
    """Raised when events no longer fit the target table, and no lossless change of the table would make them fit."""


class TypesUnknownError(TerminalError):
    """Raised when events carry no schema and columns look as if they encode something other than their text; nothing was made."""


class ColumnMismatchError(TerminalError):
    """Raised when one column does not fit most records of a microbatch: its declaration or the source changed; nothing was merged."""


class AllRejectedError(TerminalError):
    """Raised when every event of a flow without a table would be rejected: their shape is not known; nothing was made or set aside."""


class RetypeUnfinishedError(TerminalError):
    """Raised when a retyping was interrupted while it replaced a flow's table: finish it first; nothing was planned."""


class TableModeError(TerminalError):
    """Raised when a flow's table keeps another history than the flow's settings ask for, or names its columns of versions otherwise."""


class CatalogTableError(TerminalError):
    """Raised when a flow's table cannot have its name in Spark's catalog: the name is taken, or the catalog refuses it."""


class ConcurrentRunError(TransientError):
    """Raised when another run of the same flow committed first; nothing was lost."""


class SparkFailedError(TransientError):
    """Raised when Spark itself failed under a microbatch: a lost worker, a full disk, an object store that did not answer."""


class SparkUnreachableError(TransientError):
    """Raised when a Spark Connect server does not answer, or went away during a run."""


class SourceFailedError(TransientError):
    """Raised when a source database, which a table is verified against or whose catalogue is read, does not answer or refuses the query."""


class PlanRefusedError(TerminalError):
    """Raised when Spark refuses what a flow asks for: an unknown type, an unknown column, an invalid name."""


class StorageFailedError(TransientError):
    """Raised when the archive's or the lake's storage failed outside of Spark."""


class UnexpectedError(TerminalError):
    """Raised for an unforeseen error, a defect of this package; the flow stops, the others go on."""


class StateUnreadableError(TerminalError):
    """Raised when a state file in the lake cannot be parsed as its kind."""


class StateTooNewError(TerminalError):
    """Raised when a newer version of airflow-cdc wrote a state document, in a format that this one does not know."""


class StateLostError(TerminalError):
    """Raised when a table holds more than its flow's state records: the state is lost, or older than the table; nothing was planned."""


class TableChangedError(TerminalError):
    """Raised when somebody else changed a flow's table, restored an older version of it or put another one in its place."""


class TableHistoryGoneError(TerminalError):
    """Raised when a version of the target that a late event needs no longer exists."""


class TruncateRefusedError(TerminalError):
    """Raised when the source truncated a table whose flow is set to stop then."""


class OffsetGapError(TerminalError):
    """Raised when offsets are missing from the archive and the flow is set to stop then; nothing behind them was merged."""


class LifeUnknownError(TerminalError):
    """Raised when offsets repeat and nothing proves whether the records repeat too, or the topic was recreated; nothing was merged."""


class SeveralLogsError(TerminalError):
    """Raised when a topic holds events of several sources' logs, whose positions do not compare; nothing was merged."""


class SourceLogWentBackError(TerminalError):
    """Raised when the positions of the source's log went back and no snapshot follows; nothing was merged."""


class OrderUnknownError(TerminalError):
    """Raised when events of one row share a position and nothing in the archive shows which came first; nothing was merged."""


class SnapshotRefusedError(TerminalError):
    """Raised when another snapshot of a captured table came and the flow is set to stop then; nothing was merged."""


class NewTopicError(TerminalError):
    """Raised when the archive holds an undeclared topic and the settings are to stop then; nothing of it was merged."""


class CountMismatchError(TerminalError):
    """Raised when the events of a microbatch do not add up: a defect of this package; nothing was merged."""


class RejectReason(str, Enum):
    """Why one archived record was set aside in the quarantine instead of being merged."""

    MALFORMED_JSON = "malformed_json"
    """The line is not one JSON object to its end, or a member or the key has the wrong shape."""
    INVALID_UTF8 = "invalid_utf8"
    """The line, or its key, holds bytes that are not UTF-8, or half of a surrogate pair, so the source's text is unknown."""
    NOT_A_CHANGE_EVENT = "not_a_change_event"
    """The value has neither a known ``op`` nor the shape of a control event."""
    FOREIGN_SHAPE = "foreign_shape"
    """The record's shape differs from the topic's others: an invalid schema, other keys, names that no table can have."""
    OTHER_CONNECTOR = "other_connector"
    """The record names another connector than the topic's others."""
    MISSING_KEY = "missing_key"
    """A key column is null or absent."""
    UNPROVEN_KEY = "unproven_key"
    """A delete whose key may be made of fillers: its before image does not prove the flow's keys."""
    MISSING_POSITION = "missing_position"
    """The source block lacks the fields that order the event."""
    MISSING_IMAGE = "missing_image"
    """A create, read or update carries no ``after``, and for documents an update carries no change either."""
    INCOMPLETE_ROW = "row_not_told"
    """The table has no key, and the event does not carry the whole row that it removes or leaves behind."""
    VALUE_DOES_NOT_FIT_COLUMN = "value_does_not_fit_column"
    """A value cannot be read as its column's type."""
    ILLEGAL_TOPIC_NAME = "illegal_topic_name"
    """The record names a topic with an illegal name, or one that can have no folder of its own."""
    UNDECLARED_TOPIC = "undeclared_topic"
    """The settings quarantine new topics, and no flow and no route declares this one."""
    UNKNOWN_TOPIC = "unknown_topic"
    """The line names no topic, and its file holds several."""


def storage_refusal(problem: Exception) -> ConfigurationError | None:
    """Return the configuration error behind a storage's refusal; None for other errors and those that pass by themselves."""
    # Temporary keys of a role expire; a retry gets new ones.
    if not isinstance(problem, PermissionError) or "expired" in str(problem).lower():
        return None
    return ConfigurationError(
        f"The storage refuses access: {first_line(problem)}.",
        next_step="Check the storage connections' credentials, and what these may read, list and write.",
    )


def first_line(problem: Exception) -> str:
    """Return the first line of an error: Spark's continue with a plan and Java's stack."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
