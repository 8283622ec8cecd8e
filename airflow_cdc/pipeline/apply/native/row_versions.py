"""Fold the row versions of one key in plain Python (docs/explanation/exactness.md#row-versions).

The rules are those of :mod:`airflow_cdc.pipeline.reconcile.fold_row_versions`, for events that carry all values and that nothing voids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.operation import KEEP
from airflow_cdc.model.position.lives import LANES

Image = tuple[str | None, ...]
"""One text for each column without the keys; None for NULL."""
_TARGETS_OWN = 0
"""Number of the version that the target may hold; events count from 1."""
_FILLERS = frozenset({"", "0", "0.0", "false", "AA==", "1970-01-01T00:00:00Z"})
"""Values in a before image with only the key, in the other columns (docs/sources/postgresql.md#images-before)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent:
    """An event of a key."""

    event: int
    """Its number in the microbatch."""
    op: str
    transaction: str | None
    position: Any
    """Equal for redelivered copies."""
    partition: int
    offset: int | None
    before: Image | None
    """None where the event has no before image, or only the key."""
    after: Image | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFold:
    """What a key's events leave, both if the target holds the key and if it does not."""

    last: int
    """Number of the last event that is no copy."""
    survivor: int | None
    """Number of the event whose row is left; None where none of these events' is."""
    began: int
    """Number of the first event of the last transaction."""
    op: str
    """Operation if the target holds the key: an upsert's code, ``d``, or :data:`~airflow_cdc.model.operation.KEEP`."""
    op_if_absent: str
    """Operation if it does not."""
    depends: bool
    """Whether what the last transaction leaves depends on whether the key was held before it."""
    copies: int
    first_offset: int | None
    last_offset: int | None
    spreads: bool
    """Whether the events lie in several partitions."""
    deletes: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class _Version:
    """One of the rows that a key holds."""

    image: Image | None
    number: int
    """Of the event that wrote it."""


def fold_versions(delivered: Sequence[KeyEvent]) -> KeyFold:
    """Return what the events of a key leave.

    :param delivered: at least one, in order, with redelivered copies behind their first delivery.
    """
    events = [event for place, event in enumerate(delivered) if not place or event.position != delivered[place - 1].position]
    numbered, last = list(enumerate(events, 1)), events[-1]
    in_last = [(number, event) for number, event in numbered if event.transaction == last.transaction]
    (held, odd_if_held), (absent, odd_if_absent) = (_left(numbered, held=is_held) for is_held in (True, False))
    # If one event gave both answers, the less odd one wins: what no database does is no likely history.
    later = (absent or -1, -odd_if_absent) > (held if held is not None else -1, -odd_if_held)
    survivor = absent if held is None or (absent is not None and later) else held
    offsets = [event.offset for event in events if event.offset is not None]
    return KeyFold(
        last=last.event,
        survivor=events[survivor - 1].event if survivor else None,
        began=in_last[0][1].event,
        op=_operation(events, held),
        op_if_absent=_operation(events, absent),
        depends=_of_events(_left(in_last, held=True)[0]) != _of_events(_left(in_last, held=False)[0]),
        copies=len(delivered) - len(events),
        first_offset=min(offsets, default=None),
        last_offset=max(offsets, default=None),
        spreads=len({event.partition % LANES for event in events}) > 1,
        deletes=any(event.op == "d" for event in events),
        writes=any(event.op in ("c", "u") for event in events),
    )


def _operation(events: Sequence[KeyEvent], number: int | None) -> str:
    if number is None:
        return "d"
    return events[number - 1].op if number else KEEP


def _of_events(number: int | None) -> int | tuple[()] | None:
    return () if number == _TARGETS_OWN else number


def _left(numbered: Sequence[tuple[int, KeyEvent]], *, held: bool) -> tuple[int | None, int]:
    """Return the number of the event whose row is left, None where no row is; and how many events no database would log so."""
    versions = [_Version(None, _TARGETS_OWN)] if held else []
    transaction: str | None = None
    odd = 0
    for number, event in numbered:
        goes_on = event.transaction == transaction
        changes_none = event.op in ("u", "d") and not versions
        odd += changes_none or (not goes_on and len(versions) > 1)
        # After a transaction at most one version lives: the newest.
        versions = _after(event, number, versions if goes_on else versions[-1:])
        transaction = event.transaction
    return versions[-1].number if versions else None, odd + (len(versions) > 1)


def _after(event: KeyEvent, number: int, versions: Sequence[_Version]) -> list[_Version]:
    written = _Version(event.after, number)
    if event.op == "c":
        return [*versions, written]
    if event.op == "r" or (event.op == "u" and not versions):
        return [written]
    subject = _subject(event.before, versions)
    # An updated row keeps its place: of two rows under a key, the older is the first to arrive.
    instead = [written] if event.op == "u" else []
    return [*versions[:subject], *instead, *versions[subject + 1 :]]


def _subject(before: Image | None, versions: Sequence[_Version]) -> int:
    """Return the place of the version that a delete or update is about: the one equal to its before image; else one that does not
    contradict it and agrees in at least one real value; else the oldest.
    """
    if before is None:
        return 0
    equal = next((place for place, version in enumerate(versions) if version.image == before), None)
    if equal is not None:
        return equal
    return next((place for place, version in enumerate(versions) if version.image and _agree(before, version.image)), 0)


def _agree(before: Image, image: Image) -> bool:
    compared = [(b, a) for b, a in zip(before, image, strict=True) if b is not None and a is not None and b not in _FILLERS]
    return bool(compared) and all(b == a for b, a in compared)
