"""Cut: the commit position at which all tables of one connector end, and the transactions that it waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from airflow_cdc.model.archive.transactions import MOST_NAMED, OpenTransactions, Place
from airflow_cdc.model.plain_json import BigInt, JsonObject

MOST_AWAITED = 20
"""Most transactions named in a report; ``awaited`` counts all."""


@dataclass(frozen=True)
class CommittedTransaction:
    """A transaction's data for the cut."""

    ended: tuple[int, ...] | None
    """Its END's sort key among all ENDs; None until it has come."""
    commit: int | None
    """Lowest :attr:`~airflow_cdc.model.position.position.Position.commit` of its events; None while none of them is archived."""
    last_commit: int | None
    """Highest one: equal to the lowest, except where a restart of the connector cut the transaction in two."""
    whole: bool


def consistent_before(transactions: Iterable[CommittedTransaction]) -> int | None:
    """Return the commit position before which all transactions are complete: only events below it may be merged.

    A transaction without any archived event has no position of its own: it holds back every transaction that ended with or after it. A
    transaction with events holds back everything at or after them, because its END's place is less exact.

    :return: None where nothing has to wait.
    """
    known = tuple(transactions)
    stop = min((item.ended for item in known if not item.whole and item.commit is None and item.ended is not None), default=None)
    bound = min((item.commit for item in known if item.commit is not None and _waits(item, stop)), default=None)
    if bound is None:
        return None
    # From the highest down: a transaction that the bound would cut in two lowers the bound, which may then cut another one.
    placed = [(item.last_commit, item.commit) for item in known if item.last_commit is not None and item.commit is not None]
    for last, first in sorted(placed, reverse=True):
        if first < bound <= last:
            bound = first
    return bound


def _waits(item: CommittedTransaction, stop: tuple[int, ...] | None) -> bool:
    behind = stop is not None and item.ended is not None and item.ended >= stop
    return behind or not item.whole


@dataclass(frozen=True)
class AwaitedTransaction(JsonObject):
    """An incomplete transaction, which holds back everything at or behind it."""

    transaction: str
    has_end: bool

    def __str__(self) -> str:
        return f"{self.transaction} ({'lacks events' if self.has_end else 'its END is not archived'})"


@dataclass(frozen=True)
class Cut(JsonObject):
    """The position at which the tables of one connector end."""

    prefix: str
    """The connector's ``topic.prefix``."""
    is_proven: bool
    """Whether a transaction topic proves that all transactions below the cut are complete; otherwise it is derived from positions alone."""
    before: BigInt | None = None
    """Commit position: events below it were merged, those at or behind it wait; None where nothing has to wait."""
    waits_for: tuple[AwaitedTransaction, ...] = ()
    """The first incomplete transactions."""
    awaited: int = 0
    """Number of incomplete transactions, listed or not."""

    def lines(self) -> Iterator[str]:
        """Yield lines for people; none where everything archived was merged and proven."""
        if self.before is None:
            return
        if not self.is_proven:
            yield f"{self.prefix}: cut before commit position {self.before}, where one table's events end: no transaction topic proves it"
            return
        named = ", ".join(str(item) for item in self.waits_for[:MOST_NAMED])
        more = f" and {self.awaited - MOST_NAMED} more" if self.awaited > MOST_NAMED else ""
        yield f"{self.prefix}: cut before commit position {self.before}; what stands there waits for transaction {named}{more}"


@dataclass(frozen=True)
class WaitingFiles(JsonObject, required=("surveyed_through", "flows")):
    """Files that wait for transactions, as the last consistent run left them."""

    surveyed_through: int = 0
    """Number of the last survey known to that run; a later one may complete the transactions."""
    flows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Paths by flow."""


def cut_of(prefix: str, known: OpenTransactions, *, applied_through: int | None) -> Cut:
    """Return the cut of a connector whose transaction topic is archived.

    The cut is never below what is applied. A transaction that the tables already hold in part, or that ended before one that they hold, no
    longer holds anything back: it can only be reported.

    :param applied_through: highest commit position in any of the connector's tables; None before the first.
    """
    floor = 0 if applied_through is None else applied_through + 1
    whole = list(known.whole.values())
    shown = [place for place in (*whole, *([known.forgotten] if known.forgotten else [])) if _is_below(place, floor)]
    shown_end = max((place.ended for place in shown if place.ended is not None), default=None)
    open_ones = {key: item.place for key, item in known.open.items() if not _is_past(item.place, floor, shown_end)}
    # Without archived events and END, its position is not known.
    open_ones = {key: place for key, place in open_ones.items() if place != Place()}
    judged = [_committed(place, whole=False) for place in open_ones.values()]
    before = consistent_before([*judged, *(_committed(place, whole=True) for place in whole if not _is_below(place, floor))])
    if any(_may_hold_forgotten(place, known.forgotten) for place in open_ones.values()):
        before = floor
    named = sorted(open_ones, key=lambda key: (open_ones[key].commit is None, open_ones[key].commit or 0, open_ones[key].ended or (), key))
    awaited = tuple(AwaitedTransaction(key, open_ones[key].ended is not None) for key in named[:MOST_AWAITED])
    return Cut(prefix, is_proven=True, before=before, waits_for=awaited, awaited=len(named))


def _is_below(place: Place, floor: int) -> bool:
    return place.commit is not None and place.commit < floor


def _is_past(place: Place, floor: int, shown_end: tuple[int, ...] | None) -> bool:
    if place.commit is not None:
        return _is_below(place, floor)
    return place.ended is not None and shown_end is not None and place.ended <= shown_end


def _may_hold_forgotten(place: Place, forgotten: Place | None) -> bool:
    """Return whether forgotten complete transactions may follow one whose own position is not known."""
    return bool(place.commit is None and place.ended and forgotten and forgotten.ended and place.ended <= forgotten.ended)


def _committed(place: Place, *, whole: bool) -> CommittedTransaction:
    return CommittedTransaction(place.ended, place.commit, place.last_commit, whole)


def whole_through(known: OpenTransactions, *, applied_through: int | None) -> tuple[tuple[int, ...] | None, tuple[AwaitedTransaction, ...]]:
    """Return the first END whose transaction lacks events, and all such transactions.

    Transactions that ended before it are completely archived. As in :func:`cut_of`, what the tables already hold holds nothing back.

    :param applied_through: highest commit position in any of the connector's tables; None before the first.
    """
    floor = 0 if applied_through is None else applied_through + 1
    shown_end = max((place.ended for place in known.whole.values() if place.ended is not None and _is_below(place, floor)), default=None)
    lacking = {key: item.place.ended for key, item in known.open.items() if item.place.ended and not _is_past(item.place, floor, shown_end)}
    named = sorted(lacking, key=lambda key: (lacking[key] or (), key))
    return min((end for end in lacking.values() if end), default=None), tuple(AwaitedTransaction(key, has_end=True) for key in named)
