"""What became of each event of a key, as far as reports, checkpoint and table prove it. Pure: nothing is read here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport


class Outcome(str, Enum):
    """What became of an archived record of a key, in the words of the report."""

    MERGED = "merged"
    SUPERSEDED = "superseded"
    REDELIVERED = "redelivered"
    STALE = "stale"
    TOMBSTONE = "tombstone"
    REJECTED = "rejected"
    APPENDED = "appended"
    """In the table's history, which keeps every event."""
    HELD = "held"
    """Its file waits for missing offsets or for a transaction."""
    PLANNED = "planned"
    """A microbatch owns its file, and is not committed."""
    PENDING = "pending"
    """No microbatch owns its file."""
    UNCLEAR = "unclear"
    """The state does not show it."""


@dataclass(frozen=True)
class PlacedEvent:
    """A record of a key, as it is judged."""

    number: int
    """Its place in the story."""
    microbatch: int | None
    """The last committed microbatch that read it; None: none has."""
    op: str | None
    position: Position | None
    """With its epoch."""
    waits: Outcome | None = None
    """Why no committed microbatch has read it."""
    rejected: str | None = None
    """Reason and detail of its entry in the quarantine."""


class Written(NamedTuple):
    """What a row or a delete marker of the key records of the event that wrote it."""

    microbatch: int | None
    position: Position
    op: str | None


@dataclass(frozen=True)
class Evidence:
    """What state and table show beside the events."""

    reports: Mapping[int, BatchReport] = field(default_factory=dict)
    written: tuple[Written, ...] = ()
    """Of the key's rows, then of its delete markers."""
    keeps_history: bool = False
    """Whether the table keeps every event."""


@dataclass(frozen=True)
class Judged:
    """An outcome and its reason."""

    outcome: Outcome
    why: str
    by: int | None = None
    """Place in the story of the event that decided it."""
    is_proven: bool = False
    """Whether a row or a delete marker, the quarantine, or the plan shows it; otherwise it follows from the order of the events."""


_ROWS = frozenset(each.value for each in ROW_OPERATIONS)
_WAITS = {
    Outcome.HELD: "its file waits for missing offsets or for a transaction",
    Outcome.PLANNED: "a microbatch owns its file, and is not committed",
    Outcome.PENDING: "no microbatch owns its file",
}


def judge(events: Sequence[PlacedEvent], evidence: Evidence) -> list[Judged]:
    """Return what became of each event.

    :param events: in the key's order.
    """
    newest: PlacedEvent | None = None
    judged: dict[int, Judged] = {}
    microbatches = sorted({event.microbatch for event in events if event.microbatch is not None})
    for microbatch in microbatches:
        mine = [event for event in events if event.microbatch == microbatch]
        rows = [event for event in mine if _is_row(event)]
        for event in mine:
            alone = _by_itself(event, evidence) or _in_microbatch(event, rows, evidence)
            judged[event.number] = alone or _against_earlier(event, newest, evidence)
        merged = [event for event in rows if judged[event.number].outcome is Outcome.MERGED]
        newest = max([*merged, *([newest] if newest else [])], key=lambda each: each.number, default=None)
    return [judged.get(event.number) or _unread(event) for event in events]


def _is_row(event: PlacedEvent) -> bool:
    return event.op is not None and event.rejected is None


def _unread(event: PlacedEvent) -> Judged:
    waits = event.waits or Outcome.UNCLEAR
    return Judged(waits, _WAITS.get(waits, "no microbatch is known that read it"), is_proven=waits is not Outcome.UNCLEAR)


def _by_itself(event: PlacedEvent, evidence: Evidence) -> Judged | None:
    """Return what no other event decides."""
    if event.rejected is not None:
        return Judged(Outcome.REJECTED, event.rejected, is_proven=True)
    if event.op is None:
        return Judged(Outcome.TOMBSTONE, "a null value, which follows a delete", is_proven=True)
    if event.op not in _ROWS:
        return Judged(Outcome.UNCLEAR, f"operation {event.op!r} changes no row by its key")
    if evidence.keeps_history:
        return Judged(Outcome.APPENDED, f"microbatch {event.microbatch} took it into the table's history")
    return None


def _in_microbatch(event: PlacedEvent, rows: Sequence[PlacedEvent], evidence: Evidence) -> Judged | None:
    """Return what the event's own microbatch decides; None for the one that it may have merged, without a proof.

    :param rows: the events of the key in the microbatch that change its row, in order.
    """
    number = event.microbatch
    first = _original(event, rows)
    if first is not event:
        return Judged(Outcome.REDELIVERED, f"microbatch {number} read the same position before", by=first.number)
    decisive, is_proven = _decisive(rows, evidence)
    if decisive is event:
        return Judged(Outcome.MERGED, "the key's row or delete marker carries it", is_proven=True) if is_proven else None
    if decisive.number > event.number:
        return Judged(Outcome.SUPERSEDED, f"a later event of the key is in microbatch {number}", by=decisive.number, is_proven=is_proven)
    why = "the same transaction had given the key to another row before"
    return Judged(Outcome.SUPERSEDED, why, by=decisive.number, is_proven=is_proven)


def _decisive(rows: Sequence[PlacedEvent], evidence: Evidence) -> tuple[PlacedEvent, bool]:
    """Return the event that determined the key's row in its microbatch, and whether a row or a delete marker proves it.

    A row carries the position of its transaction's last event of the key. That may be the delete of another row, which held the key before.
    """
    originals = [event for event in rows if _original(event, rows) is event]
    for microbatch, position, op in evidence.written:
        reached = microbatch == rows[-1].microbatch and any(event.position == position for event in rows)
        same = [event for event in originals if reached and event.op == op and event.position and event.position.commit == position.commit]
        if same:
            return next((event for event in same if event.position == position), same[-1]), True
    return originals[-1], False


def _original(event: PlacedEvent, rows: Sequence[PlacedEvent]) -> PlacedEvent:
    """Return the event of which this one is a copy, itself if it is none."""
    if event.position is None:
        return event
    return next((other for other in rows if other.position == event.position and other.op == event.op), event)


def _against_earlier(event: PlacedEvent, newest: PlacedEvent | None, evidence: Evidence) -> Judged:
    """Return what became of the key's last event in its microbatch: it met what earlier microbatches had applied."""
    number = event.microbatch
    assert number is not None
    report = evidence.reports.get(number)
    if report is None:
        return Judged(Outcome.UNCLEAR, f"the commit marker of microbatch {number} is gone")
    if _stands_before_truncate(event, [report]):
        return Judged(Outcome.SUPERSEDED, f"a later truncate is in microbatch {number}")
    earlier = [each for before, each in evidence.reports.items() if before < number]
    is_same = newest is not None and newest.position is not None and newest.position == event.position
    is_late = newest is not None and (newest.number > event.number or is_same)
    is_void = _stands_before_truncate(event, earlier)
    why = (
        f"microbatch {newest.microbatch} had applied {'the same' if is_same else 'a later'} event of the key"
        if newest and is_late
        else "a truncate behind it was applied"
    )
    if (is_late or is_void) and report.events.stale:
        return Judged(Outcome.STALE, why, by=newest.number if newest and is_late else None)
    if is_late or is_void or not report.events.merged:
        counts = f"microbatch {number} counts {report.events.merged} merged and {report.events.stale} stale"
        return Judged(Outcome.UNCLEAR, f"{why}, and {counts}" if is_late or is_void else counts)
    return Judged(Outcome.MERGED, f"the last event of the key in microbatch {number}, and later than what was applied before")


def _stands_before_truncate(event: PlacedEvent, reports: Sequence[BatchReport]) -> bool:
    truncates = [position for report in reports for position in report.truncated_through.values()]
    return event.position is not None and any(event.position < position for position in truncates)
