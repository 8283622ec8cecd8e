"""Find repeats: the events at one position that a restarted connector sent again (docs/explanation/exactness.md#position).

Several connectors give one position to all events of a transaction, so a position and a content do not show a copy. A connector that
restarts sends again all that it sent from some event on. The first of these contradicts what stands before it: a create of a key that a row
has, a delete of a row that is gone, a before image that the event before it did not leave. Repeats that contradict nothing leave the same
row, whether they are copies or not.

That holds where a key is free before another row takes it (MySQL and MariaDB). Other databases check keys when a statement or a transaction
ends: of two rows with equal values, the second may take the key before the first leaves it, and a repeat proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Image = Mapping[str, object] | Sequence[object]
"""Values of an image, or their hashes: by column, or in the columns' order; None for a column that it does not carry."""


@dataclass(frozen=True)
class Tied:
    """One of several events of a key with one position."""

    op: str
    before: Image | None = None
    after: Image | None = None
    has_offset: bool = False

    @property
    def content(self) -> tuple[object, ...]:
        """What copies of the event have in common."""
        return (self.op, hashable(self.before), hashable(self.after))


def find_repeats(events: Sequence[Tied]) -> set[int]:
    """Return the places of the events that repeat earlier ones.

    >>> #  c 1, c 1, d 1     ->  {1}
    >>> #  u A to B, u B to A, u A to B   ->  {}: the third may follow the second

    :param events: of one key and position, in the archive's order.
    """
    firsts: list[int] = []
    found: set[int] = set()
    place = 0
    while place < len(events):
        length = 0
        if firsts and contradicts(events[firsts[-1]], events[place]):
            length = _repeated([events[first].content for first in firsts], [event.content for event in events[place:]])
        if length:
            found.update(range(place, place + length))
        else:
            firsts.append(place)
        place += max(length, 1)
    return found


def _repeated(firsts: Sequence[object], following: Sequence[object]) -> int:
    """Return how many of the following events repeat first deliveries: all from one of them on, as far as there are events."""
    ends = (firsts[start:] for start in range(len(firsts)))
    return max((min(len(end), len(following)) for end in ends if end[: len(following)] == following[: len(end)]), default=0)


def contradicts(one: Tied, following: Tied) -> bool:
    """Return whether an event's image shows that it does not follow another one directly."""
    if one.op == "d":
        return following.op not in ("c", "r")
    if following.op == "c":
        return True
    if following.before is None or one.after is None:
        return False
    return any(None not in (b, a) and b != a for b, a in _beside(following.before, one.after))


def _beside(before: Image, after: Image) -> list[tuple[object, object]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [(value, after.get(name)) for name, value in before.items()]
    assert isinstance(before, Sequence)
    assert isinstance(after, Sequence)
    return list(zip(before, after, strict=True))


def hashable(image: Image | None) -> object:
    """Return an image as a value that can be compared and hashed."""
    if isinstance(image, Mapping):
        return tuple(sorted(image.items(), key=lambda item: item[0]))
    return image if image is None else tuple(image)
