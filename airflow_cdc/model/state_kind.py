"""State kinds: the documents in a lake, the format of each, and the refusal of newer formats.

A document carries ``format``, one whole number per kind. A change of a document's meaning, or of its spelling such that an older version
would misread it, raises its kind's number. A member that an older version may ignore, and whose absence has a meaning, needs no new format.
A document without the number was written before there were formats, and is read as format 1. docs/reference/state.md lists the kinds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from airflow_cdc.model.errors import StateTooNewError, StateUnreadableError
from airflow_cdc.model.files import FileSystem, create_json, read_json, replace_json

FORMAT = "format"
"""Name of the format member."""
_Parsed = TypeVar("_Parsed")


@dataclass(frozen=True)
class StateKind:
    """A kind of state document."""

    name: str
    format: int = 1
    """The format that this version writes; it reads every format up to it."""
    when_unreadable: str = "Restore it from a backup."
    """Next step where a document's shape does not match its format."""

    def framed(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document with its format."""
        return {FORMAT: self.format, **document}

    def check(self, document: Mapping[str, Any], *, where: str, owner: str) -> None:
        """Do nothing where this version knows a document's format.

        :param where: the file, or the commit, that holds it.
        :param owner: its owner: ``flow shop.public.orders``.
        :raises StateTooNewError: when a newer version wrote it.
        :raises StateUnreadableError: when the format is no whole number.
        """
        seen = document.get(FORMAT, 1)
        if not isinstance(seen, int) or isinstance(seen, bool):
            raise StateUnreadableError(
                f"The {self.name} of {owner} ({where}) has format {seen!r}, expected a whole number.", next_step=self.when_unreadable
            )
        if seen > self.format:
            raise StateTooNewError(
                f"The {self.name} of {owner} ({where}) has format {seen}; this version of airflow-cdc knows formats up to {self.format}.",
                next_step="Upgrade airflow-cdc to the version that wrote it, or a newer one, wherever it runs: in Airflow, in the jobs'"
                " cluster, at the terminal.",
                path=where,
                format=seen,
                known=self.format,
            )

    def parse(self, document: dict[str, Any], make: Callable[[dict[str, Any]], _Parsed], *, where: str, owner: str) -> _Parsed:
        """Return a document's parsed content.

        :param make: parses the document; its ``KeyError`` and the like mean another shape.
        :raises StateTooNewError, StateUnreadableError: as :meth:`check`; or when the document has another shape.
        """
        self.check(document, where=where, owner=owner)
        try:
            return make(document)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise StateUnreadableError(
                f"The {self.name} of {owner} ({where}) has another shape than expected: {type(error).__name__} {error}.",
                next_step=self.when_unreadable,
            ) from error

    def read(self, fs: FileSystem, path: str, make: Callable[[dict[str, Any]], _Parsed], *, owner: str) -> _Parsed | None:
        """Return a file's parsed content; None where the file does not exist.

        :raises StateTooNewError, StateUnreadableError: as :meth:`parse`; or when the file holds no JSON object.
        """
        document = read_json(fs, path)
        return None if document is None else self.parse(document, make, where=path, owner=owner)

    def replace(self, fs: FileSystem, path: str, document: Mapping[str, Any]) -> None:
        """Write a file (:func:`airflow_cdc.model.files.replace_json`)."""
        replace_json(fs, path, self.framed(document))

    def create(self, fs: FileSystem, path: str, document: Mapping[str, Any]) -> bool:
        """Write a file unless it exists (:func:`airflow_cdc.model.files.create_json`)."""
        return create_json(fs, path, self.framed(document))


_DERIVED = "Remove it; it is rebuilt from the surveys."
_PASSING = "Remove it; the next run writes it anew."

SURVEY = StateKind("survey")
LEDGER = StateKind("ledger", when_unreadable=_DERIVED)
LOOKED = StateKind("record of looks", when_unreadable=_PASSING)
TRANSACTIONS = StateKind("record of transactions", when_unreadable="Remove it; the next run looks into all surveyed files again.")
WAITING = StateKind("record of waiting files", when_unreadable=_PASSING)
SET_ASIDE = StateKind("record of files set aside", when_unreadable=_PASSING)
HELD_TOPICS = StateKind("record of held topics", when_unreadable=_PASSING)
ARCHIVED_SCHEMA = StateKind("archived schema", when_unreadable=_DERIVED)
FLOW = StateKind("flow's identity", when_unreadable="Restore it from a backup; or rebuild the flow.")
INTENT = StateKind("intent", when_unreadable="Restore the flow's state folder whole; or rebuild the flow.")
COMMIT_MARKER = StateKind("commit marker", when_unreadable="Restore the flow's state folder whole; or rebuild the flow.")
CHECKPOINT = StateKind("checkpoint", when_unreadable="Remove it; it is rebuilt from the commit markers.")
COMMIT_METADATA = StateKind("commit metadata", when_unreadable="Rebuild the flow.")
SOURCE_SCHEMA = StateKind("schema", when_unreadable="Hand it over again: airflow-cdc schema import.")
LEASE = StateKind("lease", when_unreadable="Remove it once no run writes the flow.")
REBUILD_NOTE = StateKind("rebuild note", when_unreadable="Remove it, and rebuild into another folder.")
RETYPE_NOTE = StateKind("retype note", when_unreadable="Restore it, or rebuild the flow.")
ANNOUNCED_VERSIONS = StateKind("record of announced versions", when_unreadable="Remove it; tables that change from now on are announced.")
COMPARISON = StateKind("record of a comparison with the source", when_unreadable="Remove it; the next comparison writes it anew.")
JOB_REPORT = StateKind("report", when_unreadable="Give the job and Airflow the same version of airflow-cdc.")

KINDS = (
    SURVEY,
    LEDGER,
    LOOKED,
    TRANSACTIONS,
    WAITING,
    SET_ASIDE,
    HELD_TOPICS,
    ARCHIVED_SCHEMA,
    FLOW,
    INTENT,
    COMMIT_MARKER,
    CHECKPOINT,
    COMMIT_METADATA,
    SOURCE_SCHEMA,
    LEASE,
    REBUILD_NOTE,
    RETYPE_NOTE,
    ANNOUNCED_VERSIONS,
    COMPARISON,
    JOB_REPORT,
)
"""All kinds of state documents."""
