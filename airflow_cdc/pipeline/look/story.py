"""The form of a key's story: what :func:`airflow_cdc.pipeline.look.key_story.key_story` answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.look.key_outcomes import Judged, Written
from airflow_cdc.pipeline.look.key_values import ValueChange, plain


@dataclass(frozen=True)
class StoryEvent:
    """One archived record of the key."""

    archive: str
    file: str
    line: int
    partition: int | None
    offset: int | None
    op: str | None
    position: Position | None
    spelled: str | None
    """The position's transaction as the source spells it."""
    transaction: str | None
    committed_at: str | None
    """When the source committed it, in ISO 8601."""
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    changes: tuple[ValueChange, ...]
    """What it changed: from its own ``before``, or from the event before it where it carries none."""
    microbatches: tuple[int, ...]
    """Committed microbatches that read it; several where files were read again."""
    judged: Judged

    def to_json(self) -> dict[str, Any]:
        """Return the event as plain JSON values."""
        document = {**vars(self), **vars(self.judged), "changes": [vars(change) for change in self.changes]}
        document |= {"position": self.position and str(self.position), "outcome": self.judged.outcome.value}
        return {name: plain(value) for name, value in document.items() if name != "judged"}


@dataclass(frozen=True)
class StoryRow:
    """A row of the key in the table: the one of today, a deleted one that is flagged, or a version."""

    values: Mapping[str, Any]
    """Of the source's columns."""
    is_live: bool
    position: Position | None
    op: str | None
    committed_at: Any
    microbatch: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON values."""
        return {name: plain(value) for name, value in {**vars(self), "position": self.position and str(self.position)}.items()}


@dataclass(frozen=True)
class Removal:
    """A truncate or a full snapshot by which a microbatch removed the rows of earlier events, or those that the snapshot did not find."""

    microbatch: int
    what: str
    """``truncate`` or ``snapshot``."""
    position: Position
    spelled: str

    def to_json(self) -> dict[str, Any]:
        """Return the removal as plain JSON values."""
        return {**vars(self), "position": str(self.position)}


@dataclass(frozen=True)
class KeyStory:
    """The story of one key of a flow."""

    flow: str
    key: Mapping[str, str]
    connector: str | None
    events: tuple[StoryEvent, ...]
    """In the key's order, as far as positions and offsets show it."""
    rows: tuple[StoryRow, ...]
    deleted: tuple[Written, ...]
    """Its delete markers."""
    removals: tuple[Removal, ...]
    """What removed all rows before a position, whatever their key."""
    unread: Mapping[str, str]
    """By path of an archived file that was not searched: the reason."""
    notes: tuple[str, ...] = ()
    """What else the answer lacks."""
    older: int = 0
    """Newest microbatch that the bounds left out, wholly or in part; 0: none."""

    def to_json(self) -> dict[str, Any]:
        """Return the story as plain JSON values."""
        lists = {"events": [each.to_json() for each in self.events], "rows": [each.to_json() for each in self.rows]}
        deleted = [{"microbatch": each.microbatch, "position": str(each.position)} for each in self.deleted]
        removals = [each.to_json() for each in self.removals]
        return {**vars(self), **lists, "deleted": deleted, "removals": removals, "notes": list(self.notes)}
