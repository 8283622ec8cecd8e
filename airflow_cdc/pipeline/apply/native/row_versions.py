"""Fold the row versions of one key in plain Python (docs/explanation/exactness.md#row-versions).

The rules are those of :mod:`airflow_cdc.pipeline.reconcile.fold_row_versions`, for events that carry all values and that nothing voids.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.reconcile.find_repeats import Tied, find_repeats


class Special(Enum):
    """What an image has for a column in place of a text."""

    NULL = "null"
    NOT_CARRIED = "not carried"


Image = tuple[str | Special, ...]
"""One value for each column without the keys."""
_TARGETS_OWN = 0
"""Number of the version that the target may hold; events count from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent:
    """An event of a key."""

    event: int
    """Its number in the microbatch."""
    op: str
    transaction: str | None
    place: Hashable
    """Equal for redelivered copies: as :func:`airflow_cdc.pipeline.reconcile.order_events.shared_place`."""
    partition: int
    offset: int | None
    before: Image | None
    """None where the event has no before image, or one that may be fillers beside the key."""
    after: Image | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFold:
    """What a key's events leave, both if the target holds the key and if it does not."""

    last: int
    """Number of the last event that is no copy."""
    survivor: int | None
    """Number of the event whose row is left, or of the row that was deleted last where those are kept; None where it is none of these
    events'."""
    dies: bool
    """Whether no row is left unless the target's own, where deleted rows are kept."""
    began: int
    """Number of the first event of the last transaction."""
    passed: tuple[tuple[int, int], ...]
    """Numbers of the first and the last event of each earlier transaction, if the outcome depends."""
    op: str
    """Operation if the target holds the key: an upsert's code, ``d``, or :data:`~airflow_cdc.model.operation.KEEP`."""
    op_if_absent: str
    """Operation if it does not."""
    depends: bool
    """Whether what the last transaction leaves depends on whether the key was held before it."""
    copies: int
    first_offset: int | None
    last_offset: int | None
    expects: bool
    """Whether the first event is an update or a delete: then the target should hold the key."""
    deletes: bool
    writes: bool


@dataclass(frozen=True, slots=True)
class _Version:
    """One of the rows that a key holds."""

    image: Image | None
    number: int
    """Of the event that wrote it."""


@dataclass(frozen=True, slots=True)
class _Left:
    """What events leave, for one of the two states before them."""

    row: int | None
    """Number of the event whose row is left; 0: the row before them; None: no row."""
    odd: int
    """Number of events that no database would log so."""
    deleted: int | None
    """As ``row``, of the row that the last event deletes, if it is a delete."""


def fold_versions(delivered: Sequence[KeyEvent], *, keeps_deleted: bool = False, may_repeat: bool = False) -> KeyFold:
    """Return what the events of a key leave.

    :param delivered: at least one, in order, with redelivered copies behind their first delivery.
    :param keeps_deleted: whether a key without a row has the values of the row that was deleted last.
    :param may_repeat: whether events that repeat others show that they are copies.
    """
    events = list(_without_copies(delivered, may_repeat=may_repeat))
    numbered, last = list(enumerate(events, 1)), events[-1]
    in_last = [(number, event) for number, event in numbered if event.transaction == last.transaction]
    held, absent = (_left(numbered, held=is_held) for is_held in (True, False))
    dies = keeps_deleted and absent.row is None and not held.row
    survivor = _later(held, absent, of_deleted=dies and last.op == "d")
    depends = _of_events(_left(in_last, held=True).row) != _of_events(_left(in_last, held=False).row)
    offsets = [event.offset for event in events if event.offset is not None]
    return KeyFold(
        last=last.event,
        survivor=events[survivor - 1].event if survivor else None,
        dies=dies,
        began=in_last[0][1].event,
        op=_operation(events, held.row),
        op_if_absent=_operation(events, absent.row),
        passed=tuple(_stretches([event for event in events if event.transaction != last.transaction])) if depends else (),
        depends=depends,
        copies=len(delivered) - len(events),
        first_offset=min(offsets, default=None),
        last_offset=max(offsets, default=None),
        expects=events[0].op in ("u", "d"),
        deletes=any(event.op == "d" for event in events),
        writes=any(event.op in ("c", "u") for event in events),
    )


def _stretches(events: Sequence[KeyEvent]) -> Iterator[tuple[int, int]]:
    """Yield the numbers of the first and the last event of each transaction."""
    for transaction in dict.fromkeys(event.transaction for event in events):
        theirs = [event.event for event in events if event.transaction == transaction]
        yield theirs[0], theirs[-1]


def _without_copies(delivered: Sequence[KeyEvent], *, may_repeat: bool) -> Iterator[KeyEvent]:
    """Yield the events without redelivered copies, as :func:`airflow_cdc.pipeline.reconcile.order_events.with_copies` finds them."""
    at_place: dict[Hashable, list[int]] = {}
    for number, event in enumerate(delivered):
        at_place.setdefault(event.place, []).append(number)
    copies = {number for numbers in at_place.values() for number in _copies(delivered, numbers, may_repeat=may_repeat)}
    return (event for number, event in enumerate(delivered) if number not in copies)


def _copies(delivered: Sequence[KeyEvent], numbers: Sequence[int], *, may_repeat: bool) -> Iterator[int]:
    """Yield the numbers of the copies among the events at one place."""
    tied = {number: _tied(delivered[number]) for number in numbers}
    if all(each.content == tied[numbers[0]].content for each in tied.values()):
        yield from numbers[1:]
        return
    if not may_repeat:
        return
    runs: dict[int, list[int]] = {}
    for number in numbers:
        runs.setdefault(delivered[number].partition, []).append(number)
    for run in runs.values():
        yield from (run[place] for place in find_repeats([tied[number] for number in run]))


def _tied(event: KeyEvent) -> Tied:
    return Tied(event.op, _hashes(event.before), _hashes(event.after))


def _hashes(image: Image | None) -> tuple[object, ...] | None:
    return None if image is None else tuple(None if value is Special.NOT_CARRIED else value for value in image)


def _later(held: _Left, absent: _Left, *, of_deleted: bool) -> int | None:
    """Return the number of the two answers that is from the later event.

    If one event gave both, the less odd answer wins: what no database does is no likely history.
    """
    one, other = (each.deleted if of_deleted else each.row for each in (held, absent))
    if one is None or other is None:
        return other if one is None else one
    return other if (other, -absent.odd) > (one, -held.odd) else one


def _operation(events: Sequence[KeyEvent], number: int | None) -> str:
    if number is None:
        return "d"
    return events[number - 1].op if number else KEEP


def _of_events(number: int | None) -> int | tuple[()] | None:
    return () if number == _TARGETS_OWN else number


def _left(numbered: Sequence[tuple[int, KeyEvent]], *, held: bool) -> _Left:
    versions = [_Version(None, _TARGETS_OWN)] if held else []
    transaction, deleted = None, None
    odd = 0
    for number, event in numbered:
        goes_on = event.transaction == transaction
        changes_none = event.op in ("u", "d") and not versions
        odd += changes_none or (not goes_on and len(versions) > 1)
        # After a transaction at most one version lives: the newest.
        before, transaction = versions if goes_on else versions[-1:], event.transaction
        subject = _subject(event.before, before) if event.op in ("u", "d") else 0
        deleted = before[subject].number if event.op == "d" and before else None
        versions = _after(event, number, before, subject=subject)
    return _Left(versions[-1].number if versions else None, odd + (len(versions) > 1), deleted)


def _after(event: KeyEvent, number: int, versions: Sequence[_Version], *, subject: int) -> list[_Version]:
    """Return the versions behind an event; ``subject``: place of the one that an update or delete is about."""
    written = _Version(event.after, number)
    if event.op == "c":
        return [*versions, written]
    if event.op == "r":
        return [written]
    # An updated row keeps its place: of two rows under a key, the older is the first to arrive.
    instead = [written] if event.op == "u" else []
    return [*versions[:subject], *instead, *versions[subject + 1 :]]


def _subject(before: Image | None, versions: Sequence[_Version]) -> int:
    """Return the place of the version that a delete or update is about: the one equal to its before image; else one that is equal in all
    columns that both carry, and in at least one; else the oldest.
    """
    if before is None:
        return 0
    equal = next((place for place, version in enumerate(versions) if version.image == before), None)
    if equal is not None:
        return equal
    return next((place for place, version in enumerate(versions) if version.image and _agree(before, version.image)), 0)


def _agree(before: Image, image: Image) -> bool:
    both = [(b, a) for b, a in zip(before, image, strict=True) if Special.NOT_CARRIED not in (b, a)]
    return bool(both) and all(b == a for b, a in both)
