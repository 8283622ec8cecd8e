"""Reach: the range of the source's log and of the archive that a flow's microbatches have covered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.lives import is_earlier
from airflow_cdc.model.position.position import Position

UNKNOWN_PARTITION = "-"
"""Lane name of events whose partition is not recorded in the archive."""


_ALL = ("streamed_from", "streamed_through", "offset_from", "offset_through", "partitions", "is_spread", "outer_transactions")
"""Without one of these fields late events would pass for new ones."""


@dataclass(frozen=True)
class Reach(JsonObject, required=_ALL):
    """First and last positions and offsets by Kafka partition (``-`` where the archive does not record it), of one microbatch or of all."""

    streamed_from: Mapping[str, Position] = field(default_factory=dict)
    streamed_through: Mapping[str, Position] = field(default_factory=dict)
    """Positions of streamed events. A snapshot read's position does not compare with theirs, and counts only where the archive has no
    offsets."""
    offset_from: Mapping[str, int] = field(default_factory=dict)
    offset_through: Mapping[str, int] = field(default_factory=dict)
    """Kafka offsets of all events."""
    partitions: frozenset[str] = frozenset()
    is_spread: bool = False
    """Written for earlier versions, which ask for it; nothing depends on it: each merge looks at the rows themselves."""
    outer_transactions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Identifiers of the first and the last transaction of a microbatch; over all microbatches, of the one that reaches furthest. Only
    where no position shows which events belong together."""

    def __or__(self, other: Reach) -> Reach:
        """Return the union of both ranges."""
        return Reach(
            _each(min, self.streamed_from, other.streamed_from),
            _each(max, self.streamed_through, other.streamed_through),
            _each(min, self.offset_from, other.offset_from),
            _each(max, self.offset_through, other.offset_through),
            self.partitions | other.partitions,
            self.is_spread or other.is_spread,
            {**self.outer_transactions, **other._further_transactions(self)},
        )

    def _further_transactions(self, other: Reach) -> dict[str, Sequence[str]]:
        """Return the transactions of the partitions where this range extends further."""
        theirs = other.streamed_through
        ahead = {name for name, last in self.streamed_through.items() if name not in theirs or last > theirs[name]}
        return {name: texts for name, texts in self.outer_transactions.items() if name in ahead}

    def follows(self, applied: Reach) -> bool:
        """Return whether every streamed event here is of a later transaction than all that were applied, in whatever partition."""
        last = max((place.commit for place in applied.streamed_through.values()), default=None)
        return last is None or all(first.commit > last for first in self.streamed_from.values())

    def may_repeat(self, applied: Reach) -> bool:
        """Return whether events here may have been applied before, or share a transaction with what was.

        Only for a log of events, to which a new event is added whatever it holds: whether an event may change a row, the row says.
        """
        if not applied.partitions:
            return False
        return (
            bool(self.partitions - applied.partitions)
            or not self.follows(applied)
            or any(
                first <= applied.offset_through[partition]
                for partition, first in self.offset_from.items()
                if partition in applied.offset_through
            )
            or self.shares_transaction(applied)
        )

    def highest_of_earlier_lives(self, lane: str) -> Position | None:
        """Return the highest streamed position of a lane's partition in earlier lives of the topic; None where there is none."""
        return max((place for name, place in self.streamed_through.items() if is_earlier(name, lane)), default=None)

    def shares_transaction(self, other: Reach) -> bool:
        """Return whether both may hold events of one transaction, among transactions that only their identifiers distinguish."""
        return any(
            not set(texts).isdisjoint(other.outer_transactions.get(partition, ())) for partition, texts in self.outer_transactions.items()
        )

    def may_hold(self, commits: Sequence[int]) -> bool:
        """Return whether events of any of the given transactions may be here.

        :param commits: commit positions of the transactions, ascending.
        """
        for partition, first in self.streamed_from.items():
            place = bisect_left(commits, first.commit)
            if place < len(commits) and commits[place] <= self.streamed_through[partition].commit:
                return True
        return False


def _each(pick: Any, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pick(part[name] for part in (left, right) if name in part) for name in {*left, *right}}
