"""Complete transactions: the counts that END records announce against the events that are archived.

Debezium's ``provide.transaction.metadata`` writes a topic ``<prefix>.transaction`` of ``{status: BEGIN|END, id, event_count,
data_collections: [{data_collection, event_count}], ts_ms}``, and gives each event ``transaction: {id, total_order,
data_collection_order}``. Snapshot reads belong to no transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.connectors.connector import Cut
from airflow_cdc.model.connectors.registry import entries
from airflow_cdc.model.plain_json import BigInt, JsonArray, JsonObject

MOST_OPEN = 10_000
"""Most incomplete transactions that are followed; beyond that, those first seen longest ago are given up."""
MOST_REMEMBERED = 5_000
"""Most complete transactions that are remembered: a late copy of their events does not reopen them, and the cut knows their positions."""

MOST_LISTED = 20
"""Most entries of missing events listed in a report, one per transaction and topic; the sums count all."""
MOST_NAMED = 5

Ranges = tuple[tuple[int, int], ...]
"""First and last number of each range, both included, ascending and disjoint."""

_GTID = re.compile(r".+[:-](\d+)")
_TRANSACTION_TOPIC = re.compile(r"(?P<prefix>.+)\.transaction")


def transaction_key(identifier: str) -> str:
    """Return the part of a transaction's ``id`` that all its records share: the ``id`` without a position in it."""
    placed = _placed(identifier)
    return placed[1]["key"] if placed else identifier


def end_place(identifier: str, ts_ms: int | None) -> tuple[int, ...]:
    """Return a sort key for a transaction's END among those of its connector: the END itself carries no position.

    Some connectors write a position into the ``id`` (:class:`~airflow_cdc.model.connectors.connector.Cut`). For the others the key is the
    time, and for a GTID also its number, which orders what one server committed in the same millisecond.
    """
    if placed := _placed(identifier):
        cut, found = placed
        return (cut.read(found["place"]),)
    gtid = _GTID.fullmatch(identifier)
    return ts_ms or 0, int(gtid[1]) if gtid else 0


def _placed(identifier: str) -> tuple[Cut, re.Match[str]] | None:
    """Return the rule that finds a position in a transaction's ``id``, and its match; None where the ``id`` has none."""
    cuts = (entry.cut for entry in entries() if entry.cut)
    return next(((cut, found) for cut in cuts if (found := cut.pattern.fullmatch(identifier))), None)


def prefix_of(topic: str) -> str:
    """Return the connector's ``topic.prefix``: transactions of different connectors are unrelated."""
    named = _TRANSACTION_TOPIC.fullmatch(topic)
    return named["prefix"] if named else topic.split(".", maxsplit=1)[0]


def ends_transactions(topic: str) -> bool:
    """Return whether a topic has the name of a connector's transaction topic."""
    return _TRANSACTION_TOPIC.fullmatch(topic) is not None


def topic_of(collection: str, prefix: str, topics: Iterable[str]) -> str | None:
    """Return the archived topic of a data collection; None where it is not archived, or archived under another name.

    The collection may be more qualified than the topic: Oracle's ``ORCLPDB1.APP.ITEMS`` is in topic ``orcl.APP.ITEMS``.
    """
    tails = {topic.removeprefix(f"{prefix}."): topic for topic in topics if topic.startswith(f"{prefix}.")}
    parts = collection.split(".")
    return next((tails[tail] for place in range(len(parts)) if (tail := ".".join(parts[place:])) in tails), None)


def united(*ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of several sets of ranges."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(item for some in ranges for item in some):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


@dataclass(frozen=True)
class Place(JsonArray):
    """Where a transaction stands, as far as its records show."""

    ended: tuple[BigInt, ...] | None = None
    """Its END's sort key among all ENDs (:func:`end_place`); None until it has come."""
    commit: BigInt | None = None
    """Lowest :attr:`~airflow_cdc.model.position.position.Position.commit` of its events; None while none of them is archived."""
    last_commit: BigInt | None = None
    """Highest one: equal to the lowest, except where a restart of the connector cut the transaction in two."""

    def __or__(self, other: Place) -> Place:
        """Return both combined. Of an END that a connector repeats after a crash, the first one counts."""
        return Place(
            min((end for end in (self.ended, other.ended) if end is not None), default=None),
            min((commit for commit in (self.commit, other.commit) if commit is not None), default=None),
            max((commit for commit in (self.last_commit, other.last_commit) if commit is not None), default=None),
        )


@dataclass(frozen=True)
class Transaction(JsonObject, required=("seen", "place")):
    """What is known of one transaction. Its records may come in any order and any number of times."""

    key: str
    expected: Mapping[str, int] | None = None
    """Number of events by data collection, as END announces them; None until it has come."""
    seen: Mapping[str, Ranges] = field(default_factory=dict)
    """By topic: ``data_collection_order`` of its events, which counts from 1."""
    survey: int = 0
    """Number of the first survey that saw it."""
    place: Place = Place()

    def merged(self, other: Transaction) -> Transaction:
        """Return the combined knowledge of both."""
        expected: dict[str, int] | None = None
        if self.expected is not None or other.expected is not None:
            mine, theirs = self.expected or {}, other.expected or {}
            # After a crash the connector may repeat the END without any counts (pg_load, maria_load).
            expected = {name: max(mine.get(name, 0), theirs.get(name, 0)) for name in sorted({*mine, *theirs})}
        seen = {topic: united(self.seen.get(topic, ()), other.seen.get(topic, ())) for topic in sorted({*self.seen, *other.seen})}
        return Transaction(self.key, expected, seen, min(self.survey, other.survey), self.place | other.place)

    def lacking(self, prefix: str, topics: Iterable[str]) -> tuple[Lacking, ...]:
        """Return the archived data collections that lack announced events.

        Empty until the END has come: see :meth:`is_whole`.
        """
        found = []
        for collection, expected in (self.expected or {}).items():
            topic = topic_of(collection, prefix, topics)
            count = sum(last - first + 1 for first, last in self.seen.get(topic, ())) if topic else expected
            if topic and count < expected:
                found.append(Lacking(self.key, topic, expected, count))
        return tuple(found)

    def is_whole(self, prefix: str, topics: Iterable[str]) -> bool:
        """Return whether the END and all events that it announces for archived topics are archived."""
        return self.expected is not None and not self.lacking(prefix, topics)


@dataclass(frozen=True)
class Lacking(JsonObject):
    """Events of one transaction that its END announces and the archive does not hold."""

    transaction: str
    topic: str
    announced: int
    seen: int

    def __str__(self) -> str:
        return f"transaction {self.transaction}: {self.seen} of {self.announced} events of topic {self.topic} are archived"


@dataclass(frozen=True)
class LogStart(JsonObject):
    """Where the newest epoch of a connector's log begins (:mod:`airflow_cdc.model.position.epochs`)."""

    epoch: int = 0
    """Number of earlier epochs: the highest that any flow of the connector's tables knows."""
    since_ms: int | None = None
    """When the source committed the epoch's first archived event, in milliseconds since 1970; None for the first epoch."""

    def holds(self, time_ms: int | None) -> bool:
        """Return whether a commit at this time belongs to this epoch."""
        return self.since_ms is None or (time_ms is not None and time_ms >= self.since_ms)


@dataclass(frozen=True)
class OpenTransactions(JsonObject, own=("open",), required=("open", "whole", "given_up", "forgotten", "start")):
    """The transactions of one connector that are incomplete in the archive."""

    open: Mapping[str, Transaction] = field(default_factory=dict)
    """By key."""
    whole: Mapping[str, Place] = field(default_factory=dict)
    """By key: the most recent complete ones, the newest last."""
    given_up: int = 0
    """Transactions that are no longer followed, because there are more than :data:`MOST_OPEN`."""
    forgotten: Place | None = None
    """The last-ended of the complete transactions that are no longer remembered."""
    start: LogStart = LogStart()
    """Where the epoch of these transactions begins: identifiers and positions of an earlier epoch do not apply to them."""

    def with_records(self, found: Iterable[Transaction], *, prefix: str, topics: Iterable[str]) -> OpenTransactions:
        """Return the transactions after one more survey.

        :param found: transactions in the survey's records; one may come several times.
        :param topics: the topics that are archived and carry rows.
        """
        topics = tuple(topics)
        known, whole = dict(self.open), dict(self.whole)
        for item in found:
            if item.key in whole:
                whole[item.key] |= item.place
            else:
                known[item.key] = known[item.key].merged(item) if item.key in known else item
        done = (item for item in known.values() if item.is_whole(prefix, topics))
        for item in sorted(done, key=lambda item: (item.place.ended or (), item.key)):
            whole[item.key] = known.pop(item.key).place
        newest = sorted(known.values(), key=lambda item: (item.survey, item.key))[-MOST_OPEN:]
        kept = {item.key: item for item in newest}
        remembered = dict(list(whole.items())[-MOST_REMEMBERED:])
        past = [place for key, place in whole.items() if key not in remembered] + ([self.forgotten] if self.forgotten else [])
        forgotten = max(past, key=lambda place: place.ended or (), default=None)
        return OpenTransactions(kept, remembered, self.given_up + len(known) - len(kept), forgotten, self.start)

    def lacking(self, prefix: str, topics: Iterable[str]) -> Iterator[Lacking]:
        """Yield the missing announced events, in the order in which the transactions were first seen."""
        topics = tuple(topics)
        for item in sorted(self.open.values(), key=lambda item: (item.survey, item.key)):
            yield from item.lacking(prefix, topics)

    def to_json(self) -> dict[str, Any]:
        """Return the transactions as plain JSON values, the open ones as a list, since each names its own key."""
        return {"open": [item.to_json() for item in self.open.values()], **super().to_json()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> OpenTransactions:
        """Read what :meth:`to_json` wrote."""
        found = map(Transaction.from_json, document["open"])
        return super().from_json({**document, "open": {item.key: item for item in found}})


@dataclass(frozen=True)
class TransactionReport(JsonObject):
    """Completeness of the archive by one connector's transaction topic."""

    prefix: str
    """The connector's ``topic.prefix``."""
    lacking: tuple[Lacking, ...] = ()
    """Announced events that are not archived; of many, the last."""
    incomplete: int = 0
    """Transactions that lack events, listed or not."""
    without_end: int = 0
    """Transactions whose END is not archived."""
    given_up: int = 0
    """Transactions that are no longer followed."""

    def lines(self) -> Iterator[str]:
        """Yield the lines for logs and the console."""
        yield from (f"{self.prefix}: {item}" for item in self.lacking[-MOST_NAMED:])
        if self.incomplete:
            yield f"{self.prefix}: {self.incomplete} transactions lack events"


@dataclass(frozen=True)
class TransactionLedger(JsonObject, required=("surveyed_through", "connectors")):
    """The transactions of all connectors of an archive, as far as its surveys have been read."""

    surveyed_through: int = 0
    connectors: Mapping[str, OpenTransactions] = field(default_factory=dict)
    """By ``topic.prefix``."""

    def with_survey(self, number: int, found: Mapping[str, Iterable[Transaction]], topics: Iterable[str]) -> TransactionLedger:
        """Return the ledger after one more survey.

        :param found: by prefix: transactions in the survey's records.
        :param topics: the archive's topics that carry rows.
        """
        topics, connectors = tuple(topics), dict(self.connectors)
        for prefix, items in found.items():
            connectors[prefix] = connectors.get(prefix, OpenTransactions()).with_records(items, prefix=prefix, topics=topics)
        return TransactionLedger(number, connectors)

    def start_of(self, prefix: str) -> LogStart:
        """Return the start of the epoch that is followed in a connector's log."""
        return self.connectors.get(prefix, OpenTransactions()).start

    def beginning(self, starts: Mapping[str, LogStart]) -> TransactionLedger:
        """Return the ledger with a fresh epoch for connectors whose logs went back.

        Transactions that were incomplete in an earlier epoch stay incomplete.
        """
        return TransactionLedger(
            self.surveyed_through, {**self.connectors, **{prefix: OpenTransactions(start=start) for prefix, start in starts.items()}}
        )

    def reports(self, topics: Iterable[str]) -> tuple[TransactionReport, ...]:
        """Return the incomplete transactions by connector."""
        topics, found = tuple(topics), []
        for prefix, known in sorted(self.connectors.items()):
            lacking = tuple(known.lacking(prefix, topics))
            without_end = sum(item.expected is None for item in known.open.values())
            incomplete = len({item.transaction for item in lacking})
            found.append(TransactionReport(prefix, lacking[-MOST_LISTED:], incomplete, without_end, known.given_up))
        return tuple(found)
